"""Residual and depthwise networks, many at once: every convolution of all models is one batched product. Nothing is sent.

Images are (m, b, height, width, channels), m counting models. A convolution gathers the pixels under its kernel side by side
and multiplies them by each model's weights; one that mixes no channels adds up shifted images instead. On a GPU the whole
pass is compiled, so that gathering and normalising need no memory of their own. Sums run in float32 whatever the products have.

`torch.set_float32_matmul_precision` decides about precision on a GPU, as it does elsewhere in torch: "medium" has products in
bfloat16, "high" in TF32, "highest" (torch's default) in float32. Parameters and their gradients are float32 always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unpooled.learners.nets import Residual

SIMPLE = (nn.ReLU, nn.ReLU6, nn.Identity)
BYTES_PER_OUTPUT = (
    20  # memory of a step for every output of a layer with weights, as measured with resnet18 in bfloat16
)


# ---- which networks ----


def supported(module: nn.Module) -> bool:
    """Whether every layer of a network can be evaluated here."""
    leaves = [m for m in module.modules() if not isinstance(m, nn.Sequential | Residual)]
    return isinstance(module, nn.Sequential) and all(map(_supported, leaves))


def _supported(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        mixes_all_or_none = layer.groups == 1 or layer.groups == layer.in_channels == layer.out_channels
        return mixes_all_or_none and layer.dilation == (1, 1) and isinstance(layer.padding, tuple)
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return layer.output_size == 1
    if isinstance(layer, nn.Unflatten | nn.Flatten):
        return 1 in (getattr(layer, "dim", 0), getattr(layer, "start_dim", 0))
    return isinstance(layer, (*SIMPLE, nn.Linear, nn.GroupNorm))


def bytes_per_row(module: nn.Module, inputs: int) -> int:
    """About how much memory one row needs in a step of one model."""
    outputs: list[int] = []
    weighted = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [m.register_forward_hook(lambda _m, _x, y: outputs.append(y.numel())) for m in weighted]
    with torch.no_grad():
        module.eval()(torch.zeros(1, inputs))
    for hook in hooks:
        hook.remove()
    return BYTES_PER_OUTPUT * sum(outputs)


# ---- scores ----


def scores(module: nn.Module, weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """Class scores (m, b, classes) of rows x (m, b, d); weights are (m, *shape) for each parameter, in their order."""
    left = iter(weights)
    out = _evaluate(module, left, x)
    return out.float()


def _evaluate(layer: nn.Module, left: Iterator[Tensor], h: Tensor) -> Tensor:
    if isinstance(layer, nn.Sequential):
        for part in layer:
            h = _evaluate(part, left, h)
        return h
    if isinstance(layer, Residual):
        body = _evaluate(layer.body, left, h)
        return _evaluate(layer.last, left, body + _evaluate(layer.short, left, h))
    if isinstance(layer, nn.Unflatten):
        return h.unflatten(-1, layer.unflattened_size).permute(0, 1, 3, 4, 2)
    if isinstance(layer, nn.Flatten):
        return h.permute(0, 1, 4, 2, 3).flatten(2) if h.ndim == 5 else h
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return h.float().mean((2, 3), keepdim=True).to(h.dtype)
    if isinstance(layer, SIMPLE):
        return layer(h)
    return _weighted(layer, left, h)


def _weighted(layer: Any, left: Iterator[Tensor], h: Tensor) -> Tensor:
    """A layer with weights."""
    weight = next(left)
    bias = next(left) if layer.bias is not None else None
    if isinstance(layer, nn.GroupNorm):
        return _group_norm(h, weight, bias, layer.num_groups, layer.eps)
    weight = weight.to(h.dtype)
    if isinstance(layer, nn.Linear):
        out = torch.bmm(h, weight.mT)
        return out if bias is None else out + bias[:, None].to(h.dtype)
    out = _depthwise(h, weight, layer) if layer.groups > 1 else _convolution(h, weight, layer)
    return out if bias is None else out + bias[:, None, None, None].to(h.dtype)


def _convolution(h: Tensor, weight: Tensor, layer: nn.Conv2d) -> Tensor:
    """weight (m, out, channels, high, wide)."""
    shifted = _shifted(h, layer)
    m, b, tall, across, _ = shifted[0].shape
    pixels = shifted[0] if len(shifted) == 1 else torch.cat(shifted, -1)
    flat = weight.permute(0, 3, 4, 2, 1).reshape(m, -1, weight.shape[1])  # (m, high * wide * channels, out)
    return torch.bmm(pixels.reshape(m, b * tall * across, -1), flat).view(m, b, tall, across, -1)


def _depthwise(h: Tensor, weight: Tensor, layer: nn.Conv2d) -> Tensor:
    """weight (m, channels, 1, high, wide): each channel by itself."""
    taps = weight.flatten(2).movedim(-1, 0)[:, :, None, None, None, :]  # (high * wide, m, 1, 1, 1, channels)
    total = sum(image.float() * tap.float() for image, tap in zip(_shifted(h, layer), taps))
    return total.to(h.dtype)  # type: ignore[union-attr]


def _shifted(h: Tensor, layer: nn.Conv2d) -> list[Tensor]:
    """The image as each entry of the kernel sees it: (m, b, tall, across, channels) for every one."""
    (high, wide), (down, right) = layer.kernel_size, layer.stride
    above, beside = layer.padding  # type: ignore[misc]
    tall = (h.shape[2] + 2 * int(above) - high) // down + 1
    across = (h.shape[3] + 2 * int(beside) - wide) // right + 1
    padded = F.pad(h, (0, 0, int(beside), int(beside), int(above), int(above)))
    ends = (tall - 1) * down + 1, (across - 1) * right + 1
    return [padded[:, :, i : i + ends[0] : down, j : j + ends[1] : right] for i in range(high) for j in range(wide)]


def _group_norm(h: Tensor, weight: Tensor, bias: Tensor | None, groups: int, eps: float) -> Tensor:
    """Over pixels and the channels of a group, in float32."""
    m, b, tall, across, channels = h.shape
    grouped = h.float().view(m, b, tall * across, groups, channels // groups)
    variance, mean = torch.var_mean(grouped, (2, 4), keepdim=True, correction=0)
    normal = ((grouped - mean) * torch.rsqrt(variance + eps)).view(h.shape)
    out = normal * weight[:, None, None, None]
    return (out if bias is None else out + bias[:, None, None, None]).to(h.dtype)
