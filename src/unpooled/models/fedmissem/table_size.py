"""The size of a table that no client knows in full: the largest numbers of sites and dates, by SUMs of occupied ranges.

The first SUM finds the length in bits of the largest numbers, each further one divides the range left by 1024.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.models.fedmissem.questions import N_RANGES, Ranges, occupied

SIDES = ("sites", "dates")


def find_size(fed: Federation, n_sites: int | None, n_dates: int | None) -> tuple[int, int]:
    """(sites, dates) as given, or one more than the largest numbers; BadParameter if a given size is too small."""
    given = (n_sites, n_dates)
    sizes = []
    for side, largest in enumerate(_largest(fed)):
        wanted, name = given[side], SIDES[side]
        if wanted is not None and wanted <= largest:
            raise BadParameter(
                f"n_{name}={wanted} is too small: a visit has number {largest}, so give at least {largest + 1}"
            )
        sizes.append(wanted or largest + 1)
    return sizes[0], sizes[1]


def _largest(fed: Federation) -> tuple[int, int]:
    """The largest numbers of sites and of dates."""
    bits = _last_occupied(fed, Ranges(np.zeros(2), np.zeros(2)))
    low = np.where(bits > 0, 2.0 ** (bits - 1), 0.0)
    width = low.copy()  # a number of b bits is in [2^(b-1), 2^b)
    while (width > 1).any():
        width = np.maximum(np.ceil(width / N_RANGES), 1.0)
        low = low + width * _last_occupied(fed, Ranges(low, width))
    return int(low[0]), int(low[1])


def _last_occupied(fed: Federation, ranges: Ranges) -> np.ndarray:  # (2,)
    """The last range with visits, of sites and of dates; 0 if there is none."""
    clients = to_numpy(fed.sum(occupied, ranges).clients)
    return np.array([float(np.flatnonzero(row).max(initial=0)) for row in clients])
