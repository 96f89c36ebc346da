"""`unpooled reproduce [NAME]`: list the experiments, or run one and print our figures beside the paper's."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from unpooled.commands import add_json, show
from unpooled.errors import BadParameter, suggest


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled reproduce`."""
    parser = commands.add_parser(
        "reproduce", help="run an experiment, the paper's figures beside ours", description=__doc__
    )
    parser.add_argument("name", nargs="?", help="an experiment, as listed without a name")
    parser.add_argument("--small", action="store_true", help="a version of at most two minutes")
    parser.add_argument("--seeds", type=int, default=None, help="how many seeds (default: the experiment's own)")
    parser.add_argument("--out", type=Path, help="where its table goes (default: the experiment's results folder)")
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="the folder of experiments")
    add_json(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """List the experiments, or run one and write its table beside the paper's figures."""
    found = experiments(args.experiments)
    if args.name is None:
        claims = {name: claim(path) for name, path in found.items()}
        return show(args, claims, "\n".join(f"{name:<32}{text}" for name, text in claims.items()))
    if args.name not in found:
        raise BadParameter(f"there is no experiment {args.name!r}: {suggest(args.name, found)}")
    path = found[args.name]
    module = _load(path)
    out = args.out or path.parent / "results" / (path.stem + ("-small" if args.small else ""))
    out.mkdir(parents=True, exist_ok=True)
    say = (lambda text: None) if args.json else partial(print, file=sys.stderr, flush=True)
    seeds = args.seeds or getattr(module, "SEEDS", 3)
    rows = module.run(small=args.small, seeds=seeds, out=out, say=say)
    text = f"{markdown(rows)}\n\nWhat differs from the paper: {module.DIFFERS}\n"
    (out / "table.json").write_text(json.dumps(rows, indent=1))
    (out / "table.md").write_text(f"{claim(path)}\n\n{text}")
    return show(args, {"rows": rows, "out": str(out)}, f"{text}{out / 'table.md'}")


def experiments(folder: Path) -> dict[str, Path]:
    """name -> file: `paper/name` for every experiments/paper/name.py."""
    if not folder.is_dir():
        raise BadParameter(
            f"no experiments are found, since {folder} is not a folder: run this in a checkout, or give --experiments"
        )
    return {f"{p.parent.name}/{p.stem}": p for p in sorted(folder.glob("*/*.py")) if not p.stem.startswith("_")}


def claim(path: Path) -> str:
    """The first line of an experiment's docstring."""
    return path.read_text().split('"""')[1].strip().splitlines()[0]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Rows as a table, a column for every key that any row has."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    cells = [names, ["---"] * len(names)]
    for row in rows:
        cells.append([_cell(row.get(name)) for name in names])
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _cell(value: Any) -> str:
    """A value as a cell of a table."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _load(path: Path) -> ModuleType:
    """The experiment's module; its own folder is on the path, so that experiments of a paper can share a file."""
    sys.path.insert(0, str(path.parent.absolute()))
    spec = spec_from_file_location(f"experiment_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
