"""A second set of thirty planted mismatches for `check`, in a factory, a bank and weather stations; and ten clean federations.

    python benchmarks/check_other_domains.py

`check_mismatches.py` has hospitals, and its mismatches were known when the checks were written. These were written down before the checking
code was read. A mismatch counts as named if a finding has its column and its site.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm
from check_mismatches import print_findings

import unpooled as up

Tables = dict[str, pd.DataFrame]


# ---- a factory ----


def plant_table(site: str, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Parts of one plant."""
    frame = pd.DataFrame(
        {
            "serial": [f"{site[:3]}-{i:06d}" for i in rng.permutation(500_000)[:rows]],
            "thickness": rng.normal(12.4 + rng.normal(0, 0.05), 0.3, rows).round(3),  # mm
            "pressure": rng.normal(6.2, 0.5, rows).round(2),  # bar
            "oven_temp": rng.normal(182 + rng.normal(0, 2), 6, rows).round(1),  # Celsius
            "torque": rng.gamma(20, 2.2, rows).round(1),  # Nm
            "mass": rng.normal(845, 25, rows).round(),  # g
            "cycle_time": (20 + rng.gamma(4, 3, rows)).round(1),  # s
            "scratches": rng.poisson(1.3, rows),
            "humidity": rng.uniform(30, 60, rows).round(),  # %
            "machine": rng.choice(["press", "lathe", "mill", "laser"], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "shift": rng.choice(["early", "late", "night"], rows),
            "coated": rng.choice(["Y", "N"], rows, p=[0.6, 0.4]),
            "grade": rng.choice([1, 2, 3, 4, 5], rows, p=[0.1, 0.2, 0.4, 0.2, 0.1]),
            "made": pd.Timestamp("2023-01-09") + pd.to_timedelta(rng.integers(0, 400, rows), "D"),
            "passed": rng.choice(["ok", "scrap"], rows, p=[0.9, 0.1]),
        }
    )
    for column in ("humidity", "torque"):
        frame.loc[rng.random(rows) < rng.uniform(0, 0.08), column] = np.nan
    return frame


# ---- a bank ----


def branch_table(site: str, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Loans of one branch."""
    income = rng.lognormal(10.5 + rng.normal(0, 0.05), 0.4, rows)
    frame = pd.DataFrame(
        {
            "account": [int(i) for i in rng.permutation(9_000_000)[:rows] + 1_000_000],
            "income": income.round(-1),  # EUR per year
            "loan": (income * rng.uniform(0.2, 1.5, rows)).round(-2),
            "rate": rng.normal(4.1, 0.8, rows).clip(0.5).round(2),  # percent
            "term": rng.choice([12, 24, 36, 48, 60, 84], rows),  # months
            "birth_year": rng.integers(1948, 2003, rows),
            "employed": rng.gamma(2, 4, rows).round(1),  # years
            "late_payments": rng.poisson(0.6, rows),
            "utilisation": rng.beta(2, 3, rows).round(3),  # a share
            "housing": rng.choice(["own", "rent", "parents"], rows, p=[0.5, 0.4, 0.1]),
            "purpose": rng.choice(["car", "home", "study", "other"], rows, p=[0.3, 0.4, 0.1, 0.2]),
            "online": rng.random(rows) < 0.55,
            "rating": rng.choice(["A", "B", "C", "D"], rows, p=[0.3, 0.4, 0.2, 0.1]),
            "opened": pd.Timestamp("2019-05-01") + pd.to_timedelta(rng.integers(0, 1500, rows), "D"),
            "default": rng.choice([0, 1], rows, p=[0.88, 0.12]),
        }
    )
    for column in ("employed", "rate"):
        frame.loc[rng.random(rows) < rng.uniform(0, 0.06), column] = np.nan
    return frame


# ---- weather stations ----


def station_table(site: str, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Days of one station; stations lie at different heights."""
    season = np.sin(np.linspace(0, 4 * np.pi, rows))
    temp = 11 + rng.normal(0, 1.0) + 8 * season + rng.normal(0, 3, rows)
    frame = pd.DataFrame(
        {
            "day": pd.Timestamp("2022-01-01") + pd.to_timedelta(np.arange(rows), "D"),
            "temp": temp.round(1),  # Celsius
            "dew_point": (temp - rng.gamma(2, 2, rows)).round(1),
            "pressure": rng.normal(1013, 7, rows).round(1),  # hPa
            "wind": rng.gamma(2.5, 1.6, rows).round(1),  # m/s
            "rain": np.where(rng.random(rows) < 0.5, 0.0, rng.gamma(1, 5, rows)).round(1),  # mm
            "snow_depth": (np.where(season < -0.6, rng.gamma(2, 6, rows), 0.0)).round(),  # cm
            "radiation": (160 + 90 * season + rng.normal(0, 30, rows)).clip(5).round(),  # W/m2
            "visibility": rng.gamma(8, 2.5, rows).round(1),  # km
            "soil_moisture": rng.beta(8, 20, rows).round(3),  # a share
            "direction": rng.choice(["N", "E", "S", "W"], rows, p=[0.2, 0.15, 0.25, 0.4]),
            "sky": rng.choice(["clear", "partly", "overcast", "fog"], rows, p=[0.3, 0.3, 0.3, 0.1]),
            "frost": (temp < 0).astype(int),
            "species_seen": rng.poisson(9, rows),
            "observer": rng.choice(["auto", "person"], rows, p=[0.7, 0.3]),
        }
    )
    for column in ("radiation", "visibility"):
        frame.loc[rng.random(rows) < rng.uniform(0, 0.1), column] = np.nan
    return frame


class Domain(NamedTuple):
    sites: tuple[str, ...]
    make: Callable[[str, int, np.random.Generator], pd.DataFrame]
    label: str | None

    def tables(self, seed: int) -> Tables:
        rng = np.random.default_rng(seed)
        return {site: self.make(site, int(rng.integers(150, 500)), rng) for site in self.sites}

    @property
    def odd(self) -> str:
        """The site where mismatches are planted."""
        return self.sites[-1]


FACTORY = Domain(("brno", "graz", "linz", "pilsen"), plant_table, "passed")
BANK = Domain(("mall", "north", "online", "station"), branch_table, "default")
WEATHER = Domain(("coast", "forest", "ridge", "valley"), station_table, None)


# ---- mismatches: (title, column, how it is planted) ----

Plant = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]


def times(column: str, factor: float, add: float = 0.0, digits: int = 4) -> Plant:
    return lambda t, rng: t.assign(**{column: (t[column] * factor + add).round(digits)})


def renamed(column: str, name: str) -> Plant:
    return lambda t, rng: t.rename(columns={column: name})


def lacking(column: str) -> Plant:
    return lambda t, rng: t.drop(columns=column)


def mapped(column: str, levels: dict) -> Plant:
    return lambda t, rng: t.assign(**{column: t[column].map(lambda v: levels.get(v, v))})


def coded(column: str, code: object, share: float) -> Plant:
    """A code in place of some values."""

    def plant(t: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        hit = rng.random(len(t)) < share
        return t.assign(**{column: t[column].astype(object).where(~hit, code).infer_objects()})

    return plant


def emptied(column: str, share: float) -> Plant:
    return lambda t, rng: t.assign(**{column: t[column].astype(object).where(rng.random(len(t)) >= share)})


def repeated(column: str, n: int) -> Plant:
    """The first ids once more at other rows."""

    def plant(t: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        values = t[column].to_numpy(copy=True)
        values[-n:] = values[:n]
        return t.assign(**{column: values})

    return plant


def swapped(a: str, b: str) -> Plant:
    return lambda t, rng: t.assign(**{a: t[b].to_numpy(), b: t[a].to_numpy()})


def changed(column: str, change: Callable[[pd.Series], pd.Series]) -> Plant:
    return lambda t, rng: t.assign(**{column: change(t[column])})


def few_rows(t: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return t.head(4)


MISMATCHES: list[tuple[Domain, str, str, Plant]] = [
    (FACTORY, "thickness in inches", "thickness", times("thickness", 1 / 25.4)),
    (FACTORY, "pressure in psi", "pressure", times("pressure", 14.5038)),
    (FACTORY, "oven in Fahrenheit", "oven_temp", times("oven_temp", 1.8, 32)),
    (FACTORY, "mass in kg", "mass", times("mass", 0.001)),
    (FACTORY, "cycle time in minutes", "cycle_time", times("cycle_time", 1 / 60)),
    (FACTORY, "machine named Maschine", "machine", renamed("machine", "Maschine")),
    (FACTORY, "shift in German", "shift", mapped("shift", {"early": "früh", "late": "spät", "night": "nacht"})),
    (FACTORY, "torque -1 for missing", "torque", coded("torque", -1.0, 0.12)),
    (FACTORY, "serial repeated", "serial", repeated("serial", 9)),
    (FACTORY, "labels missing", "passed", emptied("passed", 0.3)),
    (BANK, "income per month in thousands", "income", times("income", 0.001)),
    (BANK, "rate as a share", "rate", times("rate", 0.01, digits=6)),
    (BANK, "term in years", "term", times("term", 1 / 12)),
    (BANK, "no column late_payments", "late_payments", lacking("late_payments")),
    (BANK, "employed 999 for missing", "employed", coded("employed", 999.0, 0.1)),
    (BANK, "utilisation in percent", "utilisation", times("utilisation", 100)),
    (BANK, "online as text", "online", mapped("online", {True: "web", False: "branch"})),
    (BANK, "rating with other levels", "rating", mapped("rating", {"A": "AAA", "B": "BBB", "C": "CCC", "D": "DDD"})),
    (BANK, "opened as text", "opened", changed("opened", lambda s: s.dt.strftime("%d.%m.%Y"))),
    (BANK, "purpose with one new level", "purpose", mapped("purpose", {"other": "misc"})),
    (WEATHER, "temperature in Kelvin", "temp", times("temp", 1, 273.15)),
    (WEATHER, "wind in knots", "wind", times("wind", 1.94384)),
    (WEATHER, "visibility in metres", "visibility", times("visibility", 1000)),
    (WEATHER, "radiation mostly missing", "radiation", emptied("radiation", 0.7)),
    (WEATHER, "direction in degrees", "direction", mapped("direction", {"N": 0, "E": 90, "S": 180, "W": 270})),
    (WEATHER, "humid soil constant", "soil_moisture", changed("soil_moisture", lambda s: s * 0 + 0.3)),
    (WEATHER, "pressure -9999 for missing", "pressure", coded("pressure", -9999.0, 0.05)),
    (WEATHER, "sky with a word for missing", "sky", coded("sky", "unknown", 0.2)),
    (WEATHER, "dew point under another case", "dew_point", renamed("dew_point", "Dew Point")),
    (WEATHER, "four rows", "", few_rows),
]


def named(seed: int) -> int:
    """How many mismatches are named; prints those that are not."""
    hits = 0
    for number, (domain, title, column, plant) in enumerate(MISMATCHES):
        rng = np.random.default_rng([seed, number])
        tables = domain.tables(seed + number)
        tables[domain.odd] = plant(tables[domain.odd], rng)
        found = up.check(tables, label=domain.label).findings
        hit = any((f.column, f.site) == (column, domain.odd) for f in found)
        hits += hit
        what = ", ".join(sorted({f.what for f in found if f.column == column and f.site == domain.odd}))
        print(f"  {title:<30} {what or 'NOT NAMED'}")
        for f in found:
            if f.column != column or f.site != domain.odd:
                print(f"      beside it: {f.what}: {f.site}: {f.text}")
    return hits


# ---- clean federations ----


def cut(table: pd.DataFrame, seed: int) -> Tables:
    """A published table over four sites of different sizes, rows at random."""
    rng = np.random.default_rng(seed)
    site = rng.choice(4, len(table), p=[0.4, 0.3, 0.2, 0.1])
    return {f"site{s}": table[site == s].reset_index(drop=True) for s in range(4)}


def clean() -> dict[str, Tables]:
    """Ten federations without mismatches: two of each domain, four published tables."""
    domains = {"factory": FACTORY, "bank": BANK, "weather": WEATHER}
    found = {f"{name} {seed}": domain.tables(seed) for name, domain in domains.items() for seed in (200, 201)}
    for number, name in enumerate(("fair", "anes96", "randhie", "modechoice")):
        table = getattr(sm.datasets, name).load_pandas().data.head(4000)
        found[name] = cut(table, number)
    return found


def main() -> None:
    print(f"{len(MISMATCHES)} planted mismatches over four sites")
    print(f"named: {named(3024)} of {len(MISMATCHES)}")
    print_findings(clean())


if __name__ == "__main__":
    main()
