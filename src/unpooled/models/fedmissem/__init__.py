"""FedMissEM: missing counts of sites by dates, filled in by a low-rank model; one SUM per round.

Read in this order: `estimator` (the server), `stages` (its choices), `questions` (what clients are asked), `selection` (which models are
tried), `averaging` (their weights), `steps` (one step of a candidate), `bilinear` (the low-rank model), `families` (distributions of a
cell), `table_size` (how many sites and dates there are), `checks` (rows that are refused), `totals` (by date), `smoothing` (a trend
through them, for plots).
"""

from unpooled.models.fedmissem.estimator import FedMissEM

__all__ = ["FedMissEM"]
