"""Gaps in tables of numbers and categories: MixtureImputer over sites against the mode, and IterativeImputer on pooled, encoded rows.

    python benchmarks/imputation_mixed.py [--seeds 5] [--first-seed 300] [--tables heart gbsg2 ...] [--rows 400] [--fedimpute PYTHON]

A fifth of the cells is hidden, at random or by site (every site misses each column at a rate of its own between 0 and 40 %). For
categories: the share of hidden cells that is filled with the right level; for numbers: root mean squares in standard deviations of the
column. IterativeImputer sees codes of levels, or an indicator per level but the first; the better of the two, by the mean over seeds,
counts for each table. What is shown are means over seeds, and the standard deviation over seeds of the difference. The tables are those of
`_mixed_tables.py`. The regressions of levels, and how they are weighed, were developed on other tables (Carseats, OJ, Credit, Hitters,
Auto, BrainCancer and Bikeshare of the package ISLP, 24 of the package pydataset); components were anchored after a look at abalone, seed
70, of which an outlier had been extrapolated.

With `--fedimpute` and the path of a Python that has the package fedimpute 0.3.0, the better of some of its methods (`--methods`), by its
mean over seeds, is shown beside. Every case is kept in a file as it ends and is not made twice, so cases can run side by side:
`--tables T --ways W --first-seed S --seeds 1` is one of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import unpooled as up
from unpooled.data.schema import Schema, encode

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedem"))
from _kept import kept
from _mixed_tables import TABLES

HIDDEN = 0.2
FIRST_SEED = 300
WAYS = ("at random", "by site")
FILL = Path(__file__).with_name("_fedimpute_fill.py")


def hidden_cells(shape: tuple[int, int], site: np.ndarray, how: str, rng: np.random.Generator) -> np.ndarray:
    if how == "at random":
        return rng.random(shape) < HIDDEN
    places = np.unique(site, return_inverse=True)[1]
    rates = rng.uniform(0, 2 * HIDDEN, size=(places.max() + 1, shape[1]))
    return rng.random(shape) < rates[places]


def widened(x: np.ndarray, schema: Schema, indicators: bool) -> list[np.ndarray]:
    """Each column of the encoded table: its levels as indicators of all but the first, or as codes."""
    parts = []
    for j, column in enumerate(schema):
        own = x[:, [j]]
        wide = indicators and column.n_levels > 2
        parts.append(np.where(np.isnan(own), np.nan, own == np.arange(1, column.n_levels)) if wide else own)
    return parts


def narrowed(x: np.ndarray, schema: Schema, parts: list[np.ndarray], filled: np.ndarray) -> np.ndarray:
    """The encoded table from its widened form, gaps filled: the level of the largest indicator, or the nearest code."""
    out, start = np.array(x), 0
    for j, (column, part) in enumerate(zip(schema, parts)):
        mine = filled[:, start : start + part.shape[1]]
        if part.shape[1] > 1:
            out[:, j] = np.column_stack([1 - mine.sum(1), mine]).argmax(1)
        else:
            out[:, j] = np.clip(np.round(mine[:, 0]), 0, column.n_levels - 1) if column.n_levels else mine[:, 0]
        start += part.shape[1]
    return np.where(np.isnan(x), out, x)


def iterative(x: np.ndarray, schema: Schema, indicators: bool) -> np.ndarray:
    """The encoded table filled by IterativeImputer on pooled rows."""
    parts = widened(x, schema, indicators)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = IterativeImputer(random_state=0).fit_transform(np.concatenate(parts, axis=1))
    return narrowed(x, schema, parts, filled)


def fedimpute(
    x: np.ndarray, schema: Schema, site: np.ndarray, python: str, methods: list[str]
) -> dict[str, np.ndarray]:
    """The encoded table filled by methods of fedimpute over the sites, levels as indicators, by a Python that has the package."""
    parts = widened(x, schema, True)
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        np.savez(given, x=np.concatenate(parts, axis=1), site=np.unique(site, return_inverse=True)[1])
        subprocess.run([python, str(FILL), str(given), str(found), *methods], check=True, capture_output=True)
        tables = np.load(found)
        return {name: narrowed(x, schema, parts, tables[name]) for name in tables.files}


def mode(x: np.ndarray, schema: Schema) -> np.ndarray:
    """The encoded table with the most frequent level, or the mean, in every gap."""
    out = np.array(x)
    for j, column in enumerate(schema):
        seen = x[~np.isnan(x[:, j]), j]
        out[np.isnan(x[:, j]), j] = np.bincount(seen.astype(int)).argmax() if column.n_levels else seen.mean()
    return out


class Case(NamedTuple):
    """A table with gaps, over sites."""

    gaps: pd.DataFrame
    site: np.ndarray
    schema: Schema
    x: np.ndarray  # encoded
    truth: np.ndarray
    hidden: np.ndarray


def case(name: str, how: str, seed: int, rows: int) -> Case:
    rng = np.random.default_rng(seed)
    table, site = TABLES[name]()
    some = rng.permutation(len(table))[:rows]
    table, site = table.iloc[some].reset_index(drop=True), site[some]
    hidden = hidden_cells(table.shape, site, how, rng) & table.notna().to_numpy()
    hidden[(hidden | table.isna().to_numpy()).all(axis=1)] = False
    gaps = table.mask(hidden)
    schema = up.federate(gaps, by=site).schema
    truth = encode(schema, {c: table[c].to_numpy() for c in table}, "the table", unlisted="missing")
    x = encode(schema, {c: gaps[c].to_numpy() for c in gaps}, "the table")
    return Case(gaps, site, schema, x, truth, hidden)


def errors(given: Case, filled: dict[str, np.ndarray]) -> dict[str, float]:
    """Share of levels that are right, and root mean squares of numbers, of every filled table."""
    with_levels = np.array([c.n_levels > 0 for c in given.schema])
    scale = np.nanstd(given.x, axis=0)
    found = {}
    for who, table in filled.items():
        right = (table == given.truth)[given.hidden & with_levels]
        off = ((table - given.truth) / scale)[given.hidden & ~with_levels]
        found |= {f"{who} accuracy": float(right.mean()), f"{who} rmse": float(np.sqrt(np.mean(off**2)))}
    return found


def trial(name: str, how: str, seed: int, rows: int) -> dict[str, float]:
    given = case(name, how, seed, rows)
    x, schema = given.x, given.schema
    start = time.process_time()
    ours = up.MixtureImputer().fit(up.federate(given.gaps, by=given.site))
    seconds = time.process_time() - start
    filled = {"ours": ours.transform(x), "mode": mode(x, schema)}
    filled |= {f"iterative {i:d}": iterative(x, schema, i) for i in (False, True)}
    low, high = ours.interval(x)
    numbers = given.hidden & np.array([c.n_levels == 0 for c in schema])
    inside = ((low <= given.truth) & (given.truth <= high))[numbers]
    found = {"components": float(ours.n_components_), "cpu s": seconds, "coverage": float(inside.mean())}
    return found | errors(given, filled)


def peer_trial(name: str, how: str, seed: int, rows: int, python: str, methods: list[str]) -> dict[str, float]:
    given = case(name, how, seed, rows)
    return errors(given, fedimpute(given.x, given.schema, given.site, python, methods))


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    """Means over seeds, IterativeImputer's of the better encoding, and the spread of the difference in accuracy."""
    m = {key: float(np.mean([row[key] for row in found])) for key in found[0] if key not in ("table", "how")}
    better = "iterative 1" if m["iterative 1 accuracy"] >= m["iterative 0 accuracy"] else "iterative 0"
    gains = [row["ours accuracy"] - row[f"{better} accuracy"] for row in found]
    least = min(m["iterative 0 rmse"], m["iterative 1 rmse"])
    spread = float(np.std(gains, ddof=1)) if len(gains) > 1 else float("nan")
    return m | {"iterative accuracy": m[f"{better} accuracy"], "iterative rmse": least, "spread": spread}


def best_peer(found: list[dict[str, float]]) -> dict[str, float]:
    """The largest accuracy and the least error of fedimpute's methods, each by its mean over seeds; NaN where none ended."""
    out = {}
    for what, best in (("accuracy", max), ("rmse", min)):
        named = sorted({key for row in found for key in row if key.endswith(f" {what}")})
        means = [float(np.mean([row[key] for row in found if key in row])) for key in named]
        out[what] = best(means, default=float("nan"))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--out", type=Path, default=Path("out/imputation_mixed.jsonl"))
    parser.add_argument("--fedimpute", metavar="PYTHON", help="a Python that has the package fedimpute")
    parser.add_argument("--methods", nargs="*", default=["mice", "em"], help="of fedimpute")
    parser.add_argument("--only-fedimpute", action="store_true", help="no fits of ours: for runs side by side")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    peers = given.out.with_name(f"{given.out.stem}_fedimpute_{'_'.join(given.methods)}.jsonl")
    print(f"{'':22} {'levels filled right':^49} | {'error of numbers':^35} |")
    whose = f"{'ours':>8} {'iterative':>9} {'spread':>7} {'mode':>6} {'fedimpute':>9}"
    print(f"{'table':10} {'missing':11} {whose} | {'ours':>8} {'iterative':>9} {'mean':>6} {'fedimpute':>9} | coverage")
    ahead, above = [], []
    for name in given.tables:
        for how in given.ways:
            keys = [dict(table=name, how=how, seed=seed, rows=given.rows) for seed in seeds]
            other = [
                kept(peers, k, peer_trial, *k.values(), given.fedimpute, given.methods) for k in keys if given.fedimpute
            ]
            if given.only_fedimpute:
                continue
            m = summary([kept(given.out, key, trial, *key.values()) for key in keys])
            peer = best_peer(other)
            ahead.append(m["ours accuracy"] >= m["iterative accuracy"])
            above.append(m["ours accuracy"] > m["mode accuracy"])
            levels = (
                f"{m['ours accuracy']:8.3f} {m['iterative accuracy']:9.3f} {m['spread']:7.3f} {m['mode accuracy']:6.3f}"
            )
            numbers = f"{m['ours rmse']:8.3f} {m['iterative rmse']:9.3f} {m['mode rmse']:6.3f} {peer['rmse']:9.3f}"
            line = f"{name:10} {how:11} {levels} {peer['accuracy']:9.3f} | {numbers} | {m['coverage']:8.3f}"
            print(line, flush=True)
    print(
        f"at or above IterativeImputer in {sum(ahead)} of {len(ahead)}, above the mode in {sum(above)} of {len(above)}"
    )


if __name__ == "__main__":
    main()
