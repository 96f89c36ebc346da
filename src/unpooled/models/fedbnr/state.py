"""FedBNR's state between two rounds. Sends nothing."""

from __future__ import annotations

from typing import NamedTuple

from unpooled.models.fedbnr.marginals import Marginals
from unpooled.models.fedbnr.round_choice import Best
from unpooled.models.regression import Design
from unpooled.tree import Tree, message


@message("fedbnr.State")
class State(NamedTuple):
    """What a round carries on."""

    design: Design
    optimiser: Tree  # a descent.LBFGS or descent.Adam; () when clients train
    log_noise: float  # averaged over clients; unused when the server estimates them
    log_prior: float
    best: Best | None
    round: int
    seed: int  # of the held-out rows
    spent: int  # SUMs before the first round
    marginals: Marginals | None  # histograms of the columns, where they were asked for
    rounds: int | None  # of learning, at most; None where `max_iter` alone is a limit
