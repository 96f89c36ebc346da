"""What does it cost to quantise and pack a million numbers, and how many bits does each take? At most 20 ns a number is asked for."""

from __future__ import annotations

import argparse

import numpy as np
from _alternate import alternate

from unpooled.layers.compression.quantisers import Cast, Dither, Sparsify, TopK

KINDS = {
    "dither, 1 level": Dither(1),
    "dither, 3 levels": Dither(3),
    "dither, 7 levels": Dither(7),
    "dither, 127 levels": Dither(127),
    "block-2, bucket 512": Dither(1, 512, 2.0),
    "sparsify, half": Sparsify(0.5),
    "top 1 %": TopK(0.01),
    "bfloat16": Cast("bfloat16"),
    "float16": Cast("float16"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    x = np.random.default_rng(0).normal(size=given.size)
    rng = np.random.default_rng(1)
    sent = {name: q.encode(x, np.random.default_rng(2)) for name, q in KINDS.items()}
    pack = alternate({name: lambda q=q: q.encode(x, rng) for name, q in KINDS.items()}, given.turns)
    unpack = alternate(
        {name: lambda q=q, s=sent[name]: q.decode(s, len(x), np.random.default_rng(2)) for name, q in KINDS.items()},
        given.turns,
    )
    print(f"{given.size} normal numbers, CPU nanoseconds a number, median of {given.turns} turns (least to most)")
    for name in KINDS:
        ns, back = pack[name].cpu / len(x) * 1e9, unpack[name].cpu / len(x) * 1e9
        spread = f"({ns.min():.1f} to {ns.max():.1f})"
        bits = 8 * len(sent[name]) / len(x)
        print(
            f"  {name:20s} pack {np.median(ns):5.1f} {spread:16s} unpack {np.median(back):5.1f}   {bits:6.2f} bits a number"
        )
    worst = max(float(np.median(pack[name].cpu)) for name in KINDS if name.startswith(("dither", "block")))
    print(f"slowest dithering: {worst / len(x) * 1e9:.1f} ns a number, at most 20 asked for")


if __name__ == "__main__":
    main()
