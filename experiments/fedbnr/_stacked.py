"""The printed algorithm and its peers for all splits of a column at once: what hours of runs one by one become on a GPU.

The thesis's protocol: 8:1:1, validation rows choose the round and, for every split, the learning rate (of three); at most 100 rounds,
five without gain end a run. Methods that share how kernels are learned share one training (`average` and its two last layers, `local`,
`distill`). Every split's finished result is a line of a file, as in `_runs.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import _protocol as protocol
import _runs as runs
import _trainings as trainings
import numpy as np
import torch
from _stack import Leaves, Predict, Stack, some, stack
from _trainings import METHODS, TRAININGS, Training, printed_spec

from unpooled.maths import bayes_linear, calibration
from unpooled.maths.feature_maps import Kernel, features
from unpooled.metrics import regression as metrics

RATES = (0.001, 0.003, 0.01)
RHOS = (10.0, 100.0, 1000.0)  # and the thesis's
ROUNDS, PATIENCE = 100, 5


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


def follow(rows: Stack, training: Training, rounds: int = ROUNDS, until: float = np.inf) -> dict[str, Watch]:
    """Train until no method gains any more, or the clock says stop; rows of the stack that are done are left out."""
    leaves, watches = dict(training.leaves), {name: Watch(training.leaves) for name in training.methods}
    for round in range(1, rounds + 1):
        for name, predict in training.methods.items():
            for i in np.flatnonzero(watches[name].going()):
                watches[name].see(i, leaves, *errors(rows, i, leaves, training.omega, predict))
        alive = np.flatnonzero(np.any([w.going() for w in watches.values()], axis=0))
        if round == rounds or not len(alive) or time.time() > until:
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


# ---- judging ----


def column(
    training: str, name: str, clients: int, seeds: list[int], device: str, rounds: int = ROUNDS, until: float = np.inf
) -> list[dict]:
    """The results of all splits of a column, for each method of the training, at the setting and round best for validation rows."""
    began = time.perf_counter()
    options = runs.CONFIGS["thesis"][f"{name}-{clients}"]
    settings = [*RHOS, options["rho"]] if training == "FedLoc" else list(RATES)
    rows = stack([protocol.split(name, k, clients) for k in seeds], len(settings), device, training == "distill")
    each = torch.tensor(settings * len(seeds), dtype=torch.float64, device=device)[:, None]
    made = TRAININGS[training](rows, each, [k for k in seeds for _ in settings], options)
    found = []
    for method, watch in follow(rows, made, rounds, until).items():
        cut = any(len(e) < rounds and going for e, going in zip(watch.errors, watch.going()))
        for j, seed in enumerate(seeds):
            i = j * len(settings) + int(np.argmin(watch.score[j * len(settings) : (j + 1) * len(settings)]))
            told = {"set": name, "clients": clients, "seed": seed, "method": method, "setting": float(each[i, 0]),
                    "rounds": len(watch.errors[i]), "best_round": int(watch.round[i]), "rmse_min": min(watch.errors[i]),
                    "cut": cut}  # fmt: skip
            found.append(told | judged(rows, i, watch.best, made.omega, made.methods[method]))
            if method == "FedBNR as printed":
                again = told | {"method": "FedBNR average server noise"}
                found.append(again | with_server_noise(rows, i, watch.best, made.omega))
    seconds = (time.perf_counter() - began) / len(found)
    return [row | {"seconds": seconds, "epochs": trainings.EPOCHS, "device": device} for row in found]


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


class Job(NamedTuple):
    training: str
    name: str
    clients: int
    seeds: int
    device: str
    out: Path
    until: float  # the clock's time by which all must be done
    each: float  # seconds that one may take


def fill(job: Job) -> str:
    """One training of one column, its lines written when it is done; not begun within a minute of the end."""
    label = f"{job.training} {job.name} {job.clients}"
    if time.time() > job.until - 60:
        return f"{label}: no time left"
    torch.set_num_threads(1)
    until = min(job.until, time.time() + job.each)
    found = column(
        job.training, job.name, job.clients, list(runs.seeds_of(job.name, job.seeds)), job.device, until=until
    )
    for row in found:
        runs.append(job.out, row)
    if job.device != "cpu":
        torch.cuda.empty_cache()  # for the others on the same device
    means = {m: np.mean([r["rmse"] for r in found if r["method"] == m]) for m in METHODS[job.training]}
    said = ", ".join(f"{m} {v:.4g}" for m, v in means.items())
    cut = "; cut short" if any(r["cut"] for r in found) else ""
    return f"{label}: {said}; {found[0]['seconds'] * len(found):.0f} s{cut}"


def fill_all(jobs: list[Job], say: Callable[[str], None], workers: int = 1) -> None:
    """Run what the file lacks or has only cut short, so many at a time; what fails is said and tried once more."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for _ in range(2):
            running, failed = {pool.submit(fill, job): job for job in jobs}, []
            for future in as_completed(running):
                error = future.exception()
                say(f"{running[future][:3]} failed: {str(error)[:200]}" if error else future.result())
                failed += [running[future]] if error else []
            jobs = failed


def jobs_left(
    out: Path,
    names: Iterable[str] = (),
    sets: Iterable[str] = protocol.SETS,
    clients: Iterable[int] = (100, 10),
    *,
    seeds: int = 10,
    device: str = "cpu",
    seconds: float = np.inf,
    each: float = np.inf,
) -> list[Job]:
    """What the file lacks, or has only cut short."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["set"], r["clients"], r["method"]) for r in runs.finished(out) if not r.get("cut")}
    how = (seeds, device, out, time.time() + seconds, each)
    wanted = [(t, s, c) for c in clients for s in sets for t in names or TRAININGS]
    return [Job(t, s, c, *how) for t, s, c in wanted if not all((s, c, m) in done for m in METHODS[t])]


def main() -> None:
    """Fill a file of results: `python _stacked.py --device cuda --workers 6`; trainings found in it are not run again."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--trainings", default=",".join(TRAININGS))
    parser.add_argument("--sets", default=",".join(protocol.SETS))
    parser.add_argument("--clients", default="100,10")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=np.inf, help="cut short what is not done by then, and say so")
    parser.add_argument(
        "--each", type=float, default=np.inf, help="seconds that one training may take before it is cut short"
    )
    parser.add_argument("--out", type=Path, default=runs.HERE / "results" / "uci" / "stacked.jsonl")
    args = parser.parse_args()
    clients = [int(c) for c in args.clients.split(",")]
    how = {"seeds": args.seeds, "device": args.device, "seconds": args.seconds, "each": args.each}
    jobs = jobs_left(args.out, args.trainings.split(","), args.sets.split(","), clients, **how)
    fill_all(jobs, lambda text: print(text, flush=True), args.workers)


if __name__ == "__main__":
    main()
