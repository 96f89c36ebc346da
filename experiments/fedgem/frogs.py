"""Frog species where each recording is a client, as they were collected: most hold one species (a hard case for everybody)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _data import Problem, by_client
from _data import table as rows_of
from _methods import MAIN, RIVALS
from _runs import Plan, collect, table

from unpooled.datasets import shared

SEEDS = 3
DIFFERS = "the paper splits frogs by class; here the 60 recordings are the clients, and nothing is drawn: seeds move the methods alone."


def by_recording(seed: int) -> Problem:
    x, y = rows_of("anuran_species")
    groups = np.unique(shared.clustering("anuran_species").groups, return_inverse=True)[1]
    return by_client(x, y, groups)


def plans(small: bool, seeds: int) -> list[Plan]:
    methods = ("FedGEM",) if small else (*MAIN, "OpenMixture gaussians", *RIVALS)
    return [Plan({"frogs by recording": by_recording}, methods, range(1 if small else seeds))]


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    return table(collect(out, plans(small, seeds), say))
