"""Run the measurements of all tables on one machine, several at a time, until a budget of seconds is spent.

    PYTHONPATH=src UNPOOLED_DATA=<folder of the data> python3 experiments/fedconceptem/_batch.py --out results --budget 470

Every result is a line of measurements.jsonl as soon as it is there; --done FILE skips what an earlier batch measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import _jobs as jobs
import _measure
import _tables
from _plan import key, plan, with_rate

HERE = Path(__file__).parent
# a round, where one of FedAvg is 1
COSTS = {
    "FedEM": 2.0,
    "FedEM as published": 3.0,
    "IFCA": 1.4,
    "FedSoft": 1.4,
    "APFL": 1.8,
    "pFedMe": 5.0,
    "CFL": 4.0,
    "CFL (3)": 4.0,
}


class Batch:
    """A pool of processes, the clock, and the file of results."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.start, self.spent, self.done = args, time.monotonic(), 0.0, 0.0
        self.file = args.out / "measurements.jsonl"
        self.pool = ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn"))

    @property
    def left(self) -> float:
        return self.args.budget - (time.monotonic() - self.start)

    def takes(self, one: dict) -> float:
        """Seconds, by what the others took."""
        return 1.15 * work(one) * self.spent / max(self.done, 1e-9)

    def run(self, wanted: list[dict], lr: float | None) -> list[dict]:
        """What could be measured in time, in the order it was finished."""
        waiting, running, found = list(wanted), dict[Future, dict](), []
        while waiting or running:
            while waiting and len(running) < self.args.workers:
                one = waiting.pop(0)
                if self.takes(one) < self.left - 5:  # else it is left out: the next may be shorter
                    running[self.pool.submit(measured, one, lr, self.args)] = one
            done, _ = wait(running, return_when=FIRST_COMPLETED) if running else ((), ())
            for future in done:
                one = running.pop(future)
                error = future.exception()
                result = {**one, "error": repr(error)} if error else future.result()
                found += [] if error else [result]
                self.spent, self.done = self.spent + result.get("seconds", 0.0), self.done + work(one) * (not error)
                self.write(result)
                self.say(result)
        return found

    def write(self, result: dict) -> None:
        with open(self.file, "a") as file:
            file.write(json.dumps(result) + "\n")

    def say(self, result: dict) -> None:
        words = ("part", "method", "split", "seed", "options", "local", "global", "right", "n_concepts", "seconds")
        shown = {
            k: round(v, 3) if isinstance(v := result[k], float) else v
            for k in (*words, "round_seconds", "error")
            if k in result
        }
        print(f"{time.monotonic() - self.start:6.0f} s {shown}", flush=True)


def work(one: dict) -> float:
    """Rounds as long as FedAvg's: how long a measurement takes against others."""
    options = one.get("options", {})
    cost = COSTS.get(one["method"], 1.0)
    if one["method"].startswith("FedConceptEM"):
        cost = 1.6 + (options.get("n_concepts", 6) - 3) / 6
    return one["rounds"] * cost * options.get("fraction", 1.0) * options.get("local_epochs", 1)


def measured(one: dict, lr: float | None, args: argparse.Namespace) -> dict:
    """In a process of its own."""
    import torch

    from unpooled.learners import modules

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    modules.BACKENDS["cuda"] = args.way or modules.BACKENDS["cuda"]
    return _measure.measure(with_rate(one, lr) if lr else one, args.small, args.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--budget", type=float, default=470.0, help="seconds for everything")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--lr", type=float, help="instead of the pilot")
    parser.add_argument("--part", help="this part of the plan alone")
    parser.add_argument("--done", type=Path, help="measurements.jsonl of an earlier batch")
    parser.add_argument("--no-benchmark", action="store_true", help="leave out the time of a round")
    parser.add_argument("--way", help="how models take a step on the device, instead of the fastest")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    batch = Batch(args)
    if not args.no_benchmark:
        benchmark(args, "concept_round_gpu.py", "round_time.txt", *(["--clients", "20"] if args.small else []))
    args.way = args.way or fastest(args)
    lr = args.lr or best_rate(batch.run(jobs.pilot(max(args.rounds // 7, 2)), None))
    print(f"learning rate {lr}, by the held-out rows of a split that no table uses", flush=True)
    seen = {key(r) for r in _tables.finished(args.done)} if args.done else set()
    wanted = {key(with_rate(one, lr)): one for one in plan(args.rounds)}
    todo = [one for name, one in wanted.items() if name not in seen and args.part in (None, one["part"])]
    batch.run(todo, lr)
    batch.pool.shutdown()


def best_rate(found: list[dict]) -> float:
    return max(found, key=lambda r: r["local"])["options"]["lr"]


def benchmark(args: argparse.Namespace, script: str, into: str, *options: str) -> str:
    """What a benchmark prints, before anything else uses the device."""
    command = [sys.executable, str(HERE.parents[1] / "benchmarks" / script), "--device", args.device, "--repeats", "3"]
    with open(args.out / into, "w") as file:
        subprocess.run([*command, *options], stdout=file, stderr=subprocess.STDOUT)
    text = (args.out / into).read_text()
    print(text, flush=True)
    return text


def fastest(args: argparse.Namespace) -> str | None:
    """The way to train many models at once that is fastest on this device; None, the usual, if that cannot be told."""
    last = benchmark(args, "learners_conv.py", "conv_time.txt").splitlines()[-1:]
    return last[0].removeprefix("fastest: ") if last and last[0].startswith("fastest: ") else None


if __name__ == "__main__":
    main()
