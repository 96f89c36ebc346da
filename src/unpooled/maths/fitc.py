"""Sparse Gaussian processes by FITC, in torch: cost n m^2 for n rows and m inducing points. Sends nothing.

Leading `...` axes are clients. With the rows themselves as inducing points it is the exact Gaussian process.

References
----------
Snelson, Ghahramani, Sparse Gaussian processes using pseudo-inputs, NeurIPS 2005.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from unpooled.tree import message

Tensor = torch.Tensor
JITTER = 1e-8  # times the signal variance, added to the diagonal of the inducing points' kernel matrix


@message("maths.fitc.Fit")
class Fit(NamedTuple):
    """A fitted sparse Gaussian process: what predictions need."""

    inner: Tensor  # (..., m, m) Cholesky factor of I + V D^-1 V', with D the variance of y given the inducing points
    pull: Tensor  # (..., m, 1) inner^-1 V D^-1 y, which gives the mean
    evidence: Tensor  # (...,) log p(y); NaN where the Cholesky factorisation failed


def rbf(x: Tensor, other: Tensor, log_signal: Tensor) -> Tensor:
    """The Gaussian kernel exp(log_signal - |x - x'|^2 / 2), (..., n, n'), of rows that are already scaled."""
    norms = (x * x).sum(-1)[..., :, None]
    other_norms = (other * other).sum(-1)[..., None, :]
    squares = norms + other_norms - 2 * x @ other.mT
    return torch.exp(log_signal[..., None, None] - 0.5 * squares.clamp(min=0.0))


def fit(x: Tensor, y: Tensor, w: Tensor, inducing: Tensor, log_signal: Tensor, log_noise: Tensor) -> Fit:
    """Fit to rows x (..., n, p), y (..., n, 1) with inducing points (..., m, p).

    The weights w (..., n) are 1 for a row and 0 for padding.
    """
    root, singular = _root(inducing, log_signal)
    v = torch.linalg.solve_triangular(root, rbf(inducing, x, log_signal), upper=False)  # (..., m, n)
    residual = (torch.exp(log_signal)[..., None] - (v * v).sum(-2)).clamp(min=0.0)
    variance = residual + torch.exp(log_noise)[..., None]  # (..., n) of y given the inducing points
    share = (w / variance)[..., None, :]
    inner, failed = torch.linalg.cholesky_ex(_eye(v) + (v * share) @ v.mT)
    pull = torch.linalg.solve_triangular(inner, (v * share) @ y, upper=False)
    log_det = (w * variance.log()).sum(-1) + 2 * torch.diagonal(inner, dim1=-2, dim2=-1).log().sum(-1)
    squares = (share @ (y * y))[..., 0, 0] - (pull * pull).sum((-1, -2))
    evidence = -0.5 * (w.sum(-1) * math.log(2 * math.pi) + log_det + squares)
    return Fit(inner, pull, torch.where((failed == 0) & (singular == 0), evidence, torch.nan))


def _root(inducing: Tensor, log_signal: Tensor) -> tuple[Tensor, Tensor]:
    """The Cholesky factor (..., m, m) of the inducing points' kernel, and whether it failed (...,)."""
    ridge = JITTER * torch.exp(log_signal)[..., None, None] * _eye(inducing)
    return torch.linalg.cholesky_ex(rbf(inducing, inducing, log_signal) + ridge)


def _eye(like: Tensor) -> Tensor:
    """The identity (m, m), m the last but one dimension of `like`."""
    return torch.eye(like.shape[-2], dtype=like.dtype, device=like.device)


def predict(known: Fit, x: Tensor, inducing: Tensor, log_signal: Tensor, log_noise: Tensor) -> tuple[Tensor, Tensor]:
    """(mean, variance with noise) at rows x (..., n, p): (..., n) each."""
    root, _ = _root(inducing, log_signal)
    v = torch.linalg.solve_triangular(root, rbf(inducing, x, log_signal), upper=False)
    u = torch.linalg.solve_triangular(known.inner, v, upper=False)
    mean = (u.mT @ known.pull)[..., 0]
    variance = torch.exp(log_signal)[..., None] - (v * v).sum(-2) + (u * u).sum(-2)
    return mean, variance.clamp(min=0.0) + torch.exp(log_noise)[..., None]
