"""FedEM and VR-FedEM: EM for any exponential family over clients that come and go and links that are slow.

Read in this order: `estimator` (the server), `client` (the questions), `families` (the exponential families, one per file).
"""

from unpooled.models.fedem.estimator import FedEM, VRFedEM

__all__ = ["FedEM", "VRFedEM"]
