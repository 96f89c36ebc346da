"""Where a mixture or a clustering starts: the columns' means and spreads by two SUMs, then centres.

Read in this order:

- `column_frame`: means and standard deviations of the columns, by which everything is standardised; a warning where they are rounded
- `part_of_rows`: of many rows a part is enough
- `kernels`, `cell_sums`, `together`: SUMs over small regions (cells), which several searches share
- `covariance_kinds`, `cell_mixture`, `cell_search`: mixtures fitted to cells at the server
- `short_runs`: rounds of EM over all rows, by which one of these is chosen
- `cells`: all of this in order. The start does not depend on how rows are split into clients
- `clusters`: starts from k-means or from means of cells, as scikit-learn's other starts do from rows
- `gathered`: centres of each client's own k-means, which is one GATHER
"""

from unpooled.models.initialization.cell_sums import cell_counts
from unpooled.models.initialization.cells import CELL_SUMS, cells_start, starts
from unpooled.models.initialization.clusters import centre_starts, k_means
from unpooled.models.initialization.column_frame import (
    Centre,
    Frame,
    column_squares,
    column_sums,
    double,
    frame,
    is_rounded,
    warn_of_rounding,
    without_constants,
)
from unpooled.models.initialization.gathered import (
    Centres,
    centres,
    cluster_centres,
    from_centres,
    local_centres,
    override,
    random_means,
    wide,
)
from unpooled.models.initialization.part_of_rows import part_of, taken
from unpooled.models.initialization.short_runs import ROUNDS
from unpooled.models.initialization.together import Counts, Totals, count_rows, whole_rows, without

__all__ = [
    "CELL_SUMS",
    "ROUNDS",
    "Centre",
    "Centres",
    "Counts",
    "Frame",
    "Totals",
    "cell_counts",
    "cells_start",
    "centre_starts",
    "centres",
    "cluster_centres",
    "column_squares",
    "column_sums",
    "count_rows",
    "double",
    "frame",
    "from_centres",
    "is_rounded",
    "k_means",
    "local_centres",
    "override",
    "part_of",
    "random_means",
    "starts",
    "taken",
    "warn_of_rounding",
    "whole_rows",
    "wide",
    "without",
    "without_constants",
]
