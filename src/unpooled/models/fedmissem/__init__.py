"""FedMissEM: missing counts of sites by dates, filled in by a low-rank model; one SUM per round.

Read in this order: `estimator` (the server and its questions), `bilinear` (the low-rank model), `smoothing` (its penalty over dates).
"""

from unpooled.models.fedmissem.estimator import FedMissEM

__all__ = ["FedMissEM"]
