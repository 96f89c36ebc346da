"""Plain convolutional networks on a GPU, many at once: every layer is one batched product. Nothing is sent.

A convolution is a small kernel that slides over an image. Written as a product of matrices, for one row of outputs of a kernel
(k1 k2 k3) over an image row of five pixels:

                               | k1  .   .  |
                               | k2  k1  .  |
    (p1 p2 p3 p4 p5)     x     | k3  k2  k1 |     =     (o1 o2 o3)
                               | .   k3  k2 |
     the patch: image          | .   .   k3 |            a row of
     rows under the kernel       the band                outputs

The matrix on the right, the band, holds the kernel once per output column, moved down by one stride each time; all else is 0. A kernel
of several rows has the image rows that it covers behind each other in the patch, and its bands below each other; a last entry of 1 in
the patch meets the bias in the last row of the band. All rows of outputs of all images of a minibatch are then the rows of one large
product, and all models are one batch of such products (`torch.bmm`). Products with zeros are wasted, but a grouped convolution
on a GPU would run thousands of small products instead.

In the first layer all models of a client see the same images: their kernels stand side by side in one band. Where a max-pooling
follows, columns of the band are ordered so that the outputs which it compares are contiguous.

Activations of images are (lead, b, height, width, m, channels), those of vectors (lead, b, m, units). While the models of
a client still share its rows, lead counts clients and m models; afterwards lead counts clients x models and m is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unpooled.tree import message

ALIGNMENT = 8  # the number of columns of a product is a multiple of this, as tensor cores require
MAX_BAND = 2**19  # entries of a band above which the products with zeros cost more than they save


# ---- which networks ----


@message("learners.Convolution")
class Convolution(NamedTuple):
    """Stride and pooling of one convolution."""

    stride: tuple[int, int]
    pool: int  # side of the max-pooling windows that follow; 1 is no pooling


def plain(module: nn.Module, inputs: int) -> list[Any] | None:
    """The layers of a network in the form used here, or None if a layer is not supported."""
    layers = [m for m in module.modules() if not isinstance(m, nn.Sequential)]
    if not isinstance(module, nn.Sequential) or not all(map(_supported, layers)):
        return None
    x = torch.zeros(1, inputs)
    with torch.no_grad():
        for layer in layers:
            before, x = x, layer(x)
            if isinstance(layer, nn.Conv2d) and _band_size(layer, before.shape, x.shape) > MAX_BAND:
                return None
    return _joined(_pooled_first(layers))


def _supported(layer: nn.Module) -> bool:
    """Whether this file can compute the layer."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.dilation == (1, 1) and layer.padding == (0, 0) and layer.bias is not None
    if isinstance(layer, nn.MaxPool2d):
        return layer.padding == 0 and layer.dilation == 1 and not layer.ceil_mode
    if isinstance(layer, nn.AvgPool2d):
        return layer.padding == 0 and not layer.ceil_mode
    if isinstance(layer, nn.Unflatten | nn.Flatten):
        return 1 in (getattr(layer, "dim", 0), getattr(layer, "start_dim", 0))
    return isinstance(layer, nn.ReLU) or (isinstance(layer, nn.Linear) and layer.bias is not None)


def _band_size(layer: nn.Conv2d, before: Sequence[int], after: Sequence[int]) -> int:
    """Number of entries of the banded matrix of one layer."""
    return layer.kernel_size[0] * before[1] * before[3] * after[1] * after[3]


def _pooled_first(layers: list[nn.Module]) -> list[nn.Module]:
    """The same network with every ReLU moved behind the max-pooling that follows it: they commute, and its input is smaller."""
    out = list(layers)
    for i, (a, b) in enumerate(pairwise(layers)):
        if isinstance(a, nn.ReLU) and isinstance(b, nn.MaxPool2d):
            out[i], out[i + 1] = b, a
    return out


def _joined(layers: list[nn.Module]) -> list[Any]:
    """Convolutions merged with the non-overlapping pooling that follows them."""
    out: list[Any] = []
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            out.append(Convolution((layer.stride[0], layer.stride[1]), 1))
        elif out and isinstance(out[-1], Convolution) and (side := _tile(layer)):
            out[-1] = out[-1]._replace(pool=side * out[-1].pool)
        else:
            out.append(layer)
    return out


def _tile(layer: nn.Module) -> int:
    """The side of the windows of a non-overlapping max-pooling; 0 for any other layer."""
    size = layer.kernel_size if isinstance(layer, nn.MaxPool2d) and layer.stride == layer.kernel_size else 0
    return size if isinstance(size, int) else 0


# ---- scores ----


def scores(layers: list[Any], weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """Class scores (c, k, b, classes) of rows x (c, b, d); weights are (c, k, *shape) per parameter, in order."""
    models = weights[0].shape[:2]
    left = iter(weights)
    h = x[:, :, None, :]  # (c, b, 1, d)
    for layer in layers:
        if isinstance(layer, nn.Unflatten):
            h = h.unflatten(-1, layer.unflattened_size).permute(0, 1, 4, 5, 2, 3)
        elif isinstance(layer, nn.Flatten):
            h = h.permute(0, 1, 4, 5, 2, 3).flatten(3)
        elif isinstance(layer, nn.ReLU):
            h = h.relu()
        elif isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
            h = _pooled(layer, h)
        else:
            shared = h.shape[0] * h.shape[-2] < models.numel()
            h = _weighted(layer, h, next(left), next(left), shared)
    return h.movedim(-2, 1).reshape(*models, *h.shape[1:2], h.shape[-1])


def _weighted(layer: Any, h: Tensor, weight: Tensor, bias: Tensor, shared: bool) -> Tensor:
    """A layer with weights (c, k, out, ...) and bias (c, k, out); `shared`: all models of a client have the same input h."""
    h = h.movedim(-2, 1).flatten(0, 1)  # (g, b, ..., inputs)
    models = weight.shape[1] if shared else 1
    if shared:
        weight = weight.movedim((1, 2), (-2, -1)).flatten(-2)
        bias = bias.flatten(1)
    else:
        weight = weight.flatten(0, 1).movedim(1, -1)
        bias = bias.flatten(0, 1)
    dense = isinstance(layer, nn.Linear)  # weight (g, inputs, out); else (g, channels, high, wide, out)
    h = torch.baddbmm(bias[:, None], h, weight) if dense else convolution(h, weight.movedim(1, 3), bias, *layer)
    return h.unflatten(-1, (models, -1))


def _pooled(layer: nn.Module, h: Tensor) -> Tensor:
    """A pooling layer over height and width of h (lead, b, height, width, m, channels)."""
    lead, last = h.shape[:2], h.shape[-2:]
    images = h.flatten(0, 1).flatten(-2).movedim(-1, 1)  # channels stay last in memory
    return layer(images).movedim(1, -1).unflatten(-1, last).unflatten(0, lead)


# ---- a convolution ----


class _Plan(NamedTuple):
    """The sizes of a convolution, and of its patches and band."""

    images: torch.Size  # (g, b, height, width, c): g models, b images, c channels
    kernels: torch.Size  # (g, high, wide, c, n): n output channels
    stride: tuple[int, int]
    pool: int  # side of the max-pooling windows that follow

    @property
    def out_rows(self) -> int:
        """Rows of outputs after pooling."""
        return ((self.images[2] - self.kernels[1]) // self.stride[0] + 1) // self.pool

    @property
    def out_columns(self) -> int:
        """Columns of outputs after pooling."""
        return ((self.images[3] - self.kernels[2]) // self.stride[1] + 1) // self.pool

    @property
    def patch(self) -> int:
        """Numbers in the image rows that one row of outputs depends on."""
        return self.kernels[1] * self.images[3] * self.images[4]


def convolution(x: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int] = (1, 1), pool: int = 1) -> Tensor:
    """g convolutions at once, and the maximum over every `pool` x `pool` window: images x (g, b, height, width, c),
    weight (g, high, wide, c, n), bias (g, n) to (g, b, out_rows, out_columns, n).
    """
    return _Convolution.apply(x, weight, bias, _Plan(x.shape, weight.shape, stride, pool))


class _Convolution(torch.autograd.Function):
    """out = patches @ band: patches are the image rows under the kernel, a 1 for the bias, and zero padding."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, plan: _Plan) -> Tensor:
        """Patches times the banded weights, then the largest of every pooling window."""
        patches = _patches(x, plan)  # (g, b * out_rows * pool, columns)
        band = _band(weight, bias, plan, patches.shape[-1])  # (g, columns, pool * out_columns * n)
        out = torch.bmm(patches, band).view(*x.shape[:2], plan.out_rows, plan.pool**2, -1)
        largest = None
        if plan.pool == 1:
            out = out[..., 0, :]
        elif any(ctx.needs_input_grad):
            out, largest = out.max(-2)
        else:
            out = out.amax(-2)
        ctx.save_for_backward(patches, band, largest)
        ctx.plan = plan
        return out.unflatten(-1, (plan.out_columns, -1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of inputs, weights and biases, by the same products."""
        patches, band, largest = ctx.saved_tensors
        plan = ctx.plan
        delta = grads[0].flatten(3)[..., None, :]  # (g, b, out_rows, 1, out_columns * n)
        if largest is not None:
            whole = delta.new_zeros(*delta.shape[:3], plan.pool**2, delta.shape[-1])
            delta = whole.scatter_(3, largest[..., None, :], delta)
        delta = delta.reshape(*patches.shape[:2], -1)
        diagonal, constant = _parts(torch.bmm(patches.mT, delta), plan)
        to_x = _to_images(torch.bmm(delta, band.mT), plan) if ctx.needs_input_grad[0] else None
        return to_x, diagonal.sum((4, 5)), constant.sum(1), None


def _patches(x: Tensor, plan: _Plan) -> Tensor:
    """(g, b * rows of outputs, columns): the image rows that each row of outputs depends on."""
    rows = x.flatten(3).unfold(2, plan.kernels[1], plan.stride[0]).mT  # (g, b, rows of outputs, high, width * c)
    rows = rows[:, :, : plan.out_rows * plan.pool]
    out = x.new_empty(*rows.shape[:3], -(-(plan.patch + 1) // ALIGNMENT) * ALIGNMENT)
    _copy(out[..., : plan.patch].unflatten(-1, rows.shape[-2:]), rows)
    out[..., plan.patch] = 1
    out[..., plan.patch + 1 :] = 0
    return out.flatten(1, 2)


def _band(weight: Tensor, bias: Tensor, plan: _Plan, columns: int) -> Tensor:
    """(g, columns, pool * out_columns * n): the kernel repeated along the width, the bias, zeros elsewhere."""
    out = weight.new_zeros(len(weight), columns, plan.pool * plan.out_columns * weight.shape[-1])
    diagonal, constant = _parts(out, plan)
    _copy(diagonal, weight.contiguous()[..., None, None, :])
    constant.copy_(bias[:, None])
    return out


def _parts(band: Tensor, plan: _Plan) -> tuple[Tensor, Tensor]:
    """Views of a band: the positions of the kernel's entries (g, high, wide, c, out_columns, pool, n), and the
    bias (g, pool * out_columns, n). Column (p, a) of the band belongs to output column a * pool + p.
    """
    g, high, wide, c, n = plan.kernels
    line = band.shape[-1]  # entries in one row of the band: one pixel down
    step = plan.stride[1] * plan.images[4] * line  # from one output column to the next
    strides = (
        band.stride(0),
        plan.images[3] * c * line,
        c * line,
        line,
        plan.pool * step + n,
        step + plan.out_columns * n,
        1,
    )
    diagonal = band.as_strided((g, high, wide, c, plan.out_columns, plan.pool, n), strides)
    return diagonal, band[:, plan.patch].unflatten(-1, (-1, n))


def _to_images(cols: Tensor, plan: _Plan) -> Tensor:
    """The gradient of `_patches`: columns are added to the image rows they were copied from."""
    g, b, height, width, c = plan.images
    high = plan.kernels[1]
    stride = plan.stride[0]
    out = cols.new_zeros(g, b, height, width * c)
    cols = cols[..., : plan.patch].view(g, b, -1, high, width * c)
    for i in range(high):
        out[:, :, i : i + stride * cols.shape[2] : stride] += cols[:, :, :, i]
    return out.view(plan.images)


def _copy(into: Tensor, a: Tensor) -> None:
    """Copy `a`, four float32 numbers at a time where both are contiguous."""
    if _by_fours(into) and _by_fours(a):
        into = into.view(torch.complex128)
        a = a.view(torch.complex128)
    into.copy_(a)


def _by_fours(a: Tensor) -> bool:
    """Whether the memory of a tensor can be read as blocks of four float32 numbers."""
    whole = a.shape[-1] % 4 == a.storage_offset() % 4 == 0 and all(step % 4 == 0 for step in a.stride()[:-1])
    return a.dtype == torch.float32 and a.stride(-1) == 1 and whole
