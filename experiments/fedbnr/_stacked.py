"""The printed algorithm and its peers for all splits of a column at once: what hours of runs one by one become on a GPU.

The thesis's protocol: 8:1:1, validation rows choose the round and, for every split, the learning rate (of three); at most 100 rounds,
five without gain end a run. Methods that share how kernels are learned share one training (`average` and its two last layers, `local`,
`distill`). Every split's finished result is a line of a file, as in `_runs.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import _protocol as protocol
import _runs as runs
import numpy as np
import torch
from _stack import Leaves, Predict, Stack, Tensor, experts, last_layer, network, some, sparse, stack

from unpooled.baselines.fedloc import FedLoc, first_leaves
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression
from unpooled.maths import bayes_linear, calibration, fitc
from unpooled.maths.descent import adam
from unpooled.maths.feature_maps import Kernel, features, start
from unpooled.maths.torch_training import finite, steps
from unpooled.metrics import regression as metrics
from unpooled.models.distill import distil_steps
from unpooled.models.fedbnr import FIRST_NOISE, FIRST_PRIOR, FedBNR

RATES = (0.001, 0.003, 0.01)
RHOS = (10.0, 100.0, 1000.0)  # and the thesis's
EPOCHS, ROUNDS, PATIENCE = 20, 100, 5
WIDTH, LATENT = 200, 8
DISTILL_STEPS = 50

Advance = Callable[[Stack, Tensor, Leaves, Leaves], Leaves]  # (rows, which of the stack, leaves, draws) -> leaves


class Training(NamedTuple):
    """How leaves change in a round, and the methods that are judged on the way."""

    leaves: Leaves  # (s, c or 1, *leaf) before the first round
    omega: Leaves  # (s, 1, *leaf)
    advance: Advance
    methods: dict[str, Predict]


class Watch:
    """The best round of each row of the stack for one method, and its test errors so far."""

    def __init__(self, leaves: Leaves):
        count = len(next(iter(leaves.values())))
        self.best = {k: v.clone() for k, v in leaves.items()}
        self.score, self.round = np.full(count, np.inf), np.zeros(count, dtype=int)
        self.errors: list[list[float]] = [[] for _ in range(count)]

    def see(self, i: int, leaves: Leaves, score: float, error: float) -> None:
        self.errors[i].append(error)
        if score < self.score[i]:
            self.score[i], self.round[i] = score, len(self.errors[i])
            for k, v in leaves.items():
                self.best[k][i] = v[i]

    def going(self) -> np.ndarray:
        return np.array([len(e) - r < PATIENCE for e, r in zip(self.errors, self.round)])


def follow(rows: Stack, training: Training, rounds: int = ROUNDS) -> dict[str, Watch]:
    """Train until no method gains any more; rows of the stack that are done are left out."""
    leaves, watches = dict(training.leaves), {name: Watch(training.leaves) for name in training.methods}
    for round in range(1, rounds + 1):
        for name, predict in training.methods.items():
            for i in np.flatnonzero(watches[name].going()):
                watches[name].see(i, leaves, *errors(rows, i, leaves, training.omega, predict))
        alive = np.flatnonzero(np.any([w.going() for w in watches.values()], axis=0))
        if round == rounds or not len(alive):
            break
        which = torch.as_tensor(alive, device=rows.x.device)
        moved = training.advance(some(rows, which), which, some(leaves, which), some(training.omega, which))
        leaves = {k: v.index_copy(0, which, moved[k]) for k, v in leaves.items()}
    return watches


def errors(rows: Stack, i: int, leaves: Leaves, omega: Leaves, predict: Predict) -> tuple[float, float]:
    """(mean absolute error on validation rows, RMSE on test rows), the mean over models where clients have their own."""
    both = torch.cat([rows.x_val[i], rows.x_test[i]])
    mean, _ = predict(rows, i, leaves, omega, both, False)
    v = len(rows.x_val[i])
    away = mean - torch.cat([rows.y_val[i], rows.y_test[i]])[:, 0]
    found = torch.stack([away[:, :v].abs().mean(), (away[:, v:] ** 2).mean(-1).sqrt().mean() * rows.unit[i]])
    score, error = found.tolist()
    return (score if np.isfinite(score) else np.inf), error


# ---- how leaves are learned ----


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
            move = -(finite(slope) + duals[k][which]) / (11 * rho)  # the thesis's L is 10 rho
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


def printed_spec() -> dict:
    return FedBNR("average", **runs.published("", hidden=(WIDTH, WIDTH), latent_dim=LATENT))._spec()


TRAININGS: dict[str, Callable[..., Training]] = {
    "FedAvg": networks("FedAvg", "squared", FedAvgRegression((WIDTH,), latent_dim=WIDTH)),
    "FedProx": networks("FedProx", "squared", FedAvgRegression((WIDTH,), latent_dim=WIDTH)),
    "FedLoc": consensus,
    "average": averaging,
    "pFedGP": networks("pFedGP", "fitc", PFedGP((WIDTH, WIDTH), latent_dim=LATENT)),
    "distill": distilling,
    "local": alone,
}


# ---- judging ----


def column(training: str, name: str, clients: int, seeds: list[int], device: str, rounds: int = ROUNDS) -> list[dict]:
    """The results of all splits of a column, for each method of the training, at the setting and round best for validation rows."""
    began = time.perf_counter()
    options = runs.CONFIGS["thesis"][f"{name}-{clients}"]
    settings = [*RHOS, options["rho"]] if training == "FedLoc" else list(RATES)
    rows = stack([protocol.split(name, k, clients) for k in seeds], len(settings), device, training == "distill")
    each = torch.tensor(settings * len(seeds), dtype=torch.float64, device=device)[:, None]
    made = TRAININGS[training](rows, each, [k for k in seeds for _ in settings], options)
    found = []
    for method, watch in follow(rows, made, rounds).items():
        for j, seed in enumerate(seeds):
            i = j * len(settings) + int(np.argmin(watch.score[j * len(settings) : (j + 1) * len(settings)]))
            told = {"set": name, "clients": clients, "seed": seed, "method": method, "setting": float(each[i, 0]),
                    "rounds": len(watch.errors[i]), "best_round": int(watch.round[i]), "rmse_min": min(watch.errors[i])}  # fmt: skip
            found.append(told | judged(rows, i, watch.best, made.omega, made.methods[method]))
            if method == "FedBNR as printed":
                again = told | {"method": "FedBNR average server noise"}
                found.append(again | with_server_noise(rows, i, watch.best, made.omega))
    seconds = (time.perf_counter() - began) / len(found)
    return [row | {"seconds": seconds, "epochs": EPOCHS, "device": device} for row in found]


def judged(rows: Stack, i: int, leaves: Leaves, omega: Leaves, predict: Predict) -> dict[str, float]:
    """On the test rows; of many local models, the mean over them."""
    mean, variance = predict(rows, i, leaves, omega, rows.x_test[i], True)
    unit, y = float(rows.unit[i]), rows.y_test[i][:, 0].cpu().numpy()
    if variance is None:
        return {"rmse": unit * metrics.rmse(y, mean[0].cpu().numpy())}
    pairs = zip(unit * mean.cpu().numpy(), unit * variance.sqrt().cpu().numpy())
    each = [runs.judge_one(unit * y, m, s) for m, s in pairs]
    return {key: float(np.mean([row[key] for row in each])) for key in each[0]}


def with_server_noise(rows: Stack, i: int, leaves: Leaves, omega: Leaves) -> dict[str, float]:
    """The printed kernel, with noise and prior from the global evidence and intervals from the validation rows' residuals."""
    spec, unit = printed_spec(), float(rows.unit[i])
    theta = {k: v[i, 0] for k, v in leaves.items() if k not in ("log_noise", "log_prior")}
    kernel = Kernel(theta, {k: v[i, 0] for k, v in omega.items()})
    z = lambda x: features(spec, kernel, x).cpu().numpy()  # noqa: E731
    y = lambda t: t.flatten(0, -2).cpu().numpy()  # noqa: E731
    stats = bayes_linear.statistics(z(rows.x[i].flatten(0, 1)), y(rows.y[i]), rows.w[i].flatten().cpu().numpy())
    post = bayes_linear.posterior(stats)
    mean, variance = bayes_linear.predict(post, z(rows.x_val[i]))
    counts = calibration.histogram((y(rows.y_val[i]) - mean) / np.sqrt(variance), np.ones(len(mean)))
    mean, variance = (a[:, 0] for a in bayes_linear.predict(post, z(rows.x_test[i])))
    mean, std = unit * mean, unit * np.sqrt(variance)

    def interval(level: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = calibration.quantile(counts, np.array([0.5 - level / 2, 0.5 + level / 2]))[0]
        return mean + low * std, mean + high * std

    return runs.judge_one(unit * y(rows.y_test[i])[:, 0], mean, std, interval)


# ---- many columns ----


def fill(job: tuple[str, str, int, int, str, Path]) -> str:
    """One training of one column, its lines written when it is done."""
    training, name, clients, count, device, out = job
    torch.set_num_threads(1)
    found = column(training, name, clients, list(runs.seeds_of(name, count)), device)
    for row in found:
        runs.append(out, row)
    means = {
        m: np.mean([r["rmse"] for r in found if r["method"] == m]) for m in dict.fromkeys(r["method"] for r in found)
    }
    said = ", ".join(f"{m} {v:.4g}" for m, v in means.items())
    return f"{training} {name} {clients}: {said}; {found[0]['seconds'] * len(found):.0f} s"


def main() -> None:
    """Fill a file of results: `python _stacked.py --device cuda --workers 6`; trainings found in it are not run again."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--trainings", default=",".join(TRAININGS))
    parser.add_argument("--sets", default=",".join(protocol.SETS))
    parser.add_argument("--clients", default="10,100")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=runs.HERE / "results" / "uci" / "stacked.jsonl")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["set"], r["clients"], r["method"]) for r in runs.finished(args.out)}
    columns = [(s, int(c)) for c in args.clients.split(",") for s in args.sets.split(",")]
    jobs = [(t, s, c, args.seeds, args.device, args.out) for t in args.trainings.split(",") for s, c in columns
            if not any((s, c, m) in done for m in METHODS_OF[t])]  # fmt: skip
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        running = {pool.submit(fill, job): job for job in jobs}
        for future in as_completed(running):  # what fails is said, and the others go on
            print(
                f"{running[future][:3]} failed: {error}" if (error := future.exception()) else future.result(),
                flush=True,
            )


METHODS_OF = {
    "average": ("FedBNR as printed", "avg+local"),
    "distill": ("FedBNR-KD as printed", "kd+local"),
    "local": ("local+local", "local+global"),
    **{name: (name,) for name in ("FedAvg", "FedProx", "pFedGP", "FedLoc")},
}


if __name__ == "__main__":
    main()
