"""A run's config file: read, overridden by `key=value`, checked against the estimator's own parameters, and built."""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unpooled import parameters
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import estimator_class

SECTIONS = {  # section -> its keys, each with the kind of its value
    "data": {"path": "str", "by": "str", "label": "str", "builtin": "str", "weight": "str", "columns": "list"},
    "federation": {
        "fraction": "float",
        "min_clients": "int",
        "threads": "int",
        "mode": "str",
        "link": "str",
        "timeout": "float",
        "wait": "float",
    },
}
SECTIONS["layers"] = {"secure": "bool", "levels": "int", "quantiser": "str"}
STUDY = ("study", "participants")  # sections that `unpooled.study` checks
LINK_ONLY = ("link", "timeout", "wait")  # keys that mean something over a link alone; a run in process passes them by

Config = dict[str, dict[str, Any]]


def read(path: Path) -> Config:
    """The sections of a TOML file; a path to data in it is relative to the file."""
    try:
        config = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadParameter(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadParameter(f"{path} is not valid TOML: {error}") from error
    _check_sections(config, str(path))
    config.setdefault("data", {})
    _make_absolute(config, path.parent)
    return config


def _make_absolute(config: Config, base: Path) -> None:
    """A path to data as it can be read from anywhere."""
    data = config.get("data", {})
    if isinstance(data.get("path"), str):
        data["path"] = str((base / Path(data["path"]).expanduser()).absolute())


def override(config: Config, pairs: Iterable[str]) -> Config:
    """`key=value` sets a parameter of the model, `section.key=value` any other; values are TOML, else text; a path is seen from here."""
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
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def check(config: Config) -> None:
    """Refuse unknown names, with the right one beside it, and values of another kind, before any work is done."""
    _check_sections(config, "the config")
    model = config.get("model", {})
    if "name" not in model:
        raise BadParameter('the config has no model name: add name = "GaussianMixture" under [model]')
    cls = model_class(model["name"])
    _known(set(model) - {"name"}, cls._get_param_names(), f"{model['name']} has no parameter")
    parameters.check_types(model, parameters.annotations_of(cls))
    for section, keys in SECTIONS.items():
        _known(config.get(section, {}), keys, f"[{section}] has no key")
        parameters.check_types(config.get(section, {}), keys)
    data = config.get("data", {})
    if "link" in config.get("federation", {}):
        return  # the nodes have their data
    if ("path" in data) == ("builtin" in data):
        raise BadParameter("[data] needs either a path or a builtin name")
    if "path" in data and not glob.glob(data["path"]):
        raise BadParameter(f"[data] path: nothing is found at {data['path']}")


def _check_sections(config: Config, where: str) -> None:
    for name, section in config.items():
        if name not in ("model", *SECTIONS, *STUDY):
            raise BadParameter(f"{where} has a section or key {name!r}: {suggest(name, ['model', *SECTIONS, *STUDY])}")
        if not isinstance(section, dict):
            raise BadParameter(f"{where} has {name} = {section!r}: {name!r} is a section, written [{name}]")


def _known(given: Iterable[str], known: Iterable[str], sentence: str) -> None:
    for name in given:
        if name not in known:
            raise BadParameter(f"{sentence} {name!r}: {suggest(name, known)}")


def model_class(name: str) -> Any:
    import unpooled

    if name not in unpooled.MODELS:
        raise BadParameter(f"there is no model {name!r}: {suggest(name, unpooled.MODELS)}")
    return estimator_class(name)


def estimator(config: Config) -> Any:
    """The model of a checked config, unfitted; [federation] fraction is the model's where it has one."""
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
    """The clients of a checked config, in this process."""
    from unpooled.data import builtin
    from unpooled.data.federate import federate

    data = config.get("data", {})
    engine = {k: v for k, v in config.get("federation", {}).items() if k not in ("fraction", *LINK_ONLY)}
    if "builtin" in data:
        return layered(federate(builtin.load(data["builtin"]), columns=data.get("columns"), **engine), config)
    roles = {"by": data.get("by"), "label": data.get("label"), "sample_weight": data.get("weight")}
    return layered(federate(data["path"], columns=data.get("columns"), **roles, **engine), config)


def layered(fed: Any, config: Config, min_cohort: int = 3, folder: Path | None = None) -> Any:
    """The federation inside the layers that [layers] names."""
    from unpooled.layers.compression import Compressed
    from unpooled.layers.secure import SecureSum

    layers = config.get("layers", {})
    compression = {k: layers[k] for k in ("levels", "quantiser") if k in layers}
    if layers.get("secure") and compression:
        raise BadParameter(
            "[layers] has secure and compression: masked answers cannot be compressed, choose one of them"
        )
    if compression:
        return Compressed(fed, **compression)
    return SecureSum(fed, min_cohort=min_cohort, folder=folder) if layers.get("secure") else fed


def dumps(config: Config) -> str:
    """The config as TOML: sections of numbers, texts, truths, and lists and inline tables of them."""
    sections = (
        f"[{name}]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in body.items()) for name, body in config.items()
    )
    return "\n".join(sections)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(str(k))} = {_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, int | float):
        return repr(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
