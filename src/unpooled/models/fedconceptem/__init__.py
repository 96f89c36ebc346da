"""FedConceptEM: one model per concept when clients label alike inputs differently.

Read in this order: `estimator` (the server), `rounds` (the questions).
"""

from unpooled.models.fedconceptem.estimator import FedConceptEM

__all__ = ["FedConceptEM"]
