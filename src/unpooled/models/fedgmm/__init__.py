"""FedGMM: a joint model of inputs and labels, shared Gaussians and learners with each client's own weights.

Read in this order: `estimator` (the server), `rounds` (the questions), `initialization` (the first Gaussians), `prediction` (what a
fitted model says of new rows), `weighted_e_step` and `row_cache` (the mathematics of a round and how it is kept fast).
"""

from unpooled.models.fedgmm.estimator import FedGMM

__all__ = ["FedGMM"]
