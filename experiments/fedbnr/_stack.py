"""Many splits of one column on one leading axis, so that one tensor operation serves them all; and what models say of new rows.

A row of the leading axis is a split with a setting (a learning rate, say): s of them. The next axis is the clients: c, or 1 where a
model is everybody's. Everything is standardised by the mean and standard deviation of the rows to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import _protocol as protocol
import numpy as np
import torch

from unpooled.maths import fitc
from unpooled.maths.feature_maps import Kernel, features

Tensor = torch.Tensor
Leaves = dict[str, Tensor]
SERVER_SHARE = 0.8  # of the validation rows are distilled on, where the server distils
AT_ONCE = 20  # clients' kernels applied to all rows at a time: bounds memory


class Stack(NamedTuple):
    x: Tensor  # (s, c, n, d) rows to fit
    y: Tensor  # (s, c, n, 1)
    w: Tensor  # (s, c, n): 0 is padding
    x_val: Tensor  # (s, v, d) rows that choose the round and the setting
    y_val: Tensor  # (s, v, 1)
    x_test: Tensor
    y_test: Tensor
    x_server: Tensor  # (s, r, d) rows to distil on
    y_server: Tensor
    unit: Tensor  # (s,) the standard deviation of y


Predict = Callable[[Stack, int, Leaves, Leaves, Tensor, bool], tuple[Tensor, Tensor | None]]


def stack(splits: list[protocol.Split], settings: int, device: str, distil: bool = False) -> Stack:
    """Every split `settings` times in a row."""
    made = [one(split, distil) for split in splits for _ in range(settings)]
    width = max(m["w"].shape[1] for m in made)
    wide = [{k: padded(v, width) if k in "xyw" else v for k, v in m.items()} for m in made]
    return Stack(**{k: torch.as_tensor(np.stack([m[k] for m in wide]), device=device) for k in Stack._fields})


def one(split: protocol.Split, distil: bool) -> dict[str, np.ndarray]:
    """One split, standardised, its clients padded to one width."""
    fit = ~split.held
    mean, scale, offset, unit = split.x[fit].mean(0), split.x[fit].std(0), split.y[fit].mean(), split.y[fit].std()
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
    rows = lambda x, y: ((x - mean) / scale, ((y - offset) / unit)[:, None])  # noqa: E731
    clients = [rows(x, y) for x, y in split.clients(fit).values()]
    width = max(len(y) for _, y in clients)
    x, y = (np.stack([padded(c[i][None], width)[0] for c in clients]) for i in (0, 1))
    w = np.stack([(np.arange(width) < len(c[1])).astype(float) for c in clients])
    (x_val, y_val), (x_test, y_test) = rows(split.x[split.held], split.y[split.held]), rows(split.x_test, split.y_test)
    cut = int(SERVER_SHARE * len(y_val)) if distil else 0
    return {"x": x, "y": y, "w": w, "x_val": x_val[cut:], "y_val": y_val[cut:], "x_test": x_test, "y_test": y_test,
            "x_server": x_val[:cut], "y_server": y_val[:cut], "unit": np.asarray(unit)}  # fmt: skip


def padded(a: np.ndarray, width: int) -> np.ndarray:
    """Clients (c, n, ...) with rows of 0 up to the width."""
    return np.pad(a, [(0, 0), (0, width - a.shape[1])] + [(0, 0)] * (a.ndim - 2))


def some(value: NamedTuple | dict, index: Tensor) -> NamedTuple | dict:
    """The chosen rows of the leading axis."""
    if isinstance(value, dict):
        return {k: v[index] for k, v in value.items()}
    return type(value)(*(v[index] for v in value))


# ---- what the models of row i of the stack say of new rows: (mean, variance) (c or 1, q), or (s, c or 1, q) ----


def last_layer(spec: dict, everybody: bool) -> Predict:
    """Bayesian regression on the features of a kernel, or of each client's: from all rows, or from each client's own."""

    def predict(stack: Stack, i: int, leaves: Leaves, omega: Leaves, new: Tensor, doubt: bool):
        own = {k: v[i] for k, v in leaves.items()}
        fixed = {k: v[i] for k, v in omega.items()}
        rows = (stack.x[i], stack.y[i], stack.w[i])
        if everybody:
            rows = tuple(a.flatten(0, 1)[None] for a in rows)
        step = AT_ONCE if everybody else len(own["log_noise"])
        parts = [
            regression(spec, {k: v[j : j + step] for k, v in own.items()}, fixed, rows, new[None], doubt)
            for j in range(0, len(own["log_noise"]), step)
        ]
        means, variances = zip(*parts)
        return torch.cat(means), torch.cat(variances) if doubt else None

    return predict


def regression(spec: dict, leaves: Leaves, fixed: Leaves, rows: tuple[Tensor, ...], new: Tensor, doubt: bool):
    """At the noise and prior that were learned: (mean, variance) (c, q)."""
    layers = {k: v for k, v in leaves.items() if k not in ("log_noise", "log_prior")}
    noise, prior = leaves["log_noise"].exp()[:, None, None], leaves["log_prior"].exp()[:, None, None]
    x, y, w = rows
    root = w.sqrt()[..., None]
    rz, z_new = features(spec, Kernel(layers, fixed), x) * root, features(spec, Kernel(layers, fixed), new)
    ratio = prior / noise
    eye = torch.eye(rz.shape[-1], dtype=rz.dtype, device=rz.device)
    factor, _ = torch.linalg.cholesky_ex(eye + ratio * (rz.mT @ rz))
    mean = (z_new @ (ratio * torch.cholesky_solve(rz.mT @ (y * root), factor)))[..., 0]
    if not doubt:
        return mean, None
    z_new = z_new.expand(len(factor), *z_new.shape[1:])
    spread = torch.linalg.solve_triangular(factor, z_new.mT, upper=False)
    return mean, noise[..., 0] + prior[..., 0] * (spread * spread).sum(-2)


def network(spec: dict) -> Predict:
    """A network's outputs; it has no doubts."""

    def predict(stack: Stack, i: int, leaves: Leaves, omega: Leaves, new: Tensor, doubt: bool):
        own = {k: v[i] for k, v in leaves.items()}
        head, offset = own.pop("head"), own.pop("offset")
        return (features(spec, Kernel(own, {}), new[None]) @ head + offset[:, None])[..., 0], None

    return predict


def sparse(spec: dict) -> Predict:
    """A sparse process of each client under a shared kernel and shared inducing points."""

    def predict(stack: Stack, i: int, leaves: Leaves, omega: Leaves, new: Tensor, doubt: bool):
        own = {k: v[i] for k, v in leaves.items()}
        shape = own.pop("inducing"), own.pop("log_signal"), own.pop("log_noise")
        known = fitc.fit(features(spec, Kernel(own, {}), stack.x[i]), stack.y[i], stack.w[i], *shape)
        return fitc.predict(known, features(spec, Kernel(own, {}), new[None]), *shape)

    return predict


def experts(points: Tensor) -> Predict:
    """The clients' sparse processes on inducing rows `points` (s, c, m, d), combined as a generalised product."""

    def predict(stack: Stack, i: int, leaves: Leaves, omega: Leaves, new: Tensor, doubt: bool):
        scale, signal, noise = (-leaves["log_scale"][i]).exp()[:, None], leaves["log_signal"][i], leaves["log_noise"][i]
        where = points[i] * scale
        known = fitc.fit(stack.x[i] * scale, stack.y[i], stack.w[i], where, signal, noise)
        mean, variance = fitc.predict(known, new * scale, where, signal, noise)
        precision = 1 / (variance - noise.exp()[:, None]).clamp(min=1e-12)  # (c, q)
        total = precision.mean(0, keepdim=True)
        return (precision * mean).mean(0, keepdim=True) / total, 1 / total + noise.exp()[:, None]

    return predict
