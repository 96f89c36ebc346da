"""Faults of turbofans: engines are clients, nobody says which of two faults an engine has, and the fault modes come out as clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import unpooled as up
from unpooled.data import shared

SEEDS = 3
DIFFERS = (
    "the paper has no such data. Rows are an engine's last 30 cycles, each sensor less its mean over the engine's first 30. "
    "FD001 engines fail in one way, FD003 engines in one of two (the first being FD001's); which, is not in the data."
)
CYCLES = 30


def last_cycles(engines: int) -> dict[str, np.ndarray]:
    """engine -> (30, sensors): how the sensors have moved since it was new, in units of their spread when new."""
    data = shared.cmapss()
    sensors = [j for j, name in enumerate(data.columns) if name.startswith("s") and not name.startswith("set")]
    rows = {}
    for name in list(dict.fromkeys(data.groups.tolist())):
        x = data.train[data.groups == name][:, sensors].astype(float)
        rows[name] = (x[-CYCLES:] - x[:CYCLES].mean(0), x[:CYCLES].std(0))
    spread = np.mean([s for _, s in rows.values()], axis=0)
    useful = spread > 1e-6
    chosen = list(rows)[:: max(1, len(rows) // engines)]
    return {name: rows[name][0][:, useful] / spread[useful] for name in chosen}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    lines = []
    for seed in range(1 if small else seeds):
        rows = last_cycles(20 if small else 200)
        model = up.OpenMixture(random_state=seed).fit(rows)
        say(f"seed {seed}: {model.n_components_} clusters, {model.structure_}")
        for z in range(model.n_components_):
            share = {
                s: np.mean([h[z] / CYCLES for n, h in model.holdings_.items() if n.startswith(s)])
                for s in ("FD001", "FD003")
            }
            line = {
                "method": "OpenMixture auto",
                "seed": seed,
                "cluster": z,
                "ours": float(share["FD003"]),
                "spread": None,
                "paper": None,
            }
            lines.append(line | {"share of FD001's rows": float(share["FD001"]), "held by": len(model.holders_[z])})
    return lines
