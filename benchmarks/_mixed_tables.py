"""Tables of numbers and levels for imputation_mixed.py: each is a frame and the site of every row.

Heart disease, PhysioNet's stays and abalones are files of the folder that UNPOOLED_DATA names; breast cancer (gbsg2), lung cancer
(lung) and regimes (dd) come with lifelines; affairs (fair) and an election study (anes96) with statsmodels. Three are files of a second
folder, UNPOOLED_TABLES: penguins.csv of the package palmerpenguins, Wage.csv of the package ISLP, and the PRSA_Data_*.csv of Beijing's
twelve stations as the UCI repository has them.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from lifelines import datasets as lifelines_tables
from statsmodels import datasets as statsmodels_tables

from unpooled.datasets import shared

Table = tuple[pd.DataFrame, np.ndarray]
EVERY = 40  # of the hours at a station


def heart() -> Table:
    table = pd.read_csv(shared.find("heart_disease_4hospitals"))
    site = table.pop("hospital").to_numpy()
    levels = ["sex", "cp", "fbs", "restecg", "exang", "slope", "thal"]
    return _with_levels(table.astype(float).drop(columns=["ca"]), levels), site


def penguins() -> Table:
    table = pd.read_csv(_folder() / "penguins.csv")
    site = table.pop("year").to_numpy()
    return _with_levels(table, ["species", "island", "sex"]), site


def stations() -> Table:
    files = sorted(_folder().glob("PRSA_Data_*.csv"))
    parts = [pd.read_csv(f, skiprows=lambda i: i % EVERY != 0) for f in files]
    table = pd.concat(parts, ignore_index=True)
    names = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "WSPM"]
    return _with_levels(table[[*names, "wd"]], ["wd"]), table["station"].to_numpy()


def physionet() -> Table:
    """Means over the first two days of what is measured in most stays, with sex, unit, ventilation and death."""
    stays = shared.physionet()
    with np.errstate(invalid="ignore"):
        counts = (~np.isnan(stays.x)).sum(axis=1)
        means = np.where(counts > 0, np.nansum(stays.x, axis=1) / np.maximum(counts, 1), np.nan)
    often = (counts > 0).mean(axis=0) > 0.6
    table = pd.DataFrame({n: means[:, j] for j, n in enumerate(stays.columns) if often[j] and n != "MechVent"})
    static = pd.DataFrame(stays.static, columns=stays.static_columns)
    ventilated = (counts[:, stays.columns.index("MechVent")] > 0).astype(float)
    table = table.assign(Age=static["Age"], Gender=static["Gender"].where(static["Gender"] >= 0))
    table = table.assign(unit=static["ICUType"], ventilated=ventilated, died=stays.y.astype(float))
    table = table.drop(columns=[c for c in ("Weight",) if c in table]).astype(float)
    return _with_levels(table, ["Gender", "unit", "ventilated", "died"]), np.arange(len(table)) % 4


def fair() -> Table:
    table = statsmodels_tables.fair.load_pandas().data.astype(float)
    levels = ["rate_marriage", "religious", "educ", "occupation", "occupation_husb"]
    return _with_levels(table, levels), np.arange(len(table)) % 4


def anes96() -> Table:
    table = statsmodels_tables.anes96.load_pandas().data.astype(float).drop(columns=["popul"])
    return _with_levels(table, ["selfLR", "ClinLR", "DoleLR", "PID", "educ", "vote"]), np.arange(len(table)) % 4


def wage() -> Table:
    table = pd.read_csv(_folder() / "Wage.csv").drop(columns=["region", "wage"])
    levels = ["maritl", "race", "education", "jobclass", "health", "health_ins"]
    return _with_levels(table.astype({"year": float, "age": float}), levels), np.arange(len(table)) % 4


def abalone() -> Table:
    data = shared.clustering("abalone", y="sex")
    table = pd.DataFrame(data.x, columns=[f"x{j}" for j in range(data.x.shape[1])])
    return _with_levels(table.assign(sex=data.y), ["sex"]), np.arange(len(table)) % 4


def gbsg2() -> Table:
    table = lifelines_tables.load_gbsg2()
    numbers = [c for c in table if pd.api.types.is_numeric_dtype(table[c]) and c != "cens"]
    table = table.astype(dict.fromkeys(numbers, float))
    return _with_levels(table, [c for c in table if c not in numbers]), np.arange(len(table)) % 4


def lung() -> Table:
    table = lifelines_tables.load_lung().astype(float)
    return _with_levels(table, ["status", "sex", "ph.ecog"]), np.arange(len(table)) % 3


def dd() -> Table:
    table = lifelines_tables.load_dd()
    levels = ["un_continent_name", "democracy", "regime", "observed"]
    table = table[[*levels, "start_year", "duration"]].astype({"start_year": float, "duration": float})
    return _with_levels(table, levels), np.arange(len(table)) % 4


TABLES = {
    "heart": heart,
    "penguins": penguins,
    "stations": stations,
    "physionet": physionet,
    "fair": fair,
    "anes96": anes96,
    "wage": wage,
    "abalone": abalone,
    "gbsg2": gbsg2,
    "lung": lung,
    "dd": dd,
}


def _folder() -> Path:
    return Path(os.environ["UNPOOLED_TABLES"])


def _with_levels(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The table with these columns as texts that are not numbers, so that they are categories."""
    return table.assign(**{name: table[name].map(_text).astype(object) for name in names})


def _text(value: object) -> str | None:
    if pd.isna(value):
        return None
    return value if isinstance(value, str) else f"level {value:g}"
