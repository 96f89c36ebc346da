"""`unpooled predict RUN FILE`: a finished run's model on the rows of a csv, parquet or npz file."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def add_parser(commands: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser("predict", help="apply a finished run's model to a file", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--client", help="predict with this client's personal model")
    parser.add_argument("--out", type=Path, help="write a csv here instead of printing it")
    parser.add_argument("--json", action="store_true", help="print one JSON object of columns")
    return parser


def run(args: argparse.Namespace) -> int:
    from unpooled.estimator import load

    model = load(args.folder)
    x = rows(model, args.file)
    columns = answers(model, x, {"client": args.client} if args.client else {})
    if args.json:
        print(json.dumps({name: values.tolist() for name, values in columns.items()}))
    elif args.out:
        with args.out.open("w", newline="") as out:
            _write(out, columns)
        print(args.out)
    else:
        _write(sys.stdout, columns)
    return 0


def rows(model: Any, path: Path) -> np.ndarray:
    """The model's columns of a file, in the model's order; other columns are left aside."""
    from unpooled.data import files
    from unpooled.data.frames import matrix
    from unpooled.errors import BadData, suggest

    found = files.read(path)
    wanted = list(getattr(model, "columns_", None) or found)
    for name in wanted:
        if name not in found:
            raise BadData(f"{path} has no column {name!r}, which the model was fitted with: {suggest(name, found)}")
    return matrix({name: found[name] for name in wanted}, str(path))


def answers(model: Any, x: np.ndarray, how: dict[str, str]) -> dict[str, np.ndarray]:
    """Everything the model says of each row, one column a thing."""
    columns = {"prediction": np.asarray(model.predict(x, **how))}
    if hasattr(model, "predict_proba"):
        columns |= {f"p{i}": p for i, p in enumerate(np.asarray(model.predict_proba(x, **how)).T)}
    if hasattr(model, "score_samples"):
        columns["log_density"] = np.asarray(model.score_samples(x, **how))
    return columns


def _write(out: Any, columns: dict[str, np.ndarray]) -> None:
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values())))
