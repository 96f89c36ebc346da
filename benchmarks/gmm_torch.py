"""An EM round on a GPU against the same round on two CPU cores: N = 1e7 rows, d = 48, K = 10, float32, full covariances.

Without a GPU it says so and compares torch on the CPU with NumPy. NumPy's round may be measured on fewer rows (--cpu-n) and
scaled up; the line says when it was. Rows are made on the device they are used on; equality is checked on the same rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import numpy as np
import torch
from _alternate import alternate
from gmm_round import problem
from threadpoolctl import threadpool_limits

from unpooled import tree
from unpooled.maths import mixture
from unpooled.maths.mixture import Params, Stats

PIECE = 16_384  # rows a thread takes at a time


def numpy_round(params: Params, x: np.ndarray, threads: int) -> Callable[[], Params]:
    def run() -> Params:
        def piece(i: int) -> Stats:
            rows = x[i : i + PIECE]
            return mixture.e_step(params, rows, np.ones(len(rows), x.dtype), "full")

        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
            total = reduce(tree.add, pool.map(piece, range(0, len(x), PIECE)))
        return mixture.m_step(params, total, "full", 1e-6)

    return run


def torch_round(params: Params, x: torch.Tensor) -> Callable[[], Params]:
    on_device = Params(*(torch.as_tensor(a, device=x.device) for a in params))
    w = torch.ones(len(x), dtype=x.dtype, device=x.device)

    def run() -> Params:
        new = mixture.m_step(on_device, mixture.e_step(on_device, x, w, "full"), "full", 1e-6)
        if x.device.type == "cuda":
            torch.cuda.synchronize()
        return new

    return run


def on_device(params: Params, n: int, device: str) -> torch.Tensor:
    """Rows near the means of the mixture, drawn where they are used."""
    generator = torch.Generator(device).manual_seed(0)
    means = torch.as_tensor(params.means, dtype=torch.float32, device=device)
    kinds = torch.randint(len(means), (n,), generator=generator, device=device)
    x = torch.randn((n, means.shape[1]), generator=generator, device=device)
    for i in range(0, n, 2**20):
        x[i : i + 2**20] += means[kinds[i : i + 2**20]]
    return x


def main(args: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, cpu_n = (args.n, args.cpu_n or args.n) if device == "cuda" else (args.cpu_n or 200_000,) * 2
    _, params = problem(np.random.default_rng(0), 1, 1, args.d, args.k)
    x = on_device(params, n, device)
    rows = x[:cpu_n].cpu().numpy()
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU here: torch on the CPU"
    print(f"{name}; N = {n:.0e}, d = {args.d}, K = {args.k}, float32, full")
    work = {"numpy": numpy_round(params, rows, args.threads), "torch": torch_round(params, x)}
    seconds = alternate(work, args.turns)
    scale = n / cpu_n
    ours, theirs = np.median(seconds["torch"].wall), np.median(seconds["numpy"].wall) * scale
    note = f", measured on {cpu_n:.0e} rows and scaled by {scale:.0f}" if scale != 1 else ""
    each = seconds["numpy"].wall * scale / seconds["torch"].wall
    print(f"  NumPy, {args.threads} threads: {theirs:.3f} s wall{note}; torch: {ours:.4f} s wall")
    print(f"  {np.median(each):.1f} ({each.min():.1f} to {each.max():.1f}) times faster")
    print(f"  {4.0 * n * args.k * args.d**2 / ours / 1e12:.2f} TFLOP/s on 4NKd^2")
    if device == "cuda":
        print(f"  peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, rows {x.nbytes / 2**30:.1f} GiB")
    a, b = numpy_round(params, rows, args.threads)(), torch_round(params, x[:cpu_n])()
    away = max(np.abs(u - v.cpu().numpy()).max() / np.abs(u).max() for u, v in zip(a, b))
    print(f"  largest relative difference on the same {cpu_n:.0e} rows: {away:.1e} (float32 products)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000_000)
    parser.add_argument(
        "--cpu-n", type=int, help="rows of NumPy's round, scaled up to --n; the same as --n if not given"
    )
    parser.add_argument("--d", type=int, default=48)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    main(parser.parse_args())
