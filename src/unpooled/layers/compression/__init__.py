"""`Compressed(fed)`: fewer bytes per answer. Adds the step `compressed.compress` to every SUM and GATHER.

Read in this order: `layer` (the layer and its client step), `quantisers` (floats to small integers), `message` (any
answer as bytes, sent as the change of what both ends remember), `codec` (for models with a scaling of their own, such
as FedEM), `blocks` (matrices as bytes, for codecs), `coding` (small integers to bits), `scales` (scales and masks as bytes).
"""

from unpooled.layers.compression import blocks
from unpooled.layers.compression.codec import Decoder, Scheme, register_codec
from unpooled.layers.compression.layer import Compressed, compression_of
from unpooled.layers.compression.quantisers import (
    QUANTISERS,
    Cast,
    Dither,
    Identity,
    Sparsify,
    TopK,
    memory_step,
    usual_omega,
)

__all__ = [
    "QUANTISERS", "Cast", "Compressed", "Decoder", "Dither", "Identity", "Scheme", "Sparsify", "TopK", "blocks",
    "compression_of", "memory_step", "register_codec", "usual_omega",
]  # fmt: skip
