"""Thirty planted mismatches over four sites, each named by `check`; and ten clean federations, where it names none.

python benchmarks/check_mismatches.py
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

import unpooled as up
from unpooled.data import builtin

SITES = ("basel", "geneva", "lausanne", "zurich")
ODD = "zurich"  # where mismatches are planted
Tables = dict[str, pd.DataFrame]


def hospital(site: str, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Patients of one hospital; hospitals differ in case mix, as real ones do."""
    older = rng.normal(0, 3)
    male = rng.random(rows) < rng.uniform(0.4, 0.7)
    age = np.clip(rng.normal(61 + older, 11, rows), 18, 99).round()
    height = rng.normal(164, 7, rows) + 12 * male
    chol = rng.normal(212 + rng.normal(0, 8), 40, rows).clip(90)
    days = pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 700, rows), "D")
    frame = pd.DataFrame(
        {
            "patient": [f"{site[:2].upper()}{i:05d}" for i in rng.permutation(90_000)[:rows]],
            "age": age,
            "sex": np.where(male, "male", "female"),
            "height": height.round(1),
            "weight": (rng.normal(27, 4, rows) * (height / 100) ** 2).round(1),
            "chol": chol.round(),
            "glucose": (80 + rng.gamma(3, 10, rows)).round(),
            "hba1c": rng.normal(6.1, 0.8, rows).clip(4).round(1),
            "creatinine": rng.lognormal(-0.05, 0.3, rows).round(2),
            "temperature": rng.normal(36.8, 0.5, rows).round(1),
            "ejection": rng.normal(55, 9, rows).clip(15, 80).round(),
            "platelets": rng.normal(245, 55, rows).clip(40).round(),
            "pain": rng.choice(["none", "typical", "atypical"], rows, p=[0.5, 0.3, 0.2]),
            "smoker": rng.random(rows) < 0.3,
            "stage": rng.choice([1, 2, 3, 4], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "visit": days,
            "event": rng.choice(["no", "yes"], rows, p=[0.75, 0.25]),
        }
    )
    for column in ("chol", "glucose", "hba1c", "creatinine"):
        frame.loc[rng.random(rows) < rng.uniform(0.01, 0.12), column] = np.nan
    return frame


def hospitals(seed: int) -> Tables:
    rng = np.random.default_rng(seed)
    return {site: hospital(site, int(rng.integers(120, 400)), rng) for site in SITES}


# ---- mismatches: (what is named, in which column, how it is planted) ----

Plant = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]


def scaled(column: str, factor: float, digits: int = 2) -> Plant:
    return lambda t, rng: t.assign(**{column: (t[column] * factor).round(digits)})


def coded(column: str, code: float | str, share: float = 0.08) -> Plant:
    def plant(t: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        values = t[column].astype(object) if isinstance(code, str) else t[column].copy()
        values[rng.random(len(t)) < share] = code
        return t.assign(**{column: values})

    return plant


def mapped(column: str, levels: dict) -> Plant:
    return lambda t, rng: t.assign(**{column: t[column].map(levels)})


def renamed(old: str, new: str) -> Plant:
    return lambda t, rng: t.rename(columns={old: new})


MISMATCHES: list[tuple[str, str, str, Plant]] = [
    ("age is called Alter", "name", "age", renamed("age", "Alter")),
    ("chol is called cholesterol", "name", "chol", renamed("chol", "cholesterol")),
    ("sex is called Gender", "name", "sex", renamed("sex", "Gender")),
    ("a space in the name", "name", "glucose", renamed("glucose", "Glucose ")),
    ("height in inches", "unit", "height", scaled("height", 1 / 2.54)),
    ("weight in pounds", "unit", "weight", scaled("weight", 2.2046)),
    ("chol in mmol/L", "unit", "chol", scaled("chol", 1 / 38.67)),
    ("glucose in mmol/L", "unit", "glucose", scaled("glucose", 1 / 18.02)),
    ("ejection as a fraction", "unit", "ejection", scaled("ejection", 0.01, 4)),
    ("platelets in single cells", "unit", "platelets", scaled("platelets", 1000)),
    ("creatinine in umol/L", "unit", "creatinine", scaled("creatinine", 88.42)),
    (
        "temperature in Fahrenheit",
        "unit",
        "temperature",
        lambda t, rng: t.assign(temperature=(1.8 * t.temperature + 32).round(1)),
    ),
    ("height in metres", "unit", "height", scaled("height", 0.01, 4)),
    (
        "chol standardised",
        "unit",
        "chol",
        lambda t, rng: t.assign(chol=((t.chol - t.chol.mean()) / t.chol.std()).round(3)),
    ),
    ("age in months", "unit", "age", scaled("age", 12)),
    ("sex as M and F", "levels", "sex", mapped("sex", {"male": "M", "female": "F"})),
    ("sex in capitals", "levels", "sex", mapped("sex", {"male": "Male", "female": "Female"})),
    ("pain in German", "levels", "pain", mapped("pain", {"none": "kein", "typical": "Angina", "atypical": "andere"})),
    ("event as ja and nein", "levels", "event", mapped("event", {"yes": "ja", "no": "nein"})),
    ("sex as 1 and 2", "kind", "sex", mapped("sex", {"male": 1, "female": 2})),
    ("event as 0 and 1", "kind", "event", mapped("event", {"no": 0, "yes": 1})),
    ("age as text", "kind", "age", lambda t, rng: t.assign(age=t.age.astype(int).astype(str) + " years")),
    (
        "decimal commas",
        "kind",
        "hba1c",
        lambda t, rng: t.assign(hba1c=[None if np.isnan(v) else str(v).replace(".", ",") for v in t.hba1c]),
    ),
    ("dates as 31.05.2021", "kind", "visit", lambda t, rng: t.assign(visit=t.visit.dt.strftime("%d.%m.%Y"))),
    ("0 for missing", "code", "chol", coded("chol", 0.0)),
    ("-9 for missing", "code", "glucose", coded("glucose", -9.0)),
    ("999 for missing", "code", "height", coded("height", 999.0)),
    ("unknown for missing", "code", "pain", coded("pain", "unknown")),
    ("no column of creatinine", "column", "creatinine", lambda t, rng: t.drop(columns="creatinine")),
    ("columns in another order", "order", "", lambda t, rng: t[[*t.columns[5:], *t.columns[:5]]]),
    ("patients twice", "id", "patient", lambda t, rng: pd.concat([t, t.sample(7, random_state=1)], ignore_index=True)),
]
MISMATCHES.remove(next(m for m in MISMATCHES if m[0] == "sex in capitals"))  # thirty, each of another sort


def planted(seed: int) -> int:
    """How many of the mismatches are named, with their column and site."""
    named = 0
    for i, (title, what, column, plant) in enumerate(MISMATCHES):
        tables, rng = hospitals(seed + i), np.random.default_rng(seed + i)
        tables[ODD] = plant(tables[ODD], rng)
        found = up.check(tables, label="event").findings
        hit = any((f.what, f.column, f.site) == (what, column, ODD) for f in found)
        named += hit
        others = [f for f in found if f.column not in (column, "") and f.site != ODD]
        mark = "named" if hit and not others else "named, and more" if hit else "NOT NAMED"
        print(f"  {title:<28} {mark}")
        for f in found if mark != "named" else ():
            print(f"      {f.what}: {f.site}: {f.text}")
    return named


# ---- clean federations ----


def clean() -> dict[str, Tables]:
    """Ten federations without mismatches: six of synthetic hospitals, four of scikit-learn's sets cut unevenly."""
    found = {f"hospitals {seed}": hospitals(seed) for seed in range(100, 106)}
    for name in ("iris", "wine", "breast_cancer", "diabetes"):
        data = builtin.load(name, clients=4, alpha=1.0)
        found[name] = {site: pd.DataFrame(x, columns=data.columns) for site, x in data.clients.items() if len(x) >= 10}
    return found


def print_findings(federations: dict[str, Tables]) -> None:
    """Print every finding in federations without mismatches."""
    print("\nclean federations")
    alarms = 0
    for name, tables in federations.items():
        found = up.check(tables).findings
        alarms += len(found)
        print(f"  {name:<16} {len(found)} findings")
        for f in found:
            print(f"      {f.what}: {f.site}: {f.text}")
    print(f"findings in clean federations: {alarms}")


def main() -> None:
    print(f"{len(MISMATCHES)} planted mismatches over four sites")
    print(f"named: {planted(2024)} of {len(MISMATCHES)}")
    print_findings(clean())


if __name__ == "__main__":
    main()
