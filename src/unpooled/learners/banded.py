"""Plain convolutional networks, many at once: every layer is one batched product. For GPUs. Nothing is sent.

A convolution with its kernel laid along the width of the image is a banded matrix that maps a few whole image rows to
one row of outputs. That multiplies more than it must, by zeros, but in large products, where a GPU would take
thousands of small convolutions one group at a time; all models of a client share its rows in the first layer.

Activations of images are (lead, b, height, width, m, channels) and of vectors (lead, b, m, units): lead is the clients
and m their models while these still share rows, afterwards lead is clients x models and m is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

ALIGNED = 8  # columns of a product come in multiples of this, which tensor cores want
LARGEST = 2**19  # entries of a band: beyond this the zeros cost more than they save


def plain(module: nn.Module, inputs: int) -> list[nn.Module] | None:
    """The layers of a network that this file can run, or None."""
    layers = [m for m in module.modules() if not isinstance(m, nn.Sequential)]
    if not isinstance(module, nn.Sequential) or not all(map(_known, layers)):
        return None
    x = torch.zeros(1, inputs)
    with torch.no_grad():
        for layer in layers:
            before, x = x, layer(x)
            if isinstance(layer, nn.Conv2d) and _band_size(layer, before.shape, x.shape) > LARGEST:
                return None
    return _pooled_first(layers)


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.dilation == (1, 1) and layer.padding == (0, 0) and layer.bias is not None
    if isinstance(layer, nn.MaxPool2d):
        return layer.padding == 0 and layer.dilation == 1 and not layer.ceil_mode
    if isinstance(layer, nn.Unflatten | nn.Flatten):
        return 1 in (getattr(layer, "dim", 0), getattr(layer, "start_dim", 0))
    return isinstance(layer, nn.ReLU) or (isinstance(layer, nn.Linear) and layer.bias is not None)


def _band_size(layer: nn.Conv2d, before: Sequence[int], after: Sequence[int]) -> int:
    return layer.kernel_size[0] * before[1] * before[3] * after[1] * after[3]


def _pooled_first(layers: list[nn.Module]) -> list[nn.Module]:
    """The same network with a ReLU after the pooling that follows it: they commute, and what is pooled is smaller."""
    out = list(layers)
    for i, (a, b) in enumerate(pairwise(layers)):
        if isinstance(a, nn.ReLU) and isinstance(b, nn.MaxPool2d):
            out[i], out[i + 1] = b, a
    return out


def scores(layers: list[nn.Module], weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """Class scores (c, k, b, classes) of rows x (c, b, d); weights: (c, k, *shape) for each parameter, in order."""
    models, left = weights[0].shape[:2], iter(weights)
    h = x[:, :, None, :]  # (c, b, 1, d)
    for layer in layers:
        if isinstance(layer, nn.Unflatten):
            h = h.unflatten(-1, layer.unflattened_size).permute(0, 1, 4, 5, 2, 3)
        elif isinstance(layer, nn.Flatten):
            h = h.permute(0, 1, 4, 5, 2, 3).flatten(3)
        elif isinstance(layer, nn.ReLU):
            h = h.relu()
        elif isinstance(layer, nn.MaxPool2d):
            h = _max_pool(layer, h)
        else:
            shared = h.shape[0] * h.shape[-2] < models.numel()
            h = _weighted(layer, h, next(left), next(left), shared)
    return h.movedim(-2, 1).reshape(*models, *h.shape[1:2], h.shape[-1])


def _weighted(layer: nn.Module, h: Tensor, weight: Tensor, bias: Tensor, shared: bool) -> Tensor:
    """A layer with weights (c, k, out, ...) and bias (c, k, out); `shared`: all models of a client see the same h."""
    h = h.movedim(-2, 1).flatten(0, 1)  # (g, b, ..., inputs)
    models = weight.shape[1] if shared else 1
    if shared:
        weight, bias = weight.movedim((1, 2), (-2, -1)).flatten(-2), bias.flatten(1)
    else:
        weight, bias = weight.flatten(0, 1).movedim(1, -1), bias.flatten(0, 1)
    if isinstance(layer, nn.Conv2d):  # weight (g, channels, high, wide, out), bias (g, out)
        out = convolution(h, weight.movedim(1, 3), bias, layer.stride)
    else:
        out = torch.baddbmm(bias[:, None], h, weight)
    return out.unflatten(-1, (models, -1))


def _max_pool(layer: nn.MaxPool2d, h: Tensor) -> Tensor:
    """Over height and width of (lead, b, height, width, m, channels)."""
    lead, last = h.shape[:2], h.shape[-2:]
    images = h.flatten(0, 1).flatten(-2).movedim(-1, 1)  # channels stay last in memory
    return layer(images).movedim(1, -1).unflatten(-1, last).unflatten(0, lead)


def convolution(x: Tensor, weight: Tensor, bias: Tensor, stride: Sequence[int] = (1, 1)) -> Tensor:
    """g convolutions at once: images x (g, b, height, width, c), weight (g, high, wide, c, n), bias (g, n) to (g, b, ..., n)."""
    return _Convolution.apply(x, weight, bias, tuple(stride))


class _Convolution(torch.autograd.Function):
    """out = patches @ band: patches are whole image rows as the kernel meets them, a 1 for the bias, and zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> Tensor:
        patches = _patches(x, weight.shape[1], stride[0])  # (g, b, tall, columns)
        across = (x.shape[3] - weight.shape[2]) // stride[1] + 1
        band = _band(weight, bias, x.shape[3], across, stride[1], patches.shape[-1])  # (g, columns, across * n)
        ctx.save_for_backward(patches, band)
        ctx.shapes = x.shape, weight.shape, stride
        return torch.bmm(patches.flatten(1, 2), band).view(*patches.shape[:3], across, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        patches, band = ctx.saved_tensors
        x_shape, w_shape, stride = ctx.shapes
        delta = grads[0].flatten(3).flatten(1, 2).contiguous()  # (g, b * tall, across * n)
        to_band = torch.bmm(patches.flatten(1, 2).mT, delta)
        diagonal, constant = _parts(to_band, w_shape, x_shape[3], stride[1])
        to_x = (
            _to_images(torch.bmm(delta, band.mT), x_shape, w_shape[1], stride[0]) if ctx.needs_input_grad[0] else None
        )
        return to_x, diagonal.sum(-2), constant.sum(1), None


def _patches(x: Tensor, high: int, stride: int) -> Tensor:
    """(g, b, tall, columns): for each row of outputs the `high` image rows it needs."""
    rows = x.flatten(3).unfold(2, high, stride).mT  # (g, b, tall, high, width * c)
    used = rows.shape[-2] * rows.shape[-1]
    out = x.new_empty(*rows.shape[:3], -(-(used + 1) // ALIGNED) * ALIGNED)
    out[..., :used].unflatten(-1, rows.shape[-2:]).copy_(rows)
    out[..., used] = 1
    out[..., used + 1 :] = 0
    return out


def _band(weight: Tensor, bias: Tensor, width: int, across: int, stride: int, columns: int) -> Tensor:
    """(g, columns, across * n): the kernel along the width, the bias, zeros."""
    out = weight.new_zeros(len(weight), columns, across * weight.shape[-1])
    diagonal, constant = _parts(out, weight.shape, width, stride)
    diagonal.copy_(weight[..., None, :])
    constant.copy_(bias[:, None])
    return out


def _parts(band: Tensor, shape: Sequence[int], width: int, stride: int) -> tuple[Tensor, Tensor]:
    """Views of a band: where each entry of the kernel stands (g, high, wide, c, across, n), and the bias (g, across, n)."""
    g, high, wide, c, n = shape
    line = band.shape[-1]  # across * n
    steps = (band.stride(0), width * c * line, c * line, line, stride * c * line + n, 1)
    diagonal = band.as_strided((g, high, wide, c, line // n, n), steps)
    return diagonal, band[:, high * width * c].unflatten(-1, (-1, n))


def _to_images(cols: Tensor, shape: Sequence[int], high: int, stride: int) -> Tensor:
    """The gradient of `_patches`: columns (g, b * tall, ...) added to the image rows they came from."""
    g, b, height, width, c = shape
    out = cols.new_zeros(g, b, height, width * c)
    cols = cols[..., : high * width * c].view(g, b, -1, high, width * c)
    for i in range(high):
        out[:, :, i : i + stride * cols.shape[2] : stride] += cols[:, :, :, i]
    return out.view(shape)
