"""A round of residual networks for many clients at once, against a loop over clients and models, and against central training.

80 clients x 3 learners x 500 images of 32 x 32, ResNet-18 with group norm, one local epoch. The loop trains one client's model after the
other with the same batches in the same precision; a part of it is timed and the rest is as long. Central training has the batch
size that is fastest. Needs a GPU.

    python benchmarks/network_round.py [--learner resnet18_narrow] [--batch-size 32] [--compiled]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from unpooled.client import Client
from unpooled.learners import Trainer, batched
from unpooled.learners.modules import Modules

CENTRAL = (256, 512, 1024, 2048)
LOOPED = 4  # pairs of client and model that are timed in the loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", default="resnet18")
    parser.add_argument("--clients", type=int, default=80)
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compiled", action="store_true", help="compile the layers of all models (torch.compile)")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("medium")  # bfloat16, for all three
    batched.COMPILED["cuda"] = args.compiled
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(
        args.learner,
        3 * 32 * 32,
        list(range(10)),
        batch_size=args.batch_size,
        lr=0.01,
        momentum=0.9,
        device=args.device,
    )
    ours, loop = together(trainer, args), one_after_the_other(trainer, args)
    whole = args.clients * args.models * args.images
    part = LOOPED * args.images
    central = max(whole_table(trainer, args, b) for b in CENTRAL)
    for work in (ours, loop):  # compiled and warm
        work()
    times = [(clock(ours), clock(loop)) for _ in range(args.repeats)]
    rates = [whole / a for a, _ in times], [part / b for _, b in times]
    ratios = [a / b for a, b in zip(*rates)]
    print(f"{args.clients} clients x {args.models} {args.learner} x {args.images} images, batches of {args.batch_size}")
    print(
        f"together: {statistics.median(rates[0]):,.0f} images/s, a round {statistics.median(a for a, _ in times):.2f} s"
    )
    print(f"one after the other: {statistics.median(rates[1]):,.0f} images/s")
    print(f"faster: {statistics.median(ratios):.1f} times ({min(ratios):.1f} to {max(ratios):.1f}), wanted 10")
    share = statistics.median(rates[0]) / central
    print(f"central, best batch: {central:,.0f} images/s; together has {100 * share:.0f} % of it, wanted 35 %")
    if args.device == "cuda":
        print(f"memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GB")


def images(args: argparse.Namespace, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((n, 3 * 32 * 32), dtype=np.float32), rng.integers(10, size=n)


def together(trainer: Trainer, args: argparse.Namespace) -> Callable[[], None]:
    """One local epoch of all models of all clients, as a round of FedEM has it."""
    x, y = images(args, args.clients * args.images)
    shape = args.clients, args.images
    members = tuple(map(str, range(args.clients)))
    client = Client("all", x.reshape(*shape, -1), y.reshape(shape), stacked=True, members=members)
    rows = trainer.rows(client)
    theta = torch.as_tensor(trainer.start(np.random.default_rng(0), args.models), device=args.device)
    r = torch.full((*shape, args.models), 1 / args.models, device=args.device)

    def work() -> None:
        trainer.train(theta, client, rows, r)

    return work


def one_after_the_other(trainer: Trainer, args: argparse.Namespace) -> Callable[[], None]:
    """What one would write: a module and an optimiser for each client and model."""
    x, y = (torch.as_tensor(a, device=args.device) for a in images(args, args.images))

    def work() -> None:
        for _ in range(LOOPED):
            module, optimiser = fresh(trainer, args)
            for i in torch.randperm(len(y), device=args.device).split(args.batch_size):
                step(module, optimiser, x[i], y[i], args.device)

    return work


def whole_table(trainer: Trainer, args: argparse.Namespace, batch_size: int) -> float:
    """Images per second of one model on one large table."""
    x, y = (torch.as_tensor(a, device=args.device) for a in images(args, batch_size))
    module, optimiser = fresh(trainer, args)

    def work() -> None:
        for _ in range(10):
            step(module, optimiser, x, y, args.device)

    work()
    return 10 * batch_size / clock(work)


def fresh(trainer: Trainer, args: argparse.Namespace) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    net: Modules = trainer.net
    module = net._built().to(args.device).to(memory_format=torch.channels_last)
    return module, torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)


def step(
    module: torch.nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, device: str
) -> None:
    with torch.autocast(device, torch.bfloat16):
        loss = F.cross_entropy(module(x), y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def clock(work: Callable[[], None]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
