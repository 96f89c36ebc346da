"""Differential privacy as a layer: sums with noise, a budget of epsilon, and the refusal of everything else.

Read in this order: `look` (one SUM with noise, the only way in which private models reach the rows), `layer` (`Private`, which adds the
noise in this process, keeps the budget and refuses) and `nodes` (`PrivateNodes`, for nodes that add their own).
The mathematics is in `unpooled.privacy`.
"""

from unpooled.layers.private.layer import Private
from unpooled.layers.private.look import Look, look, private_layer, wanted, wanted_mu2, without_wish

__all__ = [
    "Look", "Private", "look", "private_layer", "wanted", "wanted_mu2", "without_wish",
]  # fmt: skip
