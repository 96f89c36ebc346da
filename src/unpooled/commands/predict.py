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

if TYPE_CHECKING:
    import numpy as np


def add_parser(commands: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser("predict", help="apply a finished run's model to a file", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--client", help="predict with this client's personal model")
    parser.add_argument("--out", type=Path, help="write to this file instead of printing")
    parser.add_argument("--json", action="store_true", help="print one JSON object of columns")
    return parser


def run(args: argparse.Namespace) -> int:
    from unpooled import store
    from unpooled.estimator import load

    model = load(args.folder)
    columns = answers(model, rows(model, args.file), args.client)
    text = f"{json.dumps(columns)}\n" if args.json else _csv(columns)
    if args.out:
        store.write_file(args.out, text.encode())
        print(args.out)
    else:
        sys.stdout.write(text)
    return 0


def rows(model: Any, path: Path) -> np.ndarray:
    """The model's columns of a file, in the model's order; other columns are ignored."""
    from unpooled.data import files
    from unpooled.data.frames import fitted_with, matrix

    found = files.read(path)
    return matrix(fitted_with(getattr(model, "columns_", None) or found, found, str(path)), str(path))


def answers(model: Any, x: np.ndarray, client: str | None = None) -> dict[str, list]:
    """The model's output per row as columns: predictions, probabilities, densities; or the rows filled in, for an
    imputer.
    """
    import numpy as np

    options = _client_option(model, client)
    if not hasattr(model, "predict"):
        filled = np.asarray(model.transform(x))
        names = getattr(model, "get_feature_names_out", lambda: model.columns_ or _numbered("x", filled))()
        return dict(zip(names, filled.T.tolist()))
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


def _client_option(model: Any, client: str | None) -> dict[str, str]:
    """{"client": client} for a model with personal predictions, {} without a client; refused if the model has none."""
    from unpooled.errors import BadParameter

    name, method = type(model).__name__, getattr(model, "predict", getattr(model, "transform", None))
    if method is None:
        raise BadParameter(f"{name} makes no predictions for rows: read its attributes with unpooled.load")
    if client is not None and "client" not in signature(method).parameters:
        raise BadParameter(f"{name} is one model for all clients: leave --client out")
    return {} if client is None else {"client": client}


def _numbered(letter: str, values: np.ndarray) -> list[str]:
    return [f"{letter}{i}" for i in range(values.shape[1])]


def _csv(columns: dict[str, list]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values()))
    return out.getvalue()
