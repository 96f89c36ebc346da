"""The config file of a run: read it, apply `key=value` overrides, check it, and build the model and the federation it
describes.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from unpooled import parameters, toml_text
from unpooled.data.schema import Schema, Wanted, read_own
from unpooled.data.schema.column import AUTO
from unpooled.errors import BadParameter, suggest
from unpooled.maths.folds import FOLDS
from unpooled.saving import estimator_class

SECTIONS = {  # section -> key -> type of its value
    "data": {"path": "str", "by": "str", "label": "str", "builtin": "str", "weight": "str", "columns": "list | str"},
    "federation": {
        "fraction": "float",
        "min_clients": "int",
        "n_jobs": "int",
        "threads": "int",
        "mode": "str",
        "link": "str",
        "timeout": "float",
        "wait": "float",
    },
}
SECTIONS["layers"] = {"secure": "bool", "levels": "int", "quantiser": "str"}
SECTIONS["layers"] |= {"max_share": "float", "ranges": "Mapping"}
SECTIONS["privacy"] = {"epsilon": "float", "delta": "float", "bounds": "Mapping", "colluding": "int"}
SECTIONS["validation"] = {"cv": "int"}
STUDY = ("study", "participants")  # sections that `unpooled.study` checks
TABLES = ("columns", "sites")  # kinds of columns, and how single sites write them
LINK_ONLY = ("link", "timeout", "wait")  # keys for runs over a link only; a run in this process ignores them

Config = dict[str, dict[str, Any]]


def read(path: Path) -> Config:
    """The sections of a TOML file; a path to data in it is relative to the file."""
    try:
        config = toml_text.loads(path.read_text())
    except OSError as error:
        raise BadParameter(f"{path} cannot be read: {error.strerror}") from error
    except (toml_text.TOMLError, UnicodeDecodeError) as error:
        raise BadParameter(f"{path} is not valid TOML: {error}") from error
    check_sections(config, str(path))
    config.setdefault("data", {})
    _make_absolute(config, path.parent)
    return config


def _make_absolute(config: Config, base: Path) -> None:
    """Make the path to data absolute."""
    data = config.get("data", {})
    if isinstance(data.get("path"), str):
        data["path"] = str((base / Path(data["path"]).expanduser()).absolute())


def override(config: Config, pairs: Iterable[str]) -> Config:
    """Apply overrides: `key=value` sets a parameter of the model, `section.key=value` any other key.

    Values are TOML, or else strings; a path is relative to the working directory.
    """
    config = {name: dict(section) for name, section in config.items()}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise BadParameter(f"{pair!r} is not an override: write key=value")
        section, _, name = key.rpartition(".")
        config.setdefault(section or "model", {})[name] = _value(text)
    _make_absolute(config, Path())
    return config


def _value(text: str) -> Any:
    """The value of an override: TOML where it can be read so, else the text itself."""
    try:
        return toml_text.loads(f"value = {text}")["value"]
    except toml_text.TOMLError:
        return text


def check(config: Config) -> None:
    """Refuse unknown names, with the nearest known one, and values of the wrong type, before any work is done."""
    check_sections(config, "the config")
    model = config.get("model", {})
    if "name" not in model:
        raise BadParameter('the config has no model name: add name = "GaussianMixture" under [model]')
    cls = model_class(model["name"])
    _known(set(model) - {"name"}, cls._get_param_names(), f"{model['name']} has no parameter")
    parameters.check_types(model, parameters.annotations_of(cls))
    for section, keys in SECTIONS.items():
        _known(config.get(section, {}), keys, f"[{section}] has no key")
        parameters.check_types(config.get(section, {}), keys)
    folds = config.get("validation", {}).get("cv", FOLDS[0])
    if folds not in FOLDS:
        raise BadParameter(
            f"[validation] cv = {folds!r} must be {', '.join(map(str, FOLDS))}: so many folds are held out in turn"
        )
    data = config.get("data", {})
    _check_tables(config)
    if "link" in config.get("federation", {}):
        _check_settled(config)
        return  # the nodes hold the data
    if ("path" in data) == ("builtin" in data):
        raise BadParameter("[data] needs either a path or a builtin name")
    if "path" in data and not glob.glob(data["path"]):
        raise BadParameter(f"[data] path: there is no file at {data['path']}")


def _check_tables(config: Config) -> None:
    """Refuse kinds, units and levels that make no sense, before any table is read."""
    columns = config.get("data", {}).get("columns")
    if isinstance(columns, str) and columns != "union":
        raise BadParameter(f"columns={columns!r} should be a list of names, or 'union'")
    if "columns" in config:
        schema(config)
    for site, entry in config.get("sites", {}).items():
        if not isinstance(entry, dict):
            raise BadParameter(
                f"[sites] {site} = {entry!r} is not known: write [sites.{site}] and a line for each column"
            )
        read_own(entry, f"[sites.{site}]")


def _check_settled(config: Config) -> None:
    """Over a link nobody sees all values: kinds and levels must be written down."""
    for column in wanted(config).schema or ():
        if column.kind == AUTO or (column.kind in ("category", "ordered") and not column.levels):
            lacks = "kind" if column.kind == AUTO else "levels"
            raise BadParameter(
                f"[columns] {column.name} has no {lacks}, which nodes need: run `unpooled check`, which writes them"
            )


def check_sections(config: Config, where: str) -> None:
    """Refuse sections that do not exist, and keys that stand outside of a section."""
    for name, section in config.items():
        known = ("model", *SECTIONS, *STUDY, *TABLES)
        if name not in known:
            raise BadParameter(f"{where} has a section or key {name!r}: {suggest(name, known)}")
        if not isinstance(section, dict):
            raise BadParameter(f"{where} has {name} = {section!r}: {name!r} is a section, written [{name}]")


def _known(given: Iterable[str], known: Iterable[str], sentence: str) -> None:
    """Refuse names that are not known, suggesting the nearest one."""
    for name in given:
        if name not in known:
            raise BadParameter(f"{sentence} {name!r}: {suggest(name, known)}")


def model_class(name: str) -> Any:
    """The class of a model by its public name."""
    import unpooled

    if not isinstance(name, str):
        raise BadParameter(f"[model] name = {name!r} should be a string, the name of a model")
    if name in unpooled.MODELS:  # before baselines: FedEM is a model, and baselines.FedEM another
        return estimator_class(name)
    baselines = import_module("unpooled.baselines").__all__
    baseline = name.removeprefix("baselines.")
    if baseline not in baselines:
        raise BadParameter(f"there is no model {name!r}: {suggest(name, [*unpooled.MODELS, *baselines])}")
    return estimator_class(f"baselines.{baseline}")


def estimator(config: Config) -> Any:
    """The unfitted model of a checked config; [federation] fraction becomes a parameter of the model."""
    parameters = {k: v for k, v in config["model"].items() if k != "name"}
    cls = model_class(config["model"]["name"])
    fraction = config.get("federation", {}).get("fraction")
    if fraction is not None:
        _known(
            ["fraction"],
            cls._get_param_names(),
            f"{config['model']['name']} asks every client each round and has no parameter",
        )
        parameters.setdefault("fraction", fraction)
    return cls(**parameters)


def federation(config: Config) -> Any:
    """The federation of a checked config, in this process."""
    from unpooled.data import builtin
    from unpooled.data.federate import federate

    data = config.get("data", {})
    engine = {k: v for k, v in config.get("federation", {}).items() if k not in ("fraction", *LINK_ONLY)}
    table: dict[str, Any] = {
        "columns": data.get("columns"),
        "schema": config.get("columns"),
        "sites": config.get("sites"),
    }
    if "builtin" in data:
        fed = federate(builtin.load(data["builtin"]), **table, **engine)
    else:
        roles = {"by": data.get("by"), "label": data.get("label"), "sample_weight": data.get("weight")}
        fed = federate(data["path"], **table, **roles, **engine)
    return with_privacy(layered(fed, config), config)


def layered(fed: Any, config: Config, min_cohort: int = 3, folder: Path | None = None, watched: bool = False) -> Any:
    """The federation inside the layers that [layers] names; `watched` looks at answers even if it names none."""
    from unpooled.layers.compression import Compressed
    from unpooled.layers.plausible import Plausible
    from unpooled.layers.secure import SecureSum

    layers = config.get("layers", {})
    limits = {k: layers[k] for k in ("max_share", "ranges") if k in layers}
    if layers.get("secure") and limits:
        raise BadParameter(
            f"[layers] has secure and {next(iter(limits))}: masked answers cannot be looked at, choose one of them"
        )
    if limits or (watched and not layers.get("secure")):
        fed = Plausible(fed, **limits)
    compression = {k: layers[k] for k in ("levels", "quantiser") if k in layers}
    if layers.get("secure") and compression:
        raise BadParameter(
            "[layers] has secure and compression: masked answers cannot be compressed, choose one of them"
        )
    if compression:
        return Compressed(fed, **compression)
    return SecureSum(fed, min_cohort=min_cohort, folder=folder) if layers.get("secure") else fed


def with_privacy(fed: Any, config: Config, **options: Any) -> Any:
    """The federation inside the layer that [privacy] asks for, if it does: noise by nodes, or in this process."""
    section = config.get("privacy", {})
    if not section:
        return fed
    for key in ("epsilon", "delta", "bounds"):
        if key not in section:
            raise BadParameter(
                f"[privacy] has no {key}: give epsilon, delta, and bounds of every column from knowledge"
            )
    from unpooled.layers.private import Private
    from unpooled.layers.private.nodes import PrivateNodes

    if fed.here():
        return Private(fed, **{k: section[k] for k in ("epsilon", "delta", "bounds")})
    masked = bool(config.get("layers", {}).get("secure"))
    return PrivateNodes(fed, masked=masked, **{**section, **options})


def schema(config: Config) -> Schema | None:
    """The schema of the features of a config, in the order of [data] columns if it names them; None without [columns]."""
    found = wanted(config).features
    used = config.get("data", {}).get("columns")
    return found if found is None or not isinstance(used, list) else found.only(used)


def wanted(config: Config) -> Wanted:
    """What a config wants of every site's table: kinds of columns, labels, weights."""
    declared = None if "columns" not in config else Schema.from_toml(config["columns"])
    data = config.get("data", {})
    return Wanted(declared, data.get("label"), data.get("weight"))


def dumps(config: Config) -> str:
    """The config as TOML; values are numbers, strings, booleans, and lists and inline tables of them."""
    sections = (
        f"[{toml_text.key(name)}]\n" + "".join(f"{toml_text.key(k)} = {_toml(v)}\n" for k, v in body.items())
        for name, body in config.items()
    )
    return "\n".join(sections)


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml_text.key(str(k))} = {_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, int | float):
        return repr(value)
    return toml_text.quoted(str(value))
