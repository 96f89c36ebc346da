"""`unpooled compare FILE.toml [key=value ...]`: should these sites be pooled, and who gains? Fits `Pooling` to a config file's data.

It prints tests, held-out losses and a recommendation, and writes a page for each site into the run folder. A file that names another model
is taken for its data; the family of a GLM is kept, and the two labels of a classifier, 0 and 1, are compared by logistic regressions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unpooled.commands.run import add_options, carry_on, make_folder, read_file


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled compare`."""
    parser = commands.add_parser("compare", help="should sites be pooled, and who gains?", description=__doc__)
    parser.add_argument("file", type=Path, help="a TOML file with [data] or of a study, as `run` takes it")
    add_options(parser, "parameters of Pooling", "Pooling")
    return parser


def run(args: argparse.Namespace) -> int:
    """Fit Pooling as a run, and print its recommendation and tests."""
    from unpooled.errors import BadParameter
    from unpooled.saving import load

    wanted, study = read_file(args)
    if study is None:
        wanted["model"] = pooling_of(wanted.get("model", {}))
    elif wanted["model"]["name"] != "Pooling":
        raise BadParameter('this study approves another model: have the sites approve one with name = "Pooling"')
    folder = make_folder(args, wanted, study)
    code = carry_on(folder, args.json)
    if code == 0:
        _show(load(folder), folder, args.json)
    return code


def pooling_of(model: dict[str, Any]) -> dict[str, Any]:
    """The section [model] of a comparison, from that of another model."""
    if model.get("name") == "Pooling":
        return model
    family = model.get("family") if model.get("name") == "GLM" else _family_of(model.get("name"))
    return {"name": "Pooling", "random_state": 0} | ({} if family is None else {"family": family})


def _family_of(name: str | None) -> str | None:
    """The family of a model's targets: two labels of a classifier; None where there is no model."""
    from sklearn.base import ClassifierMixin

    from unpooled.config import model_class

    if name is None:
        return None
    return "binomial" if issubclass(model_class(name), ClassifierMixin) else "normal"


def _show(model: Any, folder: Path, as_json: bool) -> None:
    """Print what was found, and write the sites' pages."""
    pages = write_pages(model, folder)
    if as_json:
        found = {"tests": model.tests_, "losses": model.losses_, "recommended": model.recommended_}
        print(json.dumps(found | {"model": model.model_, "reason": model.reason_, "pages": [str(p) for p in pages]}))
        return
    print(f"\n{model.to_text()}")
    if pages:
        print(f"\na page for each site: {folder / 'sites'}")


def write_pages(model: Any, folder: Path) -> list[Path]:
    """One text file for each site."""
    from unpooled import store

    if model.sites_:
        (folder / "sites").mkdir(exist_ok=True)
    written = []
    for name in sorted(model.sites_):
        plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
        path = folder / "sites" / f"{plain}.txt"
        store.write_file(path, f"{model.page(name)}\n".encode())
        written.append(path)
    return written
