"""A study is what a site approves: a model with its parameters, the columns it uses and who takes part, in one TOML file.

Its SHA-256 is its name. Whatever changes in the file, the name changes, and no node answers until its owner has approved the new one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unpooled import config as configs
from unpooled import toml_text
from unpooled.config import Config
from unpooled.data.schema import Schema, Wanted
from unpooled.errors import BadParameter, DataNotFound, printable, suggest

KEYS = {
    "title": str,
    "purpose": str,
    "min_cohort": int,
    "max_exchanges": int,
    "follow": bool,
    "min_rows_per_component": int,
}
DEFAULTS: dict[str, Any] = {
    "purpose": "",
    "min_cohort": 3,
    "max_exchanges": 2000,
    "follow": True,
    "min_rows_per_component": 5,
}
CHOOSES_WHERE_TO_LOOK = ("_init",)  # how parameters end that would place a component beside a person


@dataclass(frozen=True)
class Study:
    """A study file that was read and checked.

    Attributes
    ----------
    content : bytes
        The file as it is.
    config : dict
        Its sections.
    digest : str
        SHA-256 of the content: the study's name.
    participants : dict of str to str
        Name of each node and the fingerprint of its key, "SHA256:...".
    """

    content: bytes
    config: Config

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file: what a site approves, to the byte."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def participants(self) -> dict[str, str]:
        """Fingerprint of each participant's key, by name."""
        return dict(self.config["participants"])

    @property
    def names(self) -> list[str]:
        """Names of the participants, sorted."""
        return sorted(self.participants)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the study uses."""
        named = self.config["data"].get("columns")
        return list(named) if named is not None else self.wanted.features.names  # type: ignore[union-attr]

    @property
    def wanted(self) -> Wanted:
        """What the study wants of every site's table: kinds of columns, labels, weights."""
        return configs.wanted(self.config)

    @property
    def schema(self) -> Schema | None:
        """The kinds and levels of the columns, in their order; None where the study has no [columns]."""
        return configs.schema(self.config)

    @property
    def layers(self) -> dict[str, Any]:
        """The study's [layers]."""
        return dict(self.config.get("layers", {}))

    @property
    def privacy(self) -> dict[str, Any]:
        """The section [privacy]; empty for a study without noise."""
        return dict(self.config.get("privacy", {}))

    @property
    def secure(self) -> bool:
        """Whether sums are masked."""
        return bool(self.layers.get("secure", False))

    def __getattr__(self, key: str) -> Any:
        """A key of [study]: title, purpose, min_cohort, max_exchanges, follow, min_rows_per_component."""
        if key in KEYS:
            return self.config["study"].get(key, DEFAULTS.get(key))
        raise AttributeError(key)

    def estimator(self) -> Any:
        """The model of the study, unfitted."""
        return configs.estimator(self.config)


def read(path: Path) -> Study:
    """The study in a file; one sentence says what is missing."""
    try:
        return parse(path.read_bytes(), path.name)
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: check the path of the study") from error


def parse(content: bytes, where: str = "the study") -> Study:
    """A study from the bytes of its file."""
    try:
        config = toml_text.loads(content.decode())
    except UnicodeDecodeError as error:
        raise BadParameter(f"{where} is not UTF-8 text: save it as UTF-8") from error
    except toml_text.TOMLError as error:
        raise BadParameter(f"{where} is not valid TOML: {error}") from error
    _check(config, where)
    return Study(content, config)


def is_study(config: Config) -> bool:
    """Whether a config file is a study."""
    return "study" in config


def _check(config: Config, where: str) -> None:
    """Refuse a study without its sections, its title, its participants or its columns."""
    configs.check_sections(config, where)
    for section in ("study", "participants", "model", "data"):
        if not isinstance(config.get(section), dict):
            raise BadParameter(
                f"{where} has no section [{section}]: a study needs [study], [participants], [model], [data]"
            )
    if "validation" in config:
        raise BadParameter(
            f"{where} has a section [validation]: nodes follow one fit of a study, validate in a study of its own"
        )
    _check_printable(config, where)
    _check_study(config["study"], where)
    _check_participants(config, where)
    columns = config["data"].get("columns", list(config.get("columns", ())))
    if not (isinstance(columns, list) and columns and all(isinstance(c, str) for c in columns)):
        raise BadParameter(
            f"{where} names no columns: write columns = [...] under [data], or [columns], so that sites know what is used"
        )
    if set(config["data"]) - {"columns", "label", "weight"}:
        raise BadParameter(
            f"{where}: [data] of a study has columns, label and weight; where rows are is each site's business"
        )
    configs.check({**config, "federation": {**config.get("federation", {}), "link": "a study"}})
    _check_model(config["model"], where)
    _check_fraction(config, where)
    for key in ("epsilon", "delta", "bounds") if "privacy" in config else ():
        if key not in config["privacy"]:
            raise BadParameter(f"{where}: [privacy] has no {key}: give epsilon, delta, and bounds of every column")


def _check_printable(value: Any, where: str) -> None:
    """Refuse characters that would move the cursor, or hide or reorder text, where the study is shown; lines may end."""
    if isinstance(value, str) and printable(value) != value.replace("\t", "?"):
        raise BadParameter(f"{where} has a text with a character that cannot be printed, {value[:60]!r}: leave it out")
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_printable(part, where)


def _check_study(section: dict[str, Any], where: str) -> None:
    """Refuse a [study] without a title, with unknown keys or with values of the wrong type."""
    if not isinstance(section.get("title"), str) or not section["title"].strip():
        raise BadParameter(f'{where} has no title: write title = "..." under [study]')
    for key, value in section.items():
        if key not in KEYS:
            raise BadParameter(f"{where}: [study] has no key {key!r}: {suggest(key, KEYS)}")
        if type(value) is not KEYS[key]:
            raise BadParameter(f"{where}: [study] {key} = {value!r} should be of type {KEYS[key].__name__}")
    if section.get("max_exchanges", 1) < 1:
        raise BadParameter(f"{where}: [study] max_exchanges must be at least 1")
    if section.get("min_rows_per_component", 0) < 0:
        raise BadParameter(f"{where}: [study] min_rows_per_component must be at least 0")


def _check_participants(config: Config, where: str) -> None:
    """Refuse participants without a fingerprint, and fewer of them than the least cohort."""
    participants = config["participants"]
    least = config["study"].get("min_cohort", DEFAULTS["min_cohort"])
    for name, mark in participants.items():
        if not (isinstance(mark, str) and (mark.startswith("SHA256:") or mark == "")):
            raise BadParameter(
                f"{where}: participant {name!r} needs the fingerprint of its key: `unpooled node fingerprint`"
            )
    if least < 1 or len(participants) < least:
        raise BadParameter(
            f"{where} has {len(participants)} participants and min_cohort = {least}: add some or lower it"
        )
    if config.get("layers", {}).get("secure") and (least < 3 or "" in participants.values()):
        raise BadParameter(f"{where} masks its sums: give min_cohort of 3 or more and every participant's fingerprint")


def _check_fraction(config: Config, where: str) -> None:
    """Refuse a masked study that asks a part of its sites in a round."""
    shares = [config[section].get("fraction", 1.0) for section in ("model", "federation") if section in config]
    if config.get("layers", {}).get("secure") and any(share != 1.0 for share in shares):
        raise BadParameter(
            f"{where} masks its sums and asks a part of the sites in a round: totals over different sites show what single ones sent; "
            "use fraction = 1"
        )


def _check_model(model: dict[str, Any], where: str) -> None:
    """Refuse a model without a seed, and parameters that choose where to look in the data."""
    seed = model.get("random_state")
    takes_seed = "random_state" in configs.model_class(model["name"])._get_param_names()
    if takes_seed and not (isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0):
        raise BadParameter(
            f"{where} has no random_state under [model]: give a whole number, so that nodes can follow the study"
        )
    for name in model:
        if name.endswith(CHOOSES_WHERE_TO_LOOK):
            raise BadParameter(f"{where}: {name} chooses where to look in the data: a study may not set it")
