"""What a mixed mixture sends: its parameters down, one sum of statistics up."""

from __future__ import annotations

from typing import NamedTuple

from unpooled.arrays import Array, Float
from unpooled.maths import mixture
from unpooled.tree import message


@message("mixed.Params")
class Params(NamedTuple):
    """A mixture whose components are products of a Gaussian, of level probabilities and of negative binomials."""

    gaussian: mixture.Params  # with the weights of the components; (k, 0) means where no column is Gaussian
    levels: Float[Array, "k t", ">=0"]  # probabilities of the levels of all discrete columns, one after the other
    mean: Float[Array, "k m", ">=0"]  # of counts
    dispersion: Float[Array, "k m", ">=0"]  # of counts: the variance is mean + dispersion mean^2; 0 is Poisson's


@message("mixed.Stats")
class Stats(NamedTuple):
    """Sums over rows with responsibilities r; missing cells are left out of the last four."""

    gaussian: mixture.Stats  # with the number of rows and their log-likelihood
    levels: Float[Array, "k t", ">=0 rows"]  # sum of r by level
    seen: Float[Array, "k m", ">=0 rows"]  # sum of r over counts that are there
    counts: Float[Array, "k m", ">=0"]  # sum of r times the count
    gammas: Float[Array, "k m a"]  # sum of r times lgamma(x + 1/a) - lgamma(1/a) + x log a, by dispersion a of the grid


@message("mixed.Prior")
class Prior(NamedTuple):
    """What all rows together say, which components are drawn to."""

    levels: Float[Array, "t"]  # shares of the levels, in each discrete column
    mean: Float[Array, "m"]  # of counts


@message("mixed.Look")
class Look(NamedTuple):
    """A first look at a table, by embedded column (see `embedding`)."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "e", ">=0 rows"]  # values that are not missing
    x: Float[Array, "e"]  # their sum
    counts: Float[Array, "m", ">=0"]  # the sum of each column of counts
    bad: Float[Array, "d", ">=0 rows"]  # values that the kind of their column does not have


@message("mixed.Spread")
class Spread(NamedTuple):
    """Sums of squares of embedded columns."""

    xx: Float[Array, "e", ">=0"]  # sum of squares about the centre, by embedded column


@message("mixed.Guess")
class Guess(NamedTuple):
    """A mixture of embedded rows, and a Gaussian block about which the first moments are taken."""

    weights: Float[Array, "k"]
    means: Float[Array, "k e"]
    covs: Float[Array, "*q"]
    gaussian: mixture.Params

    @property
    def embedded(self) -> mixture.Params:
        """The guess as a Gaussian mixture of embedded rows."""
        return mixture.Params(self.weights, self.means, self.covs)
