"""A third set for `check`: fifteen planted mismatches on dairy farms, and ten clean federations of published tables.

    python benchmarks/check_third_domain.py [seed]

The mismatches and the tables were chosen once, run, and left as they are; a mismatch counts as named if a finding has its column and its
site. The published tables are those of statsmodels and lifelines that no other benchmark of `check` uses, over three sites at random.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import statsmodels.api as sm
from check_other_domains import cut
from lifelines import datasets

import unpooled as up

SITES = {"alder": 420, "birch": 310, "cedar": 260, "dogwood": 350}
ODD = "cedar"
STATSMODELS = ("star98", "engel", "cancer", "grunfeld", "copper")
LIFELINES = ("load_rossi", "load_waltons", "load_kidney_transplant", "load_larynx", "load_stanford_heart_transplants")


def herd(site: str, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Cows of one farm."""
    frame = pd.DataFrame(
        {
            "tag": [f"{site[:2].upper()}{i:05d}" for i in rng.permutation(90_000)[:rows]],
            "breed": rng.choice(["holstein", "jersey", "ayrshire"], rows, p=[0.6, 0.25, 0.15]),
            "born": (np.datetime64("2016-03-01") + rng.integers(0, 1800, rows).astype("timedelta64[D]")).astype(str),
            "calvings": rng.poisson(2.2, rows),
            "milk": rng.normal(28 + rng.normal(0, 0.4), 5, rows).round(1),  # litres per day
            "fat": rng.normal(4.1, 0.4, rows).round(2),  # %
            "cells": rng.lognormal(5.1, 0.6, rows).round(),  # thousand per ml
            "weight": rng.normal(610, 55, rows).round(),  # kg
            "feed": rng.normal(21, 2.5, rows).round(1),  # kg per day
            "barn": rng.choice(["tie", "free", "pasture"], rows),
            "pregnant": rng.choice(["TRUE", "FALSE"], rows),
            "mood": rng.choice(["calm", "lively", "wild"], rows, p=[0.6, 0.3, 0.1]),
        }
    )
    frame.loc[rng.random(rows) < rng.uniform(0, 0.07), "fat"] = np.nan
    return frame


def farms(seed: int) -> dict[str, pd.DataFrame]:
    """Four farms without mismatches."""
    rng = np.random.default_rng(seed)
    return {site: herd(site, rows, rng) for site, rows in SITES.items()}


def _some(frame: pd.DataFrame, column: str, value: object, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """A share of the cells replaced by one value."""
    there = rng.random(len(frame)) < share
    return frame.assign(**{column: frame[column].astype(object).where(~there, value).infer_objects()})


Plant = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]
MISMATCHES: list[tuple[str, str, Plant]] = [
    ("milk in gallons a week", "milk", lambda f, r: f.assign(milk=(f.milk * 7 / 4.546).round(1))),
    ("weight in pounds", "weight", lambda f, r: f.assign(weight=(f.weight * 2.2046).round())),
    ("cells in single ones", "cells", lambda f, r: f.assign(cells=f.cells * 1000)),
    ("fat as a fraction", "fat", lambda f, r: f.assign(fat=f.fat / 100)),
    ("feed per week", "feed", lambda f, r: f.assign(feed=f.feed * 7)),
    ("milk is called Milch", "milk", lambda f, r: f.rename(columns={"milk": "Milch"})),
    ("barn is called stable_type", "barn", lambda f, r: f.rename(columns={"barn": "stable_type"})),
    ("breeds in capitals", "breed", lambda f, r: f.assign(breed=f.breed.str.upper())),
    ("mood as 1, 2, 3", "mood", lambda f, r: f.assign(mood=f.mood.map({"calm": 1, "lively": 2, "wild": 3}))),
    (
        "pregnant as yes and no",
        "pregnant",
        lambda f, r: f.assign(pregnant=f.pregnant.map({"TRUE": "yes", "FALSE": "no"})),
    ),
    ("born as 3.1.2018", "born", lambda f, r: f.assign(born=pd.to_datetime(f.born).dt.strftime("%d.%m.%Y"))),
    ("-1 for no calvings known", "calvings", lambda f, r: _some(f, "calvings", -1, 0.06, r)),
    ("n/a in feed", "feed", lambda f, r: _some(f, "feed", "none", 0.05, r)),
    ("no weight", "weight", lambda f, r: f.drop(columns="weight")),
    ("cows twice", "tag", lambda f, r: pd.concat([f, f.head(25)], ignore_index=True)),
]


def named(seed: int) -> int:
    """How many mismatches are named; findings besides are printed too."""
    hits = 0
    for number, (title, column, plant) in enumerate(MISMATCHES):
        tables = farms(seed + number)
        tables[ODD] = plant(tables[ODD], np.random.default_rng([seed, number]))
        found = up.check(tables).findings
        mine = [f for f in found if (f.column, f.site) == (column, ODD)]
        hits += bool(mine)
        print(f"  {title:<28} {', '.join(sorted({f.what for f in mine})) or 'NOT NAMED'}")
        for f in found:
            if f not in mine:
                print(f"      beside it: {f.what}: {f.site}: {f.text}")
    return hits


def clean(seed: int) -> dict[str, dict[str, pd.DataFrame]]:
    """Published tables over four sites, rows at random."""
    tables = {name: getattr(sm.datasets, name).load_pandas().data for name in STATSMODELS}
    tables |= {name.removeprefix("load_"): getattr(datasets, name)() for name in LIFELINES}
    return {name: cut(table, seed + i) for i, (name, table) in enumerate(tables.items())}


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 5100
    print(f"{len(MISMATCHES)} planted mismatches over four sites")
    print(f"named: {named(seed)} of {len(MISMATCHES)}\n\nclean federations")
    alarms = 0
    for name, tables in clean(seed).items():
        found = [f for f in up.check(tables).findings if f.what != "rows"]
        alarms += len(found)
        print(f"  {name:<26} {sum(map(len, tables.values())):5d} rows  {len(found)} findings")
        for f in found:
            print(f"      {f.what}: {f.site}: {f.text}")
    print(f"findings in clean federations, besides sites of few rows: {alarms}")


if __name__ == "__main__":
    main()
