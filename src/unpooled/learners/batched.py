"""Residual and depthwise networks, many at once: the layers of all models are one layer of many groups. Nothing is sent.

Images are (b, m x channels, height, width), m counting models, so that a convolution of all models is one grouped convolution and a group
norm one group norm. cuDNN is told to search for the fastest kernels of each shape, so shapes should be few: see `in_blocks`. With
`COMPILED["cuda"] = True` the layers are compiled by `torch.compile` as well, with channels last: half a minute for each shape, after
which group norm, ReLU and addition are one kernel and no image is transposed.

`torch.set_float32_matmul_precision` decides about precision on a GPU, as it does elsewhere in torch: "medium" has products in
bfloat16, "high" in TF32, "highest" (torch's default) in float32. Parameters, their gradients and sums are float32 always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unpooled.learners.nets import Residual

SIMPLE = (nn.ReLU, nn.ReLU6, nn.Identity)
# memory of a step for every output of a layer with weights, as measured with resnet18 in bfloat16
BYTES_PER_OUTPUT = 20


COMPILED = {"cuda": False}  # by kind of device, whether layers are compiled
COMPILED_ROWS = 256  # fewer rows of a model are not worth compiling for, where there are no gradients


# ---- which networks ----


def supported(module: nn.Module) -> bool:
    """Whether every layer of a network can be evaluated here."""
    leaves = [m for m in module.modules() if not isinstance(m, nn.Sequential | Residual)]
    return isinstance(module, nn.Sequential) and all(map(_supported, leaves))


def _supported(layer: nn.Module) -> bool:
    """Whether this file can compute the layer."""
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
    if COMPILED.get(x.device.type) and (torch.is_grad_enabled() or x.shape[1] >= COMPILED_ROWS):
        return _compiled()(module, tuple(weights), x)
    return _evaluate(module, iter(weights), x, len(x)).float()


@cache
def _compiled() -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    """The scores of a stack of networks, compiled once per shape."""
    return torch.compile(_channels_last_scores, dynamic=False)


def _channels_last_scores(module: nn.Module, weights: tuple[Tensor, ...], x: Tensor) -> Tensor:
    """Scores in the memory layout that compiled convolutions are fastest in."""
    return _evaluate(module, iter(weights), x, len(x), channels_last=True).float()


def _evaluate(layer: nn.Module, left: Iterator[Tensor], h: Tensor, m: int, channels_last: bool = False) -> Tensor:
    """Vectors are (m, b, units), images (b, m x channels, height, width)."""
    if isinstance(layer, nn.Sequential):
        for part in layer:
            h = _evaluate(part, left, h, m, channels_last)
        return h
    if isinstance(layer, Residual):
        body = _evaluate(layer.body, left, h, m, channels_last)
        return _evaluate(layer.last, left, body + _evaluate(layer.short, left, h, m, channels_last), m)
    if isinstance(layer, nn.Unflatten):
        return h.unflatten(-1, layer.unflattened_size).movedim(0, 1).flatten(1, 2)
    if isinstance(layer, nn.Flatten):
        return h.unflatten(1, (m, -1)).movedim(1, 0).flatten(2) if h.ndim == 4 else h
    if isinstance(layer, (nn.AdaptiveAvgPool2d, *SIMPLE)):
        return layer(h)
    return _weighted(layer, left, h, m, channels_last)


def _weighted(layer: Any, left: Iterator[Tensor], h: Tensor, m: int, channels_last: bool) -> Tensor:
    """A layer with weights (m, ...)."""
    weight = next(left)
    bias = next(left) if layer.bias is not None else None
    if isinstance(layer, nn.GroupNorm):
        norm = _group_norm_channels_last if channels_last else _group_norm
        return norm(h, weight.flatten(), None if bias is None else bias.flatten(), m * layer.num_groups, layer.eps)
    weight = weight.to(h.dtype)
    bias = None if bias is None else bias.to(h.dtype)
    if isinstance(layer, nn.Linear):
        out = torch.bmm(h, weight.mT)
        return out if bias is None else out + bias[:, None]
    flat = None if bias is None else bias.flatten()
    weight = weight.flatten(0, 1)
    if channels_last:
        h, weight = (a.contiguous(memory_format=torch.channels_last) for a in (h, weight))
    return F.conv2d(h, weight, flat, layer.stride, layer.padding, groups=m * layer.groups)


def _group_norm(h: Tensor, weight: Tensor, bias: Tensor | None, groups: int, eps: float) -> Tensor:
    """In the type of h; its sums are float32 whatever that is."""
    return F.group_norm(h, groups, weight.to(h.dtype), None if bias is None else bias.to(h.dtype), eps)


def _group_norm_channels_last(h: Tensor, weight: Tensor, bias: Tensor | None, groups: int, eps: float) -> Tensor:
    """The same as sums and products that a compiler makes one kernel of, without a transposition of h."""
    n, channels, height, width = h.shape
    pixels = h.permute(0, 2, 3, 1).reshape(n, height * width, groups, channels // groups)
    var, mean = torch.var_mean(pixels.float(), (1, 3), correction=0)  # (n, groups)
    scale = (var + eps).rsqrt()[..., None] * weight.view(groups, -1)  # (n, groups, channels of a group)
    shift = -mean[..., None] * scale
    shift = shift if bias is None else shift + bias.view(groups, -1)
    out = pixels * scale[:, None].to(h.dtype) + shift[:, None].to(h.dtype)
    return out.reshape(n, height, width, channels).permute(0, 3, 1, 2)


# ---- a few models at a time ----


def in_blocks(work: Callable[..., Tensor], few: int, *arrays: Tensor) -> Tensor:
    """`work` on `few` clients at a time; every array is (clients, ...).

    Blocks have a power of two of clients, the last one being padded by copies of its first client, so that there are few shapes
    for which cuDNN has to search and a compiler to compile.
    """
    few = 2 ** (max(1, few).bit_length() - 1)
    return torch.cat([_padded(work, *part) for part in zip(*(a.split(few) for a in arrays))])


def _padded(work: Callable[..., Tensor], *arrays: Tensor) -> Tensor:
    """Do the work for a power of two of clients, so that few shapes occur, and keep those asked for."""
    clients = len(arrays[0])
    short = 2 ** (clients - 1).bit_length() - clients
    if short:
        arrays = tuple(torch.cat([a, a[:1].expand(short, *a.shape[1:])]) for a in arrays)
    cudnn = torch.backends.cudnn
    with cudnn.flags(cudnn.enabled, benchmark=True, deterministic=cudnn.deterministic, allow_tf32=cudnn.allow_tf32):
        return work(*arrays)[:clients]
