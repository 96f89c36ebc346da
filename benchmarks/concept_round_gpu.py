"""A round of FedConceptEM, 300 clients x 3 CNNs x 180 images: all at once, against a loop over clients and models."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.nn import functional as F

from unpooled.data.federate import federate
from unpooled.learners.nets import cnn
from unpooled.models.fedconceptem.estimator import FedConceptEM

ROWS, SIDE, MODELS = 180, 28, 3
TRAINING = {"lr": 0.1, "momentum": 0.9}


def clients(count: int) -> dict:
    rng = np.random.default_rng(0)
    make = lambda: (rng.random((ROWS, SIDE**2), dtype=np.float32), rng.integers(10, size=ROWS))  # noqa: E731
    return {f"c{i:03d}": make() for i in range(count)}


def ours(data: dict, args: argparse.Namespace, **engine) -> Callable[[], torch.Tensor]:
    """A call is a round and gives the models after it."""
    model = FedConceptEM(
        MODELS, learner="cnn", batch_size=args.batch_size, device=args.device, max_iter=1000, random_state=0, **TRAINING
    )
    moments: Iterator = model.rounds(federate(data, **engine))
    next(moments)
    return lambda: next(moments).state.theta


def loop(data: dict, args: argparse.Namespace) -> Callable[[], list]:
    """The same round as it is usually written: modules, autograd and an optimiser, one client and model at a time."""
    torch.manual_seed(0)
    models = [cnn(SIDE**2, 10).to(args.device) for _ in range(MODELS)]
    rows = [(torch.as_tensor(x, device=args.device), torch.as_tensor(y, device=args.device)) for x, y in data.values()]
    work = cnn(SIDE**2, 10).to(args.device)

    def round_() -> list:
        totals = [[torch.zeros_like(p) for p in m.parameters()] for m in models]
        mass = torch.zeros(MODELS, device=args.device)
        for x, y in rows:
            with torch.no_grad():
                loss = torch.stack([F.cross_entropy(m(x), y, reduction="none") for m in models], -1)
            r = torch.softmax(-loss, -1)
            mass += r.sum(0)
            for k, model in enumerate(models):
                work.load_state_dict(model.state_dict())
                _epoch(work, x, y, r[:, k], args.batch_size)
                for total, p in zip(totals[k], work.parameters()):
                    total += r[:, k].sum() * p.detach()
        with torch.no_grad():
            for k, model in enumerate(models):
                for p, total in zip(model.parameters(), totals[k]):
                    p.copy_(total / mass[k])
        return models

    return round_


def _epoch(work: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, r: torch.Tensor, batch_size: int) -> None:
    sgd = torch.optim.SGD(work.parameters(), **TRAINING)
    for rows in torch.randperm(len(y), device=x.device).split(batch_size):
        sgd.zero_grad()
        ((F.cross_entropy(work(x[rows]), y[rows], reduction="none") * r[rows]).mean()).backward()
        sgd.step()


def seconds(work: Callable, device: str) -> float:
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main(args: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")
    data = clients(args.clients)
    few = dict(list(data.items())[: max(MODELS, args.clients // args.part)])
    at_once, one_by_one = {"stack_cells": 2**27, "threads": 2}, {"mode": "one by one", "threads": 1}
    ways = {
        "all at once": (ours(data, args, **at_once), 1.0),
        "client by client, our engine": (ours(few, args, **one_by_one), len(data) / len(few)),
        "loop over clients and models": (loop(few, args), len(data) / len(few)),
    }
    for work, _ in ways.values():
        work()  # kernels are chosen and loaded
    found = {name: [] for name in ways}
    for _ in range(args.repeats):
        for name, (work, scale) in ways.items():
            found[name].append(seconds(work, args.device) * scale)
    print(f"{args.device}: {len(data)} clients x {MODELS} models x {ROWS} images, batches of {args.batch_size}; "
          f"slow ways measured on {len(few)} clients and scaled up")  # fmt: skip
    for name, times in found.items():
        ratios = [a / b for a, b in zip(times, found["all at once"])]
        print(f"{name:<30}{statistics.median(times):8.3f} s a round, {statistics.median(ratios):6.1f} times all at once "
              f"({min(ratios):.1f} to {max(ratios):.1f})")  # fmt: skip
    print(f"models after two rounds, at once and client by client: {apart(few, args, at_once, one_by_one)}")
    if args.device.startswith("cuda"):
        print(f"{torch.cuda.get_device_name()}, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB at the peak")


def apart(few: dict, args: argparse.Namespace, *engines: dict) -> str:
    """The largest difference of any parameter, relative to the largest parameter."""
    ends = []
    for engine in engines:
        run = ours(few, args, **engine)
        run()
        ends.append(run())
    return f"{float((ends[0] - ends[1]).abs().max() / ends[1].abs().max()):.1e} apart"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--clients", type=int, default=300 if torch.cuda.is_available() else 20)
    parser.add_argument("--part", type=int, default=10, help="the slow ways are measured on 1 of this many clients")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=60)
    main(parser.parse_args())
