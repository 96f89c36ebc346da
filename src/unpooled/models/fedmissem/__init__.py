"""FedMissEM: missing counts of sites by dates, filled in by a low-rank model; one SUM per round.

Read in this order: `estimator` (the server), `questions` (what clients are asked), `selection` (which models are tried), `steps` (one
step of a candidate), `bilinear` (the low-rank model), `families` (distributions of a cell), `table_size` (how many sites and dates
there are), `smoothing` (a trend through the totals, for plots).
"""

from unpooled.models.fedmissem.estimator import FedMissEM

__all__ = ["FedMissEM"]
