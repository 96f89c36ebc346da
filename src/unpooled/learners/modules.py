"""Any torch module as a learner, k models for each of many clients. Nothing is sent.

On a GPU all models take their step at once: a plain convolutional network as batched products (`banded.py`), residual and
depthwise networks likewise (`batched.py`), any other module by `torch.func.vmap`. On a CPU they take it one after the
other, which is faster there: see `BACKENDS`.

What happens to BatchNorm is the choice of `norm`: "group" replaces it by GroupNorm (the default: no running statistics);
"average" makes its running statistics part of the parameters, so that they are averaged; "local" leaves its statistics,
scale and shift with each client. Batch statistics need batches without padding, so with the last two every model takes
its step alone, on a GPU too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.func import grad as gradient_of
from torch.nn import functional as F

from unpooled.errors import BadParameter
from unpooled.learners import banded, batched

# how models take a step; where "banded" cannot, "batched", and where that cannot either, "vmap"
BACKENDS = {"cpu": "one by one", "cuda": "banded"}
ROWS_AT_ONCE = {"cpu": 2048, "cuda": 16_384}  # rows per forward pass: bounds the memory of activations
BATCHED_MEMORY = 24 * 2**30  # bytes that a step of "batched" may take, about
NORMS = ("group", "average", "local")
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Modules:
    """k modules of one architecture, their parameters flat (..., k, p), BatchNorm's running statistics last."""

    needs_torch = True

    def __init__(self, make: Callable[[int, int], nn.Module], inputs: int, classes: int, norm: str = "group"):
        """Wrap modules made by `make(inputs, classes)`; batch norm becomes group norm unless told otherwise."""
        self.make, self.inputs, self.classes, self.norm = make, inputs, classes, norm
        self._templates = threading.local()  # functional_call swaps parameters in place: one template per thread
        template = self._template("cpu")
        self._probe(template)
        tracked = _tracked(template)
        self.layout = [(n, p.shape) for n, p in template.named_parameters()] + [(n, b.shape) for n, b in tracked]
        self.sizes = [shape.numel() for _, shape in self.layout]
        self.size = sum(self.sizes)
        self.trained = self.size - sum(b.numel() for _, b in tracked)
        self.has_running_stats = bool(tracked)
        self.local = self._local(template) if norm == "local" else ()
        self.layers = banded.plain(template, inputs)
        self.rows_at_once = self._rows_at_once(template)  # by "batched"; 0 if it cannot

    def start(self, rng: np.random.Generator, k: int) -> np.ndarray:
        """(k, p) as the modules' constructors draw them, with seeds drawn from `rng`."""
        flat = []
        with torch.random.fork_rng(devices=[]):
            for seed in rng.integers(2**31, size=k):
                torch.manual_seed(int(seed))
                module = self._built()
                values = dict(module.named_parameters()) | dict(_tracked(module))
                flat.append(torch.cat([values[name].detach().flatten() for name, _ in self.layout]))
        return torch.stack(flat).numpy()

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class scores (..., k, classes, n) of rows x (..., n, d) under theta (..., k, p) or (k, p)."""
        with torch.no_grad():
            if theta.ndim == 2:  # the k models are shared: all rows can be scored as one table
                scores = self._shared_scores(theta, x.flatten(0, -2))
                return scores.unflatten(-1, x.shape[:-1]).movedim((0, 1), (-3, -2))
            if self._backend(x) == "banded":
                return self._in_blocks(self._banded_scores, theta, x).mT
            if self._backend(x) == "batched":
                return self._in_blocks(self._batched_scores, theta, x).mT
            return torch.stack([self.logits(one, rows) for one, rows in zip(theta, x)])

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """The gradient (..., k, p) of sum_i s_ik CE_k(x_i, y_i); running statistics in theta are updated in place."""
        if theta.ndim == 2:
            return self.gradient(theta[None], x[None], y[None], s[None])[0]
        if self.has_running_stats:
            return self._tracking_gradient(theta, x, y, s)
        backend = self._backend(x)
        if backend == "banded":
            return self._in_blocks(self._banded_gradient, theta, x, y, s)
        if backend == "batched":
            return self._in_blocks(self._batched_gradient, theta, x, y, s)
        self._template(x.device)  # it cannot be made inside a torch.func transform
        if backend == "one by one":
            single: Any = gradient_of(self._loss)
            steps = [[single(t, *rows, s_k) for t, s_k in zip(ts, s_c.T)] for ts, *rows, s_c in zip(theta, x, y, s)]
            return torch.stack([torch.stack(per_client) for per_client in steps])
        over_models = vmap(gradient_of(self._loss), in_dims=(0, None, None, 1))
        return vmap(over_models)(theta, x, y, s)

    def _backend(self, x: Tensor) -> str:
        """How stacked networks are computed on the device of `x`."""
        backend = BACKENDS.get(x.device.type, "vmap")
        if backend == "banded" and not self.layers:
            backend = "batched"
        return "vmap" if backend == "batched" and not self.rows_at_once else backend

    # ---- all models at once ----

    def _banded_scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """(c, k, b, classes) of rows x (c, b, d) under theta (c, k, p)."""
        weights = [part.unflatten(-1, shape) for (_, shape), part in zip(self.layout, theta.split(self.sizes, -1))]
        return banded.scores(self.layers or [], weights, x)

    def _banded_gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """The gradient by banded products."""
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            scores = self._banded_scores(theta, x)
            codes = y[:, None].expand(scores.shape[:-1])
            losses = F.cross_entropy(scores.flatten(0, 2), codes.flatten(), reduction="none")
            return torch.autograd.grad(losses @ s.mT.flatten(), theta)[0]

    def _in_blocks(self, work: Callable[..., Tensor], theta: Tensor, x: Tensor, *rest: Tensor) -> Tensor:
        """`work` on a few clients at a time, which bounds the memory of activations."""
        rows = theta.shape[1] * x.shape[1]  # of a client
        if self._backend(x) == "batched":
            return batched.in_blocks(work, self.rows_at_once // rows, theta, x, *rest)
        few = max(1, ROWS_AT_ONCE.get(x.device.type, 2048) // rows)
        return torch.cat([work(*part) for part in zip(*(a.split(few) for a in (theta, x, *rest)))])

    # ---- all models at once, residual networks ----

    def _rows_at_once(self, template: nn.Module) -> int:
        """How many rows of grouped layers fit into memory; 0 where layers are not supported."""
        if self.has_running_stats or not batched.supported(template):
            return 0
        return max(1, BATCHED_MEMORY // batched.bytes_per_row(template, self.inputs))

    def _batched_scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """(c, k, b, classes) of rows x (c, b, d) under theta (c, k, p)."""
        c, k, _ = theta.shape
        flat = [part.reshape(c * k, *s) for (_, s), part in zip(self.layout, theta.split(self.sizes, -1))]
        rows = x[:, None].expand(c, k, *x.shape[1:]).reshape(c * k, *x.shape[1:]).to(_product_type(x))
        return batched.scores(self._template("cpu"), flat, rows).unflatten(0, (c, k))

    def _batched_gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """The gradient by grouped layers."""
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            scores = self._batched_scores(theta, x)
            codes = y[:, None].expand(scores.shape[:-1])
            losses = F.cross_entropy(scores.flatten(0, 2), codes.flatten(), reduction="none")
            return torch.autograd.grad(losses @ s.mT.flatten(), theta)[0]

    # ---- the same models for all rows ----

    def _shared_scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """(k, classes, n) of rows x (n, d) under theta (k, p)."""
        if self._backend(x) == "batched":
            return self._shared_batched_scores(theta, x)
        if self._backend(x) != "banded":
            return torch.stack([self._score(one, x) for one in theta])
        blocks = x.split(max(1, ROWS_AT_ONCE.get(x.device.type, 2048) // len(theta)))
        return torch.cat([self._banded_scores(theta[None], rows[None])[0] for rows in blocks], 1).mT

    def _shared_batched_scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """(k, classes, n), a block of rows at a time."""
        blocks = x.split(max(1, self.rows_at_once // len(theta)))
        return torch.cat([self._batched_scores(theta[None], rows[None])[0] for rows in blocks], 1).mT

    # ---- one model ----

    def _loss(self, flat: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """The weighted loss of one network."""
        scores = functional_call(self._template(x.device), self._named(flat), (x,))
        return (F.cross_entropy(scores, y, reduction="none") * s).sum()

    def _score(self, flat: Tensor, x: Tensor) -> Tensor:
        """(classes, n), one block of rows at a time; BatchNorm uses its running statistics."""
        template = self._template(x.device).eval()
        named = self._named(flat)
        blocks = [functional_call(template, named, (rows,)) for rows in x.split(ROWS_AT_ONCE.get(x.device.type, 2048))]
        return torch.cat(blocks).T

    def _tracking_gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """One model after the other, on batches without padding (rows of weight 0 for all models)."""
        out = torch.zeros_like(theta)
        for c, k in np.ndindex(*theta.shape[:2]):
            real = s[c].sum(-1) > 0
            if real.sum() < 2:  # one row has no batch statistics
                continue
            self._template(x.device).train()
            flat = theta[c, k].clone()
            loss, weights = self._loss_of(flat, x[c, real], y[c, real], s[c, real, k])
            out[c, k, : self.trained] = torch.autograd.grad(loss, weights)[0]
            theta[c, k, self.trained :] = flat[self.trained :]
        return out

    def _loss_of(self, flat: Tensor, x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted loss and the weights that it is differentiated by."""
        weights = flat[: self.trained].detach().requires_grad_()
        parts = [
            *weights.split(self.sizes[: self._n_weights]),
            *flat[self.trained :].split(self.sizes[self._n_weights :]),
        ]
        named = {name: part.view(shape) for (name, shape), part in zip(self.layout, parts)}
        scores = functional_call(self._template(x.device), named, (x,))
        return (F.cross_entropy(scores, y, reduction="none") * s).sum(), weights

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        """Flat parameters as the module's own, by name."""
        return {name: part.view(shape) for (name, shape), part in zip(self.layout, flat.split(self.sizes))}

    # ---- the template ----

    @property
    def _n_weights(self) -> int:
        """How many of the parameters are trained."""
        return int(np.searchsorted(np.cumsum(self.sizes), self.trained)) + 1

    def _template(self, device: Any) -> nn.Module:
        """The module of this thread and device, built once."""
        key = str(device)
        kept = self._templates.__dict__
        if key not in kept:
            kept[key] = self._built().to(device)
        return kept[key]

    def _built(self) -> nn.Module:
        """A new module, with group norm where asked; dropout is refused."""
        module = self.make(self.inputs, self.classes)
        if self.norm == "group":
            module = _with_group_norm(module)
        drops = [m for m in module.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        if drops:
            raise BadParameter("the learner has dropout, whose random draws would differ between engines: remove it")
        return module

    def _probe(self, module: nn.Module) -> None:
        """Refuse a module whose output does not fit, before any round is spent."""
        try:
            with torch.no_grad():
                shape = tuple(module.eval()(torch.zeros(2, self.inputs)).shape)
        except RuntimeError as error:
            raise BadParameter(f"the learner cannot take rows of {self.inputs} numbers: {error}") from error
        if shape != (2, self.classes):
            raise BadParameter(f"the learner gives {shape[1:]} outputs per row, but there are {self.classes} classes")

    def _local(self, module: nn.Module) -> tuple[int, ...]:
        """Indices in the flat parameters of everything that belongs to BatchNorm."""
        owners = {name for name, m in module.named_modules() if isinstance(m, _BATCH_NORM)}
        ends = np.cumsum(self.sizes)
        own = [
            np.arange(e - n, e)
            for (name, _), e, n in zip(self.layout, ends, self.sizes)
            if name.rpartition(".")[0] in owners
        ]
        return tuple(np.concatenate(own).tolist()) if own else ()


def _product_type(x: Tensor) -> torch.dtype:
    """The type of products: bfloat16 on a GPU where torch was told that medium precision will do."""
    medium = x.device.type == "cuda" and torch.get_float32_matmul_precision() == "medium"
    return torch.bfloat16 if medium else x.dtype


def _tracked(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Running means and variances of batch norm."""
    return [(n, b) for n, b in module.named_buffers() if n.endswith(("running_mean", "running_var"))]


def _with_group_norm(module: nn.Module) -> nn.Module:
    """The module with GroupNorm (groups of channels, at most 8) in place of every BatchNorm."""
    if isinstance(module, _BATCH_NORM):
        return nn.GroupNorm(gcd(8, module.num_features), module.num_features)
    for name, child in module.named_children():
        setattr(module, name, _with_group_norm(child))
    return module
