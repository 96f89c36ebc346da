"""Real data sets for experiments and optional tests, from a folder of files that is not part of the package.

The folder is UNPOOLED_DATA, else `../shared/data` beside the repository. Nothing is downloaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unpooled.data.files import Columns, read_csv
from unpooled.data.schema import Texts
from unpooled.errors import BadParameter, DataNotFound, suggest


class Dataset(NamedTuple):
    """One table."""

    x: np.ndarray  # (n, d) float64, NaN is missing
    y: np.ndarray  # (n,)
    columns: list[str]  # (d,)
    groups: np.ndarray | None = None  # (n,) the natural client of each row


class Images(NamedTuple):
    """Training and test images with their labels."""

    x_train: np.ndarray  # (n, 28, 28) uint8; (n, 32, 32, 3) in colour
    y_train: np.ndarray  # (n,) uint8
    x_test: np.ndarray
    y_test: np.ndarray


class Labelled(NamedTuple):
    """Rows and their classes."""

    x: np.ndarray  # (n, ...)
    y: np.ndarray  # (n,) an index into classes
    classes: np.ndarray  # (k,) str
    groups: np.ndarray | None = None  # (n,)


class Counts(NamedTuple):
    """Counts by site and time."""

    counts: np.ndarray  # (sites, times) float64, NaN is missing
    sites: np.ndarray  # (sites,)
    times: np.ndarray  # (times,) the year, or year + (month - 1) / 12


class Stays(NamedTuple):
    """Hourly measurements of stays in intensive care."""

    x: np.ndarray  # (n, 48, 37) float32, NaN is missing
    static: np.ndarray  # (n, 5)
    y: np.ndarray  # (n,) death in hospital
    columns: list[str]  # (37,)
    static_columns: list[str]  # (5,)
    groups: np.ndarray  # (n,) type of intensive care unit, 1 to 4


class Engines(NamedTuple):
    """Cycles of engines run to failure."""

    train: np.ndarray  # (n, 26) float32; unit, cycle, settings, sensors
    test: np.ndarray  # (m, 26)
    rul: np.ndarray  # (engines,) cycles left after the last row of each test engine
    columns: list[str]  # (26,)
    groups: np.ndarray  # (n,) "FD001-7": the engine of each row of train
    test_groups: np.ndarray  # (m,)


# ---- finding files ----


def folder() -> Path | None:
    """The folder of data sets, or None."""
    given = os.environ.get("UNPOOLED_DATA")
    path = Path(given) if given else Path(__file__).resolve().parents[4] / "shared" / "data"
    return path if path.is_dir() else None


def find(name: str) -> Path:
    """The file called `name` (its suffix may be left out) anywhere in the folder."""
    root = folder()
    if root is None:
        raise DataNotFound(
            f"the data set {name!r} is not part of unpooled: set UNPOOLED_DATA to a folder that holds its file"
        )
    files = {p.name.split(".")[0]: p for p in sorted(root.rglob("*.*z"))}
    key = name.split(".")[0]
    if key not in files:
        raise DataNotFound(f"{root} (from UNPOOLED_DATA or ../shared/data) has no {name!r}: {suggest(key, files)}")
    return files[key]


def table(name: str) -> Columns:
    """The columns of a csv.gz file by its name: table("ccpp_raw")["EP"]."""
    columns = read_csv(find(name))
    return {c: np.asarray(v) if isinstance(v, Texts) else v for c, v in columns.items()}


def arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file by its name."""
    with np.load(find(name), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _dataset(columns: Columns, target: str, *, drop: tuple[str, ...] = (), groups: str | None = None) -> Dataset:
    """Columns as a matrix, its target, and the group of each row where there is one."""
    if target not in columns:
        raise BadParameter(f"target={target!r} is not a column: {suggest(target, columns)}")
    names = [c for c in columns if c not in {target, groups, *drop}]
    x = np.stack([columns[c].astype(np.float64) for c in names], axis=1)
    return Dataset(x, columns[target], names, columns[groups] if groups else None)


def _indicators(columns: Columns, name: str) -> Columns:
    """One 0/1 column per value: {"Seasons=Winter": ...}."""
    values = columns[name].astype(str)
    return {f"{name}={v}": (values == v).astype(np.float64) for v in np.unique(values)}


# ---- images ----


def mnist() -> Images:
    """MNIST: 60,000 and 10,000 images of 28 x 28."""
    return Images(**arrays("mnist"))


def fashion_mnist() -> Images:
    """Fashion-MNIST: 60,000 and 10,000 images of 28 x 28."""
    return Images(**arrays("fashion_mnist"))


def cifar10() -> Images:
    """50,000 and 10,000 colour photographs of 32 x 32 pixels, (n, 32, 32, 3)."""
    return Images(**arrays("cifar10"))


def emnist() -> Labelled:
    """30,000 characters of 62 classes; no writers."""
    a = arrays("emnist_byclass_30k")
    return Labelled(a["x"], a["y"], a["classes"])


# ---- clusters ----


def clustering(name: str, y: str = "y") -> Labelled:
    """One of the clustering sets: clustering("pendigits"), clustering("abalone", y="sex")."""
    a = arrays("clustering")
    names = [key.removesuffix("__X") for key in a if key.endswith("__X")]
    if name not in names:
        raise BadParameter(f"there is no clustering set {name!r}: {suggest(name, names)}")
    targets = [k.removeprefix(f"{name}__") for k in a if k.startswith(f"{name}__") and k[-2:] != "_X"]
    if y not in targets:
        raise BadParameter(f"y={y!r} is not a label of {name}: {suggest(y, targets)}")
    labels = a[f"{name}__{y}"]
    classes = a[f"{name}__classes"] if y == "y" else np.unique(labels).astype(str)
    return Labelled(a[f"{name}__X"].astype(np.float64), labels, classes, a.get(f"{name}__recordid"))


# ---- regression ----


def skillcraft() -> Dataset:
    """LeagueIndex of players; incomplete rows left out."""
    data = _dataset(table("skillcraft_raw"), "LeagueIndex")
    complete = ~np.isnan(data.x).any(axis=1)
    return data._replace(x=data.x[complete], y=data.y[complete].astype(np.float64))


def sml2010(target: str = "Temperature_Comedor_Sensor") -> Dataset:
    """An indoor temperature from the other sensors of a house; groups are the two source files."""
    return _dataset(table("sml2010_raw"), target, drop=("Date", "Time"), groups="part")


def parkinsons(target: str = "total_UPDRS") -> Dataset:
    """A UPDRS score from voice; the other score is left out; groups are the 42 subjects."""
    scores = ("total_UPDRS", "motor_UPDRS")
    return _dataset(table("parkinsons_telemonitoring_raw"), target, drop=scores, groups="subject#")


def seoul_bike() -> Dataset:
    """Rented bikes by the hour; season, holiday and functioning day as indicators; groups are the seasons."""
    columns = table("seoul_bike_raw")
    columns |= _indicators(columns, "Seasons")
    columns["Holiday"] = (columns["Holiday"] == "Holiday").astype(np.float64)
    columns["FunctioningDay"] = (columns["FunctioningDay"] == "Yes").astype(np.float64)
    data = _dataset(columns, "RentedBikeCount", drop=("Date",), groups="Seasons")
    return data._replace(y=data.y.astype(np.float64))


def ccpp() -> Dataset:
    """Electric power EP of a plant, in MW."""
    return _dataset(table("ccpp_raw"), "EP")


# ---- tables with gaps ----


def heart_disease() -> Dataset:
    """Heart disease (y = num > 0) in four hospitals; a cholesterol or blood pressure of 0 is a missing value.

    No living patient has either: it is so in all 123 Swiss rows, and in 49 rows from the VA hospital.
    """
    data = _dataset(table("heart_disease_4hospitals"), "num", groups="hospital")
    for name in ("chol", "trestbps"):
        values = data.x[:, data.columns.index(name)]
        values[values == 0] = np.nan
    return data._replace(y=(data.y > 0).astype(np.int64))


def beijing() -> Dataset:
    """Hourly pm2.5 (with gaps) and weather; wind direction as indicators; groups are the years."""
    columns = table("beijing_pm25")
    columns |= _indicators(columns, "cbwd")
    return _dataset(columns, "pm2.5", drop=("No", "cbwd"), groups="year")


def physionet() -> Stays:
    """48 hours of 37 measurements of 8000 patients, 81 % missing; both halves (a, then b) of the challenge."""
    a = arrays("physionet2012_hourly")
    x, static, y = (np.concatenate([a[f"{part}_a"], a[f"{part}_b"]]) for part in ("x", "static", "y"))
    names = [str(n) for n in a["static_vars"]]
    unit = static[:, names.index("ICUType")].astype(np.int64)
    return Stays(x, static, y, [str(n) for n in a["variables"]], names, unit)


def cmapss() -> Engines:
    """Turbofans FD001 and FD003."""
    held = arrays("cmapss_fd001_fd003")
    sets = ("FD001", "FD003")

    def both(part: str) -> np.ndarray:
        """The rows of both sets."""
        return np.concatenate([held[f"{part}_{name}"] for name in sets])

    def engines(part: str) -> np.ndarray:
        """The engine of each row: the set and the unit's number."""
        return np.concatenate([[f"{name}-{unit:.0f}" for unit in held[f"{part}_{name}"][:, 0]] for name in sets])

    columns = [str(c) for c in held["columns"]]
    return Engines(both("train"), both("test"), both("rul"), columns, engines("train"), engines("test"))


# ---- counts ----


def oystercatcher() -> Counts:
    """Monthly counts at 138 sites, 60 % missing."""
    columns = table("oystercatcher_counts")
    return _counts(columns, columns["year"] + (columns["month"] - 1) / 12)


def skylark() -> Counts:
    """Yearly counts at 55 sites, 238 missing; habitat and weights are in table("skylark_counts")."""
    columns = table("skylark_counts")
    return _counts(columns, columns["year"])


def _counts(columns: Columns, when: np.ndarray) -> Counts:
    """Counts as a matrix of sites by times, NaN where nobody counted."""
    sites, row = np.unique(columns["site"], return_inverse=True)
    times, column = np.unique(when, return_inverse=True)
    counts = np.full((len(sites), len(times)), np.nan)
    counts[row, column] = columns["count"]
    return Counts(counts, sites.astype(np.str_), times)
