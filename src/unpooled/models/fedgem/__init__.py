"""FedGEM: clusters when clients hold different ones and nobody knows how many, as published and done right.

Read in this order: `estimator` (the server and its questions), `balls` (which local clusters meet).
"""

from unpooled.models.fedgem.estimator import FedGEM

__all__ = ["FedGEM"]
