"""The regression without each site, by subtraction: one SUM, in which every site writes the weights that remain without it.

A site gets the sums of all, takes its own off and solves: what is left is exactly the fit to the others. Weights leave site by site; a
node may refuse the question by its name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData
from unpooled.maths import bayes_linear
from unpooled.maths.bayes_linear import Stats
from unpooled.models.regression.design import Design, statistics
from unpooled.tree import message


@message("regression.Total")
class Total(NamedTuple):
    """The sums of all clients, and how they were made."""

    design: Design
    stats: Stats


@message("regression.Without")
class Without(NamedTuple):
    weights: Float[Array, "s k o"]  # of the fit without each site
    offset: Float[Array, "s o"]  # and its value where all features are 0


@client("regression.without_each_by_site", SUM, batched=False)
def without_each(total: Total, client: Client, *, spec: dict, how: dict, sites: list) -> Without:
    """Weights of the fit to the rows of all other sites."""
    mine = statistics.using(spec=spec, share=0.0, seed=0)(total.design, client)
    rest = tree.map(lambda a, b: to_numpy(a) - to_numpy(b), total.stats, mine)
    if rest.n < 2:
        raise BadData(f"without client {client.name!r} fewer than 2 rows are left: there is no fit without it")
    post = bayes_linear.posterior(rest._replace(yy=np.maximum(rest.yy, 0.0)), **how)
    place = sites.index(client.name)
    weights = np.zeros((len(sites), *post.weights.shape))
    offset = np.zeros((len(sites), len(post.offset)))
    weights[place], offset[place] = post.weights, post.offset - post.centre @ post.weights
    return Without(weights, offset)
