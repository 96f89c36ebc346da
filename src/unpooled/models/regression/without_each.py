"""The regression without each site, by subtraction: one SUM, to which every site adds the weights of the fit without it.

A site gets the sums over all sites, subtracts its own and solves: exactly the fit to the other sites. The total shows these weights site
by site; a node may refuse the question by its name.
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
    """The sums over all clients, and the design (scaling and feature map) they were computed with."""

    design: Design
    stats: Stats


@message("regression.Without")
class Without(NamedTuple):
    """The fits without each of s sites, for k features and o outputs."""

    weights: Float[Array, "s k o"]  # of the fit without each site
    offset: Float[Array, "s o"]  # and its value where all features are 0


@client("regression.without_each_by_site", SUM, batched=False)
def without_each(total: Total, client: Client, *, spec: dict, settings: dict, sites: list) -> Without:
    """Weights of the fit to the rows of all other sites, at this site's position; zeros at the others."""
    mine = statistics.using(spec=spec, share=0.0, seed=0)(total.design, client)
    rest = tree.map(lambda a, b: to_numpy(a) - to_numpy(b), total.stats, mine)
    if rest.n < 2:
        raise BadData(f"without client {client.name!r} fewer than 2 rows are left: there is no fit without it")
    post = bayes_linear.posterior(rest._replace(yy=np.maximum(rest.yy, 0.0)), **settings)
    place = sites.index(client.name)
    weights = np.zeros((len(sites), *post.weights.shape))
    offset = np.zeros((len(sites), len(post.intercept)))
    weights[place] = post.weights
    offset[place] = post.intercept - post.feature_mean @ post.weights
    return Without(weights, offset)
