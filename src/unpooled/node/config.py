"""`node.toml`: who a node is, where its link and its data are, and what its columns are called in the federation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from unpooled import parameters, toml_text
from unpooled.errors import BadParameter, DataNotFound, suggest
from unpooled.node import policy
from unpooled.node.budget import preparation_of
from unpooled.node.ledger import Ledger
from unpooled.node.secrets import read_identity
from unpooled.node.site import Site
from unpooled.node.source import FileTable, SqlTable, Table, TableSource
from unpooled.node.vault import Folder

TEMPLATE = """\
name = {name}                  # how the federation knows this node
link = {link}                  # the coordinator's host:port
ca = "ca.crt"                  # the certificate that the coordinator sent
key = "node.key"               # this node's own; send node.pub to the coordinator

[data]
path = {path}                  # csv, csv.gz, parquet or npz; or: url = "postgresql+psycopg://..." and table = "..."
# label = "outcome"            # for models that learn from labels
# chunk_rows = 100000          # for tables larger than memory

# [data.columns]               # how this table writes the federation's columns; only those listed are offered (sex = "sex")
# age = "alter"                # another name
# height = {{name = "inches", unit = "in"}}          # another unit than the study's
# chol = {{unit = "mmol/L", factor = 38.67, missing = [0]}}
# sex = {{levels = {{w = "female", m = "male"}}}}       # other words
# thal = false                 # a column that this table does not have
"""

TOP = {  # key -> the kind of its value
    **dict.fromkeys(("name", "link", "ca", "key", "state", "policy", "ledger"), "str"),
    "questions": "list",
    "data": "Mapping",
}
DATA = {
    **dict.fromkeys(("path", "url", "table", "query", "order", "label", "sample_weight"), "str"),
    "chunk_rows": "int",
    "columns": "Mapping",
}


@dataclass(frozen=True)
class NodeConfig:
    """What the file says; paths are relative to it."""

    folder: Path
    name: str
    data: dict[str, Any]
    link: str = ""
    ca: Path | None = None
    key: Path | None = None
    paths: dict[str, Path] = field(default_factory=dict)  # state, policy, ledger
    questions: list[str] = field(default_factory=list)


def read(path: Path) -> NodeConfig:
    """Read a node.toml: every key known, of the right type, and a name that can be printed."""
    try:
        body = toml_text.loads(path.read_text())
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: `unpooled node init` writes one to start from") from error
    except (toml_text.TOMLError, UnicodeDecodeError) as error:
        raise BadParameter(f"{path} is not TOML: {error}") from error
    _known(body, TOP, path.name)
    data = body.get("data")
    if data is None:
        raise BadParameter(f"{path.name} has no [data]: say there where the rows are")
    _known(data, DATA, f"[data] of {path.name}")
    name = body.get("name")
    if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
        raise BadParameter(f'{path.name} has no name that can be printed: add name = "zurich"')
    folder = path.parent
    paths = {
        k: folder / body.get(k, d)
        for k, d in (("state", "state"), ("policy", "policy.toml"), ("ledger", "ledger.jsonl"))
    }
    ca, key = (folder / body[k] if k in body else None for k in ("ca", "key"))
    return NodeConfig(folder, name, data, body.get("link", ""), ca, key, paths, list(body.get("questions", ())))


def _known(body: dict[str, Any], names: dict[str, str], where: str) -> None:
    """Refuse keys that do not exist, suggesting the nearest one, and values of the wrong type."""
    for key in body:
        if key not in names:
            raise BadParameter(f"{where} has a key {key!r} that is not known: {suggest(key, sorted(names))}")
    try:
        parameters.check_types(body, names)
    except BadParameter as error:
        raise BadParameter(f"{where}: {error}") from None


def site(config: NodeConfig) -> Site:
    """The node that the file describes; everything that can be wrong with it is said now, before it connects."""
    rules = partial(policy.read, config.paths["policy"])
    rules()
    source = table_source(config)
    source.mapping  # noqa: B018  # reads the names of the columns, and complains
    vault = Folder(config.paths["state"])
    ledger = Ledger(config.paths["ledger"])
    identity = None if config.key is None or not config.key.is_file() else read_identity(config.key)
    return Site(config.name, source, vault, policy=rules, ledger=ledger, also=config.questions, identity=identity)


def table_source(config: NodeConfig) -> TableSource:
    """The source of a node's rows, with what its policy clips and how many rows of a patient it takes."""
    data = config.data
    options = {k: data[k] for k in ("columns", "label", "sample_weight", "chunk_rows") if k in data}
    budget = policy.read(config.paths["policy"]).privacy if config.paths["policy"].is_file() else None
    return TableSource(config.name, _table(config), preparation=preparation_of(budget), **options)


def _table(config: NodeConfig) -> Table:
    """The file or the database that [data] names."""
    data = config.data
    if ("path" in data) == ("url" in data):
        raise BadParameter("[data] needs either a path (a file) or a url (a database)")
    if "path" in data:
        return FileTable(config.folder / Path(data["path"]).expanduser())
    return SqlTable(data["url"], table=data.get("table"), query=data.get("query"), order=data.get("order"))
