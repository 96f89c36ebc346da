"""Any torch module as a learner, k of them for each of many clients. Nothing is sent.

On a GPU all models take their step at once: a plain convolutional network as batched products (`banded.py`), any other
module by `torch.func.vmap`; on a CPU one after the other, which measures faster there: see `WAYS`. BatchNorm, by
`norm`: "group" puts GroupNorm in its place (the default: nothing to track); "average" makes its running statistics
part of the parameters, so that they are averaged; "local" leaves its statistics, scale and shift with each client.
Batch statistics need true batches without padding, so with the last two every model takes its step alone, on a GPU
too.
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
from unpooled.learners import banded

WAYS = {
    "cpu": "one by one",
    "cuda": "banded",
}  # how models take a step; "vmap" anywhere else, and where nothing else fits
ROWS_AT_ONCE = {"cpu": 2048, "cuda": 16_384}  # rows a model scores in one pass: bounds the memory of its activations
NORMS = ("group", "average", "local")
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Modules:
    """k modules of one make, their parameters flat (..., k, p); those of BatchNorm's running statistics come last."""

    needs_torch = True

    def __init__(self, make: Callable[[int, int], nn.Module], inputs: int, classes: int, norm: str = "group"):
        self.make, self.inputs, self.classes, self.norm = make, inputs, classes, norm
        self._templates = threading.local()  # functional_call swaps parameters in place: a template for each thread
        template = self._template("cpu")
        self._probe(template)
        tracked = _tracked(template)
        self.layout = [(n, p.shape) for n, p in template.named_parameters()] + [(n, b.shape) for n, b in tracked]
        self.sizes = [shape.numel() for _, shape in self.layout]
        self.size = sum(self.sizes)
        self.trained = self.size - sum(b.numel() for _, b in tracked)
        self.tracks = bool(tracked)
        self.stays = self._stays(template) if norm == "local" else ()
        self.layers = banded.plain(template, inputs)

    def start(self, rng: np.random.Generator, k: int) -> np.ndarray:
        """(k, p) as the modules' own constructors draw them, from seeds that `rng` gives."""
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
            if theta.ndim == 2:  # all clients have the same k models: their rows are one long table
                scores = self._shared_scores(theta, x.flatten(0, -2))
                return scores.unflatten(-1, x.shape[:-1]).movedim((0, 1), (-3, -2))
            if self._way(x) == "banded":
                return self._in_portions(self._banded_scores, theta, x).mT
            return torch.stack([self.logits(one, rows) for one, rows in zip(theta, x)])

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """The gradient (..., k, p) of sum_i s_ik CE_k(x_i, y_i); running statistics inside theta move on in place."""
        if theta.ndim == 2:
            return self.gradient(theta[None], x[None], y[None], s[None])[0]
        if self.tracks:
            return self._tracking_gradient(theta, x, y, s)
        way = self._way(x)
        if way == "banded":
            return self._in_portions(self._banded_gradient, theta, x, y, s)
        self._template(x.device)  # inside a transform none can be made
        if way == "one by one":
            alone: Any = gradient_of(self._loss)
            steps = [[alone(t, *rows, s_k) for t, s_k in zip(ts, s_c.T)] for ts, *rows, s_c in zip(theta, x, y, s)]
            return torch.stack([torch.stack(per_client) for per_client in steps])
        over_models = vmap(gradient_of(self._loss), in_dims=(0, None, None, 1))
        return vmap(over_models)(theta, x, y, s)

    def _way(self, x: Tensor) -> str:
        way = WAYS.get(x.device.type, "vmap")
        return "vmap" if way == "banded" and not self.layers else way

    # ---- all models at once ----

    def _banded_scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """(c, k, b, classes) of rows x (c, b, d) under theta (c, k, p)."""
        weights = [part.unflatten(-1, shape) for (_, shape), part in zip(self.layout, theta.split(self.sizes, -1))]
        return banded.scores(self.layers or [], weights, x)

    def _banded_gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            scores = self._banded_scores(theta, x)
            codes = y[:, None].expand(scores.shape[:-1])
            losses = F.cross_entropy(scores.flatten(0, 2), codes.flatten(), reduction="none")
            return torch.autograd.grad(losses @ s.mT.flatten(), theta)[0]

    @staticmethod
    def _in_portions(work: Callable[..., Tensor], theta: Tensor, x: Tensor, *rest: Tensor) -> Tensor:
        """`work` for a few clients at a time, which bounds the memory of activations."""
        few = max(1, ROWS_AT_ONCE.get(x.device.type, 2048) // (theta.shape[1] * x.shape[1]))
        return torch.cat([work(*part) for part in zip(*(a.split(few) for a in (theta, x, *rest)))])

    # ---- the same models for all rows ----

    def _shared_scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """(k, classes, n) of rows x (n, d) under theta (k, p)."""
        if self._way(x) != "banded":
            return torch.stack([self._score(one, x) for one in theta])
        blocks = x.split(max(1, ROWS_AT_ONCE.get(x.device.type, 2048) // len(theta)))
        return torch.cat([self._banded_scores(theta[None], rows[None])[0] for rows in blocks], 1).mT

    # ---- one model ----

    def _loss(self, flat: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        scores = functional_call(self._template(x.device), self._named(flat), (x,))
        return (F.cross_entropy(scores, y, reduction="none") * s).sum()

    def _score(self, flat: Tensor, x: Tensor) -> Tensor:
        """(classes, n), a block of rows at a time; BatchNorm uses what it has tracked."""
        template = self._template(x.device).eval()
        named = self._named(flat)
        blocks = [functional_call(template, named, (rows,)) for rows in x.split(ROWS_AT_ONCE.get(x.device.type, 2048))]
        return torch.cat(blocks).T

    def _tracking_gradient(self, theta: Tensor, x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """Model by model over true batches: rows that no model answers for are padding and are left out."""
        out = torch.zeros_like(theta)
        for c, k in np.ndindex(*theta.shape[:2]):
            real = s[c].sum(-1) > 0
            if real.sum() < 2:  # no batch statistics from one row
                continue
            self._template(x.device).train()
            flat = theta[c, k].clone()
            loss, weights = self._loss_of(flat, x[c, real], y[c, real], s[c, real, k])
            out[c, k, : self.trained] = torch.autograd.grad(loss, weights)[0]
            theta[c, k, self.trained :] = flat[self.trained :]
        return out

    def _loss_of(self, flat: Tensor, x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        weights = flat[: self.trained].detach().requires_grad_()
        parts = [
            *weights.split(self.sizes[: self._n_weights]),
            *flat[self.trained :].split(self.sizes[self._n_weights :]),
        ]
        named = {name: part.view(shape) for (name, shape), part in zip(self.layout, parts)}
        scores = functional_call(self._template(x.device), named, (x,))
        return (F.cross_entropy(scores, y, reduction="none") * s).sum(), weights

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        return {name: part.view(shape) for (name, shape), part in zip(self.layout, flat.split(self.sizes))}

    # ---- the template ----

    @property
    def _n_weights(self) -> int:
        return int(np.searchsorted(np.cumsum(self.sizes), self.trained)) + 1

    def _template(self, device: Any) -> nn.Module:
        key = str(device)
        kept = self._templates.__dict__
        if key not in kept:
            kept[key] = self._built().to(device)
        return kept[key]

    def _built(self) -> nn.Module:
        module = self.make(self.inputs, self.classes)
        if self.norm == "group":
            module = _with_group_norm(module)
        drops = [m for m in module.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        if drops:
            raise BadParameter("the learner has dropout, whose draws would differ from engine to engine: leave it out")
        return module

    def _probe(self, module: nn.Module) -> None:
        """Refuse a module whose output does not fit, before any round is spent."""
        try:
            with torch.no_grad():
                found = tuple(module.eval()(torch.zeros(2, self.inputs)).shape)
        except RuntimeError as error:
            raise BadParameter(f"the learner cannot take rows of {self.inputs} numbers: {error}") from error
        if found != (2, self.classes):
            raise BadParameter(f"the learner gives {found[1:]} outputs a row, but there are {self.classes} classes")

    def _stays(self, module: nn.Module) -> tuple[int, ...]:
        """The places in the flat parameters of all that belongs to BatchNorm."""
        owners = {name for name, m in module.named_modules() if isinstance(m, _BATCH_NORM)}
        ends = np.cumsum(self.sizes)
        own = [
            np.arange(e - n, e)
            for (name, _), e, n in zip(self.layout, ends, self.sizes)
            if name.rpartition(".")[0] in owners
        ]
        return tuple(np.concatenate(own).tolist()) if own else ()


def _tracked(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [(n, b) for n, b in module.named_buffers() if n.endswith(("running_mean", "running_var"))]


def _with_group_norm(module: nn.Module) -> nn.Module:
    """The module with GroupNorm (groups of channels, at most 8) in the place of every BatchNorm."""
    if isinstance(module, _BATCH_NORM):
        return nn.GroupNorm(gcd(8, module.num_features), module.num_features)
    for name, child in module.named_children():
        setattr(module, name, _with_group_norm(child))
    return module
