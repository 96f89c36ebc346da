"""One step of 300 clients' CNNs at once: a group of convolutions a model (vmap) against banded products; which is fastest.

The last line names the fastest way of those that agree, as `unpooled.learners.modules.BACKENDS` calls it. Run:
`PYTHONPATH=src python3 benchmarks/learners_conv.py [--profile]`; without a GPU a few clients on the CPU.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from unpooled.learners import modules, nets

SIDE, CLASSES, ROWS = 28, 10, 180
AGREE = 1e-2  # of the largest gradient: rounding may change which of four near equal outputs a pooling keeps


def main(args: argparse.Namespace) -> None:
    net = modules.Modules(nets.cnn, SIDE**2, CLASSES)
    where = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    print(f"{where}, torch {torch.__version__}: milliseconds, median of {args.repeats} (spread)")
    total, agree = dict.fromkeys(args.ways, 0.0), set(args.ways)
    for models in args.models:
        step = stacked(net, args, models)
        for precision in args.precisions:
            torch.set_float32_matmul_precision(precision)
            for way, times in alternated(step, args).items():
                shown = f"{statistics.median(times):9.2f} ({min(times):.2f} to {max(times):.2f})"
                print(f"{args.clients} x {models} models, batch {args.batch_size}, {precision:<8}{way:<12}{shown}")
                total[way] += statistics.median(times)
        gaps = apart(step, args)
        print(
            "    largest difference of a gradient from vmap's: "
            + ", ".join(f"{w} {gap:.1e}" for w, gap in gaps.items())
        )
        agree &= {way for way, gap in gaps.items() if gap < AGREE}
    scoring(net, args)
    if args.profile:
        profile(stacked(net, args, args.models[0]), args)
    print(f"fastest: {min(agree, key=total.__getitem__)}")


def stacked(net: modules.Modules, args: argparse.Namespace, models: int) -> Callable[[], torch.Tensor]:
    """A call is one step of gradients."""
    rng = np.random.default_rng(0)
    put = lambda a: torch.as_tensor(a, device=args.device)  # noqa: E731
    theta = put(net.start(rng, models)).repeat(args.clients, 1, 1)
    x = put(rng.random((args.clients, args.batch_size, SIDE**2), dtype=np.float32))
    y = put(rng.integers(CLASSES, size=(args.clients, args.batch_size)))
    s = put(rng.random((args.clients, args.batch_size, models), dtype=np.float32) / args.batch_size)
    net.logits(theta[0], x[:1])  # the template is on the device
    return lambda: net.gradient(theta, x, y, s)


def by(way: str, work: Callable[[], torch.Tensor], device: str) -> torch.Tensor:
    modules.BACKENDS[device] = way
    return work()


def alternated(step: Callable[[], torch.Tensor], args: argparse.Namespace) -> dict[str, list[float]]:
    for way in args.ways:
        by(way, step, args.device)  # kernels are chosen and loaded
    found: dict[str, list[float]] = {way: [] for way in args.ways}
    for _ in range(args.repeats):
        for way in args.ways:
            found[way].append(milliseconds(lambda way=way: by(way, step, args.device), args.device))
    return found


def milliseconds(work: Callable, device: str) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return 1e3 * (time.perf_counter() - start)


def apart(step: Callable[[], torch.Tensor], args: argparse.Namespace) -> dict[str, float]:
    """By way: how far its gradients are from those of vmap, at most, relative to the largest; all in full precision."""
    torch.set_float32_matmul_precision("highest")
    with torch.backends.cudnn.flags(allow_tf32=False):
        plain = by("vmap", step, args.device)
        return {way: float((by(way, step, args.device) - plain).abs().max() / plain.abs().max()) for way in args.ways}


def scoring(net: modules.Modules, args: argparse.Namespace) -> None:
    """What the E-step costs beside the training: all rows under three models that all clients share, and under their own."""
    torch.set_float32_matmul_precision("high")
    x = torch.rand(args.clients, ROWS, SIDE**2, device=args.device)
    shared = torch.as_tensor(net.start(np.random.default_rng(0), 3), device=args.device)
    own = shared[:1].repeat(args.clients, 1, 1)
    for name, theta in {"three shared models": shared, "one model of its own": own}.items():
        for way, times in alternated(lambda theta=theta: net.logits(theta, x), args).items():
            print(f"scores of {args.clients} x {ROWS} rows, {name}, {way}: {statistics.median(times):.2f}")


def profile(step: Callable[[], torch.Tensor], args: argparse.Namespace) -> None:
    """Where the time of a banded step goes."""
    torch.set_float32_matmul_precision("high")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    by("banded", step, args.device)
    with torch.profiler.profile(activities=activities) as found:
        by("banded", step, args.device)
        milliseconds(step, args.device)
    order = "self_device_time_total" if args.device == "cuda" else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=70))


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--clients", type=int, default=300 if gpu else 4)
    parser.add_argument("--models", type=int, nargs="*", default=[3, 1])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7 if gpu else 2)
    parser.add_argument("--ways", nargs="*", default=["vmap", "banded"])
    parser.add_argument("--precisions", nargs="*", default=["high", "highest"])
    parser.add_argument("--profile", action="store_true")
    main(parser.parse_args())
