"""Table 2 of the paper on CIFAR-10: 100 clients, three concepts, residual networks trained from scratch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _tables

SEEDS = 2
ROUNDS = 40
DIFFERS = _tables.DIFFERS + (
    " ResNet-18 with a quarter of the channels (resnet18_narrow), group norm in place of batch norm, no augmentation; 40 rounds "
    "where the paper has 200; products in bfloat16."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    _medium_precision()
    return _tables.run(jobs.cifar10(range(seeds), 40 if small else ROUNDS), small, out, say)


def _medium_precision() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_float32_matmul_precision("medium")
