"""Fitted models in a folder, as JSON and arrays without pickle; `unpooled.load` reads them. Nothing is sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unpooled import store
from unpooled.errors import BadParameter, DataNotFound
from unpooled.tree import Tree

# prefix of an estimator's name -> package that lists it
_PACKAGES = {"": "unpooled", "baselines.": "unpooled.baselines"}


def save(model: Any, folder: Path) -> Path:
    """Write a fitted model into a folder; the history goes into a separate file, one line per round."""
    check_is_fitted(model)
    fitted = {k: v for k, v in vars(model).items() if k.endswith("_") and not k.startswith("_") and k != "history_"}
    body = {"class": class_name(type(model)), "params": model.get_params(deep=False)}
    store.write(folder / "model.zip", {"model": plain(body), "fitted": plain(fitted)})
    lines = [json.dumps(row) for row in plain(getattr(model, "history_", []))]
    store.write_file(folder / "history.jsonl", "".join(f"{line}\n" for line in lines).encode())
    return folder


def load(folder: str | Path) -> Any:
    """Load the fitted estimator that `save` wrote, or that a run folder holds.

    Parameters
    ----------
    folder : str or Path
        A folder given to `save`, or a run folder of `unpooled run`.

    Returns
    -------
    Estimator
        The fitted estimator, with its history.

    Examples
    --------
    >>> import tempfile, numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> model = up.PCA(n_components=1).fit({"north": rng.normal(size=(20, 2)), "south": rng.normal(size=(30, 2))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = up.load(model.save(folder))
    >>> bool((again.components_ == model.components_).all())
    True
    """
    given = Path(folder)
    folder = given / "model" if (given / "model").is_dir() else given
    if not (folder / "model.zip").exists():
        unfinished = (given / "config.toml").exists()
        remedy = f"`unpooled resume {given}` finishes the run" if unfinished else "check the path"
        raise DataNotFound(f"there is no fitted model in {given}: {remedy}")
    saved = store.read(folder / "model.zip")
    try:
        estimator = estimator_class(saved["model"]["class"])(**saved["model"]["params"])
        fitted = dict(saved["fitted"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = error if isinstance(error, BadParameter) else type(error).__name__
        raise DataNotFound(f"{folder / 'model.zip'} holds no fitted model of this version ({why})") from error
    for name, value in fitted.items():
        if not _is_fitted_name(name) or _is_fixed(type(estimator), name):
            raise DataNotFound(
                f"{folder / 'model.zip'} would set {name[:40]!r}, which no fit sets: it was not saved by unpooled"
            )
        setattr(estimator, name, np.asarray(value, dtype=object) if name == "feature_names_in_" else value)
    estimator.history_ = _read_history(folder / "history.jsonl")
    return estimator


def _is_fitted_name(name: str) -> bool:
    """Whether an attribute of this name is set by fits."""
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


def _is_fixed(cls: type, name: str) -> bool:
    """Whether the class has a method or a property of this name."""
    found = getattr(cls, name, None)
    return callable(found) or isinstance(found, property)


def _read_history(path: Path) -> list[dict[str, Any]]:
    """The lines of history.jsonl; none when there is no such file."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    except (ValueError, RecursionError) as error:
        raise DataNotFound(f"{path} is damaged: {error}") from error


def class_name(cls: type) -> str:
    """The lasting name of an estimator: "GaussianMixture", "baselines.FedAvg"; "module:Class" for a class of your own."""
    for prefix, package in _PACKAGES.items():
        listed = import_module(package)
        if cls.__name__ in listed.__all__ and getattr(listed, cls.__name__) is cls:
            return f"{prefix}{cls.__name__}"
    return f"{cls.__module__}:{cls.__qualname__}"


def estimator_class(name: str) -> Callable[..., Any]:
    """A public estimator by its lasting name, or a class of a module that is already imported; no other module is
    imported.
    """
    prefix = "baselines." if name.startswith("baselines.") else ""
    listed = import_module(_PACKAGES[prefix])
    short = name.removeprefix(prefix)
    if short in listed.__all__:
        found: Any = getattr(listed, short)
    else:
        module, _, qualname = name.partition(":")
        found = getattr(sys.modules.get(module), qualname, None)
    if not (isinstance(found, type) and issubclass(found, BaseEstimator) and hasattr(found, "rounds")):
        raise BadParameter(f"{name[:80]!r} is not an estimator known here: import the module that defines it first")
    return found


def plain(value: Any) -> Tree:
    """The value as a Tree of arrays, numbers and strings; an object array becomes an array of strings."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "_fields"):
        return type(value)(*(plain(v) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.astype(str)
    if isinstance(value, np.generic):
        return value.item()
    if callable(value):
        raise BadParameter(f"{value!r} cannot be saved: give the parameter by name")
    return value
