"""Where a mixture or a clustering starts: the columns' means and spreads by two SUMs, then centres.

`cells` asks for sums over small regions (`cell_sums`, `clusters`), finds components at the server (`cell_search`, `cell_mixture`) and
chooses by rounds of EM (`short_runs`, `together`): the start does not depend on how rows are split into clients.
`clusters` also starts from k-means or from means of cells, as scikit-learn's other starts do from rows.
`gathered` asks each client for the centres of its own k-means, which is one GATHER.
"""

from unpooled.models.initialization.cells import CELL_SUMS, cells_start, starts
from unpooled.models.initialization.clusters import centre_starts, k_means
from unpooled.models.initialization.gathered import (
    MAX_CLIENTS,
    Centre,
    Centres,
    Frame,
    centres,
    cluster_centres,
    double,
    frame,
    from_centres,
    local_centres,
    look,
    override,
    random_means,
    spread,
    wide,
    without_constants,
)
from unpooled.models.initialization.short_runs import ROUNDS
from unpooled.models.initialization.together import Counts, count_rows

__all__ = [
    "CELL_SUMS",
    "MAX_CLIENTS",
    "ROUNDS",
    "Centre",
    "Centres",
    "Counts",
    "Frame",
    "cells_start",
    "centre_starts",
    "centres",
    "cluster_centres",
    "count_rows",
    "double",
    "frame",
    "from_centres",
    "k_means",
    "local_centres",
    "look",
    "override",
    "random_means",
    "spread",
    "starts",
    "wide",
    "without_constants",
]
