"""`unpooled predict RUN FILE`: a finished run's model on the rows of a csv, parquet or npz file."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.commands import say

if TYPE_CHECKING:
    import numpy as np


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled predict`."""
    parser = commands.add_parser("predict", help="apply a finished run's model to a file", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("file", type=Path, metavar="FILE", help="the rows to predict")
    parser.add_argument("--client", help="predict with this client's personal model")
    parser.add_argument(
        "--site",
        metavar="NAME",
        help="read FILE as [sites.NAME] of the run's config says: names, units and levels of that site "
        "(default: the site that the file is named after, if there is one)",
    )
    parser.add_argument(
        "--id",
        action="append",
        default=[],
        metavar="COLUMN",
        help="copy this column into the output; may be given several times",
    )
    parser.add_argument(
        "--keep", action="store_true", help="copy every column that the model does not use into the output"
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="SHARE",
        help="add lower and upper ends, 0.9 for 90 %% intervals: of what is predicted, of its mean for GLM and LinearRegression, "
        "of every number filled in for an imputer",
    )
    parser.add_argument("--out", type=Path, help="write to this file instead of printing")
    parser.add_argument("--json", action="store_true", help="print one JSON object of columns")
    return parser


def run(args: argparse.Namespace) -> int:
    """Predict for every row of the file and write ids, answers and intervals as csv or JSON."""
    from unpooled import store
    from unpooled.data import files
    from unpooled.errors import BadData
    from unpooled.saving import load

    model = load(args.folder)
    table = files.read_table(args.file)
    if not any(map(len, table.values())):
        raise BadData(f"{args.file} has column names and no rows: there is nothing to predict")
    own = site_columns(args.folder, args.site, files.stem(args.file))
    x = rows(model, table, str(args.file), own)
    used = [*names_of(model), *(entry.name for entry in own.values() if entry.name)]
    kept = carried(table, used, declared_ids(args.folder), args.id, args.keep)
    some = predictable(model, x, str(args.file))
    found = answers(model, x[some], args.client) | intervals(model, x[some], args.interval)
    columns = kept | {name: _spread(values, some) for name, values in found.items()}
    text = f"{json.dumps(columns)}\n" if args.json else _csv(columns)
    if args.out:
        store.write_file(args.out, text.encode())
        print(args.out)
    else:
        sys.stdout.write(text)
    return 0


def names_of(model: Any) -> list[str]:
    """The columns of a table that the model uses; none if they have no names."""
    schema = getattr(model, "schema_", None)
    return [c["name"] for c in schema] if schema is not None else list(getattr(model, "columns_", None) or ())


def site_columns(folder: Path, site: str | None, stem: str) -> dict[str, Any]:
    """How a site writes the columns: [sites.NAME] of the run's config, for `site` or for the file's own name."""
    from unpooled.data.schema import read_own
    from unpooled.errors import BadParameter, suggest

    known = _section(folder, "sites")
    if site is not None and site not in known:
        raise BadParameter(f"the run's config has no [sites.{site}]: {suggest(site, known)}")
    name = site or stem
    if site is None and name in known:
        say(f"the file is read as [sites.{name}] of the run's config says")
    return read_own(known.get(name, {}), f"[sites.{name}]")


def rows(model: Any, table: dict[str, Any], where: str, own: dict[str, Any] | None = None) -> np.ndarray:
    """The model's columns of a table, encoded as those of the fit were, in the model's order."""
    from unpooled.data.frames import fitted_with, matrix
    from unpooled.data.schema import Schema
    from unpooled.data.tabled import encoded_columns

    names = names_of(model)
    if own and names:
        schema = None if hasattr(model, "schema_") else Schema.from_toml(dict.fromkeys(names, "real"))
        return _finite(encoded_columns(model, table, where, own, schema), names, where)
    found = fitted_with(names or table, table, where)
    x = encoded_columns(model, found, where) if hasattr(model, "schema_") else matrix(found, where)
    return _finite(x, list(found), where)


def _finite(x: np.ndarray, names: list[str], where: str) -> np.ndarray:
    """The rows, refused if some value is infinite."""
    import numpy as np

    from unpooled.errors import BadData

    wrong = np.argwhere(np.isinf(x))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise BadData(
            f"{where} holds infinite values in column {names[column]!r} (row {row + 1:,}): leave these cells empty"
        )
    return x


def predictable(model: Any, x: np.ndarray, where: str) -> np.ndarray:
    """Which rows the model has an answer for; one that was fitted to complete rows has none for others."""
    import warnings

    import numpy as np

    from unpooled.errors import BadData, DataWarning

    complete = ~np.isnan(x).any(1)
    if getattr(model, "missing", None) not in ("drop", "refuse") or complete.all():
        return np.ones(len(x), bool)
    name = type(model).__name__
    if not complete.any():
        raise BadData(f"every row of {where} has missing values, which {name} cannot predict: fill them in first")
    warnings.warn(
        f"{(~complete).sum():,} rows of {where} have missing values, which {name} cannot predict: their answers are empty",
        DataWarning,
        stacklevel=2,
    )
    return complete


def _spread(values: list, some: np.ndarray) -> list:
    """The values at the rows that have one, None at the others."""
    left = iter(values)
    return [next(left) if has else None for has in some.tolist()]


# ---- columns that are carried through ----


def declared_ids(folder: Path) -> list[str]:
    """The columns that the run's config declares to be ids."""
    kinds = _section(folder, "columns")
    return [
        name for name, entry in kinds.items() if "id" in (entry, entry.get("kind") if isinstance(entry, dict) else "")
    ]


def _section(folder: Path, name: str) -> dict[str, Any]:
    """A section of the run's config; empty if there is none."""
    from unpooled import config

    path = folder / "config.toml"
    return config.read(path).get(name, {}) if path.exists() else {}


def carried(
    table: dict[str, Any], used: list[str], declared: list[str], wanted: list[str], everything: bool
) -> dict[str, list]:
    """The columns that are not the model's and go through as they are: ids, those asked for, or all."""
    import numpy as np

    from unpooled.data.check.profile import ID_NAME
    from unpooled.errors import BadParameter, suggest

    unknown = next((name for name in wanted if name not in table), None)
    if unknown is not None:
        raise BadParameter(f"--id {unknown} is not a column of the file: {suggest(unknown, table)}")
    others = [name for name in table if name not in used]
    ids = [name for name in others if name in declared or (used and not declared and ID_NAME.search(name))]
    names = others if everything else list(dict.fromkeys([*ids, *wanted]))
    return {name: _plain(np.asarray(table[name])) for name in names}


def _plain(values: np.ndarray) -> list:
    """A column as plain Python values: dates as texts, gaps as empty fields."""
    import numpy as np

    if values.dtype.kind == "M":
        return [None if np.isnat(v) else str(v) for v in values]
    return ["" if v is None else v for v in values.tolist()]


def intervals(model: Any, x: np.ndarray, share: float | None) -> dict[str, list]:
    """The ends of intervals: one per row, or for an imputer one per number that was filled in."""
    from unpooled.errors import BadParameter

    if share is None:
        return {}
    if not hasattr(model, "interval"):
        raise BadParameter(f"{type(model).__name__} has no intervals: leave --interval out")
    lower, upper = model.interval(x, share)
    if lower.ndim == 1:
        return {"lower": lower.tolist(), "upper": upper.tolist()}
    return _ends_of_gaps(model, x, {"lower": _table(model, lower), "upper": _table(model, upper)})


def _ends_of_gaps(model: Any, x: np.ndarray, ends: dict[str, dict[str, list]]) -> dict[str, list]:
    """The ends beside every column of numbers, as NAME_lower and NAME_upper; empty where the number was measured."""
    import numpy as np

    levels = {c["name"] for c in getattr(model, "schema_", ()) if c.get("levels") or c["kind"] == "binary"}
    found = {}
    for name, gaps in zip(ends["lower"], np.isnan(x).T.tolist()):
        for end, columns in ends.items() if name not in levels else ():
            found[f"{name}_{end}"] = [value if gap else None for value, gap in zip(columns[name], gaps)]
    return found


def answers(model: Any, x: np.ndarray, client: str | None = None) -> dict[str, list]:
    """The model's output per row as columns: predictions, probabilities, densities; or the rows filled in, for an
    imputer.
    """
    import numpy as np

    options = _client_option(model, client)
    if not hasattr(model, "predict"):
        return _table(model, np.asarray(model.transform(x)))
    if "return_std" in signature(model.predict).parameters:
        output = dict(zip(("prediction", "std"), model.predict(x, return_std=True, **options)))
    else:
        output = {"prediction": model.predict(x, **options)}
    if hasattr(model, "predict_proba"):
        proba = np.asarray(model.predict_proba(x, **options))
        classes = [f"p_{c}" for c in getattr(model, "classes_", ())]
        output |= zip(classes or _numbered("p", proba), proba.T)
    if hasattr(model, "score_samples"):
        output["log_density"] = model.score_samples(x, **options)
    return {name: np.asarray(values).tolist() for name, values in output.items()}


def _table(model: Any, filled: np.ndarray) -> dict[str, list]:
    """Rows that a model made as columns by name, with levels by name and dates as dates."""
    from unpooled.data.schema import Schema, decode

    if not hasattr(model, "schema_"):
        names = getattr(model, "get_feature_names_out", lambda: model.columns_ or _numbered("x", filled))()
        return dict(zip(names, filled.T.tolist()))
    return {name: _plain(values) for name, values in decode(Schema.from_list(model.schema_), filled).items()}


def _client_option(model: Any, client: str | None) -> dict[str, str]:
    """{"client": client} for a model with personal predictions, {} without a client; refused if the model has none."""
    from unpooled.errors import BadParameter

    name = type(model).__name__
    method = getattr(model, "predict", getattr(model, "transform", None))
    if method is None:
        raise BadParameter(f"{name} makes no predictions for rows: read its attributes with unpooled.load")
    if client is not None and "client" not in signature(method).parameters:
        raise BadParameter(f"{name} is one model for all clients: leave --client out")
    return {} if client is None else {"client": client}


def _numbered(letter: str, values: np.ndarray) -> list[str]:
    """Names for the columns of an array: p0, p1, ..."""
    return [f"{letter}{i}" for i in range(values.shape[1])]


def _csv(columns: dict[str, list]) -> str:
    """The columns as the text of a csv file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values()))
    return out.getvalue()
