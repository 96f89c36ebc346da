"""`Compressed(fed)`: fewer bytes for any question.

Read in this order: `layer` (the layer and its client step), `quantisers` (numbers to small integers), `message` (an answer as bytes,
array by array), `coding` (small integers to bits).
"""

from unpooled.layers.compression.layer import Compressed

__all__ = ["Compressed"]
