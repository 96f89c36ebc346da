"""Measure the jobs of one CIFAR-10 table, one after the other, until the time is spent; each result is a line as soon as it is there.

    python experiments/fedconceptem/_until.py encoded --seed 0 --seconds 200 --out FOLDER [--split prior] [--methods IFCA FedEM]

Several processes, one for each seed or method, share a GPU well, since most of their kernels are small.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from pathlib import Path

import _jobs as jobs
import _measure
import _tables
from _tables import identity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=("encoded", "cifar10", "alone", "fashion", "number"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--lr", type=float, nargs="*", default=[0.1])
    parser.add_argument("--learner", default="cnn")
    parser.add_argument("--split", default="lda")
    parser.add_argument("--as-code", nargs="*", default=[], help="methods that then train as the authors' code does")
    parser.add_argument("--methods", nargs="*", default=list(jobs.CIFAR10))
    parser.add_argument("--copies", type=int, help="of CIFAR-10 in `alone`, with 100 clients each; 3 unless told")
    parser.add_argument(
        "--corrupted-tests", type=int, help="test images of a client with a corruption in `alone`; all unless told"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precision", default="high")
    parser.add_argument("--compiled", action="store_true", help="compile the layers of residual networks")
    args = parser.parse_args()
    _precision(args.precision)
    if args.compiled:
        _compile()
    end = time.monotonic() + args.seconds
    file = args.out / f"{args.table}-{args.seed}-{args.learner}-{args.split}.jsonl"
    seen = {identity(r) for r in _tables.finished(file)}
    for one in wanted(args):
        if identity(one) in seen or time.monotonic() > end:
            continue
        print(f"{one['method']}, seed {one['seed']}, {end - time.monotonic():.0f} s left", flush=True)
        try:
            found = _measure.measure(one, False, _tables.device(), time.time() + end - time.monotonic())
        except Exception:
            traceback.print_exc()  # the next method may do
            continue
        with open(file, "a") as out:
            out.write(json.dumps(found) + "\n")
        shown = {
            k: found.get(k)
            for k in ("method", "seed", "options", "local", "global", "local_ft", "right", "n_concepts", "seconds")
        }
        print(json.dumps(shown), flush=True)


def wanted(args: argparse.Namespace) -> list[dict]:
    seeds, rest = [args.seed], (args.rounds, args.learner, args.methods)
    if args.table == "encoded":
        found = [one for lr in args.lr for one in jobs.encoded(seeds, args.rounds, lr, args.methods)]
        found += [one for lr in args.lr for one in jobs.encoded(seeds, args.rounds, lr, args.as_code, code=True)]
    elif args.table == "alone":
        more = {"copies": args.copies, "corrupted_tests": args.corrupted_tests}
        more = {name: value for name, value in more.items() if value}
        found = jobs.beside_alone(seeds, args.rounds, args.lr[0], **more)
    elif args.table == "fashion":
        found = jobs.beside_alone(seeds, args.rounds, args.lr[0], "fashion")
    elif args.table == "number":
        both = jobs.number(seeds, args.rounds) + jobs.number(seeds, args.rounds, concepts=1)
        found = [one | {"options": {"lr": args.lr[0]} | one["options"]} for one in both]
    else:
        found = [one for lr in args.lr for one in jobs.cifar10(seeds, *rest, lr)]
        code = (args.rounds, args.learner, args.as_code)
        found += [one for lr in args.lr for one in jobs.cifar10(seeds, *code, lr, code=True)]
    return [one | {"split": args.split} for one in found]


def _precision(name: str) -> None:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))
    torch.set_float32_matmul_precision(name)


def _compile() -> None:
    from unpooled.learners import batched, modules

    batched.COMPILED["cuda"] = True
    modules.BATCHED_MEMORY = 8 * 2**30


if __name__ == "__main__":
    main()
