"""How the printed algorithm and its peers learn, for many splits at once: a round takes leaves (s, c or 1, *leaf) to leaves.

Methods that share how kernels are learned share one training: `average` and its two last layers, `local`, `distill`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from _stack import Leaves, Predict, Stack, Tensor, experts, last_layer, network, sparse

from unpooled.baselines.fedloc import FedLoc, first_leaves
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression
from unpooled.maths import fitc
from unpooled.maths.descent import adam
from unpooled.maths.feature_maps import Kernel, features, start
from unpooled.maths.torch_training import steps
from unpooled.models.fedbnr.distillation import distil_steps
from unpooled.models.fedbnr.estimator import FIRST_NOISE, FIRST_PRIOR, FedBNR

EPOCHS = 20
WIDTH, LATENT = 200, 8
DISTILL_STEPS = EPOCHS

Advance = Callable[[Stack, Tensor, Leaves, Leaves], Leaves]  # (rows, which of the stack, leaves, draws) -> leaves


class Training(NamedTuple):
    """How leaves change in a round, and the methods that are judged on the way."""

    leaves: Leaves  # (s, c or 1, *leaf) before the first round
    omega: Leaves  # (s, 1, *leaf)
    advance: Advance
    methods: dict[str, Predict]


def kernels(spec: dict, d: int, seeds: list[int], device: str, head: Any = None) -> tuple[Leaves, Leaves]:
    """What the library's estimators start from with these random states: leaves and draws (s, 1, *leaf)."""
    made = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rng.integers(2**31)  # the draw that chooses held-out rows
        kernel = start(spec, d, rng)
        more = (
            {"log_noise": np.asarray(FIRST_NOISE), "log_prior": np.asarray(FIRST_PRIOR)}
            if head is None
            else head(1, rng)
        )
        made.append((kernel.theta | more, kernel.omega))
    join = lambda j: {k: torch.as_tensor(np.stack([m[j][k] for m in made]), device=device)[:, None] for k in made[0][j]}  # noqa: E731
    return join(0), join(1)


def spread_out(leaves: Leaves, rows: Stack) -> Leaves:
    """The same leaves at every client."""
    c = rows.w.shape[1]
    return {k: v.expand(v.shape[0], c, *v.shape[2:]) for k, v in leaves.items()}


def trained(spec: dict, rows: Stack, leaves: Leaves, omega: Leaves, loss: str, rate: Tensor, **how: Any) -> Leaves:
    """Every client's leaves after its local steps."""
    states = {k: adam(v) for k, v in spread_out(leaves, rows).items()}
    how = {"loss": loss, "epochs": EPOCHS, "rate": rate, **how}
    return {k: s.at for k, s in steps(spec, states, omega, (rows.x, rows.y, rows.w), **how).items()}


def averaging(rows: Stack, rates: Tensor, seeds: list[int], options: dict) -> Training:
    """FedBNR as printed: the plain mean of kernels; its ablation has a last layer of each client's own rows."""
    spec = printed_spec()
    leaves, omega = kernels(spec, rows.x.shape[-1], seeds, str(rows.x.device))

    def advance(rows: Stack, which: Tensor, leaves: Leaves, omega: Leaves) -> Leaves:
        each = trained(spec, rows, leaves, omega, "evidence", rates[which])
        return {k: v.mean(1, keepdim=True) for k, v in each.items()}

    methods = {"FedBNR as printed": last_layer(spec, True), "avg+local": last_layer(spec, False)}
    return Training(leaves, omega, advance, methods)


def alone(rows: Stack, rates: Tensor, seeds: list[int], options: dict) -> Training:
    """A kernel of each client, from the same start; Adam goes on from round to round."""
    spec = printed_spec()
    leaves, omega = kernels(spec, rows.x.shape[-1], seeds, str(rows.x.device))
    leaves = {k: v.clone() for k, v in spread_out(leaves, rows).items()}
    kept = {k: [0 * v, 0 * v] for k, v in leaves.items()}
    taken = [0]

    def advance(rows: Stack, which: Tensor, leaves: Leaves, omega: Leaves) -> Leaves:
        states = {
            k: adam(v)._replace(first=kept[k][0][which], second=kept[k][1][which], taken=taken[0])
            for k, v in leaves.items()
        }
        how = {"loss": "evidence", "epochs": EPOCHS, "rate": rates[which]}
        states = steps(spec, states, omega, (rows.x, rows.y, rows.w), **how)
        for k, state in states.items():
            kept[k] = [old.index_copy(0, which, new) for old, new in zip(kept[k], (state.first, state.second))]
        taken[0] += EPOCHS
        return {k: s.at for k, s in states.items()}

    methods = {"local+local": last_layer(spec, False), "local+global": last_layer(spec, True)}
    return Training(leaves, omega, advance, methods)


def distilling(rows: Stack, rates: Tensor, seeds: list[int], options: dict) -> Training:
    """FedBNR-KD as printed: the server's kernel is fitted to its rows and to the mean of the clients' Gram matrices on them."""
    spec = printed_spec()
    leaves, omega = kernels(spec, rows.x.shape[-1], seeds, str(rows.x.device))

    def advance(rows: Stack, which: Tensor, leaves: Leaves, omega: Leaves) -> Leaves:
        each = trained(spec, rows, leaves, omega, "evidence", rates[which])
        target = torch.stack([mean_gram(spec, each, omega, rows, i) for i in range(len(which))])
        states = {k: adam(v[:, 0]) for k, v in leaves.items()}
        fixed = {k: v[:, 0] for k, v in omega.items()}
        how = {"weight": options["alpha"], "steps": DISTILL_STEPS, "rate": rates[which][:, 0]}
        states = distil_steps(spec, states, fixed, (rows.x_server, rows.y_server, target), **how)
        return {k: s.at[:, None] for k, s in states.items()}

    methods = {"FedBNR-KD as printed": last_layer(spec, True), "kd+local": last_layer(spec, False)}
    return Training(leaves, omega, advance, methods)


def mean_gram(spec: dict, each: Leaves, omega: Leaves, rows: Stack, i: int) -> Tensor:  # (r, r)
    theta = {k: v[i] for k, v in each.items() if k not in ("log_noise", "log_prior")}
    z = features(spec, Kernel(theta, {k: v[i] for k, v in omega.items()}), rows.x_server[i][None])  # (c, r, k)
    flat = z.movedim(0, 1).flatten(1)
    return flat @ flat.mT / len(z)


def networks(name: str, loss: str, model: Any) -> Callable[..., Training]:
    """FedAvg, FedProx and pFedGP: the mean of networks, weighted by rows."""

    def make(rows: Stack, rates: Tensor, seeds: list[int], options: dict) -> Training:
        spec = model._spec()
        leaves, omega = kernels(spec, rows.x.shape[-1], seeds, str(rows.x.device), model._head)
        proximal = options["mu"] if name == "FedProx" else 0.0

        def advance(rows: Stack, which: Tensor, leaves: Leaves, omega: Leaves) -> Leaves:
            each = trained(spec, rows, leaves, omega, loss, rates[which], proximal=proximal)
            share = rows.w.sum(-1) / rows.w.sum((-1, -2))[:, None]  # (s, c)
            return {
                k: (v * share.reshape(share.shape + (1,) * (v.ndim - 2))).sum(1, keepdim=True) for k, v in each.items()
            }

        return Training(leaves, omega, advance, {name: sparse(spec) if loss == "fitc" else network(spec)})

    return make


def consensus(rows: Stack, rhos: Tensor, seeds: list[int], options: dict) -> Training:
    """FedLoc: hyper-parameters by proximal ADMM; duals stay at the clients."""
    first = first_leaves(rows.x.shape[-1])
    leaves = {
        k: torch.as_tensor(v, device=rows.x.device).expand(len(rhos), 1, *v.shape).clone() for k, v in first.items()
    }
    duals = {k: torch.zeros_like(v) for k, v in spread_out(leaves, rows).items()}
    points = inducing_rows(rows, FedLoc().n_inducing)

    def advance(rows: Stack, which: Tensor, leaves: Leaves, omega: Leaves) -> Leaves:
        at = {k: v.clone().requires_grad_() for k, v in spread_out(leaves, rows).items()}
        scale = torch.exp(-at["log_scale"])[..., None, :]
        known = fitc.fit(rows.x * scale, rows.y, rows.w, points[which] * scale, at["log_signal"], at["log_noise"])
        slopes = dict(zip(at, torch.autograd.grad(-known.evidence.sum(), list(at.values()))))
        found = {}
        for k, slope in slopes.items():
            rho = rhos[which].reshape(-1, *(1,) * (slope.ndim - 1))
            # the thesis's L is 10 rho
            move = -(torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0) + duals[k][which]) / (11 * rho)
            dual = duals[k][which] + rho * move
            duals[k] = duals[k].index_copy(0, which, dual)
            found[k] = (at[k].detach() + move + dual / rho).mean(1, keepdim=True)
        return found

    return Training(leaves, {}, advance, {"FedLoc": experts(points)})


def inducing_rows(rows: Stack, count: int) -> Tensor:  # (s, c, m, d)
    """Evenly spaced rows of every client, as many as the smallest one has."""
    n = rows.w.sum(-1).long()  # (s, c)
    m = min(count, int(n.min()))
    at = (torch.linspace(0, 1, m, dtype=torch.float64, device=n.device) * (n[..., None] - 1)).long()
    return rows.x.gather(2, at[..., None].expand(*at.shape, rows.x.shape[-1]))


def published(**options: Any) -> dict[str, Any]:
    """The thesis's kernel: a network of two hidden layers, and 50 draws shifted by a small network."""
    return {"features": "deep", "n_frequencies": 50, "frequencies": "shifted", "activation": "relu", "latent_dim": LATENT,
            "hidden": (WIDTH, WIDTH), "inputs": "standard", **options}  # fmt: skip


def printed_spec() -> dict:
    return FedBNR("average", **published())._spec()


TRAININGS: dict[str, Callable[..., Training]] = {
    "FedAvg": networks("FedAvg", "squared", FedAvgRegression((WIDTH,), latent_dim=WIDTH)),
    "FedProx": networks("FedProx", "squared", FedAvgRegression((WIDTH,), latent_dim=WIDTH)),
    "FedLoc": consensus,
    "average": averaging,
    "pFedGP": networks("pFedGP", "fitc", PFedGP((WIDTH, WIDTH), latent_dim=LATENT)),
    "distill": distilling,
    "local": alone,
}
# of each training
METHODS = {
    "average": ("FedBNR as printed", "avg+local"),
    "distill": ("FedBNR-KD as printed", "kd+local"),
    "local": ("local+local", "local+global"),
    **{name: (name,) for name in ("FedAvg", "FedProx", "pFedGP", "FedLoc")},
}
