"""What left a client in plain words: `[0].xx (3 x 6)` is "sums of products of columns: 18 numbers"."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import get_type_hints

from unpooled.client import REGISTRY
from unpooled.errors import BadParameter
from unpooled.names import import_home

LEAF = re.compile(r"^(?P<path>.*?)(?: \((?P<shape>[\d x]+)\))?$")
PLAIN = {  # the last name of a path -> what it is
    "n": "counts of rows",
    "rows": "counts of rows",
    "seen": "counts of known values",
    "counts": "counts of rows by bin",
    "cells": "counts of hidden cells",
    "x": "sums of columns",
    "xx": "sums of products of columns",
    "xy": "sums of products of columns and labels",
    "y": "sums of labels",
    "yy": "sums of squared labels",
    "z": "sums of features",
    "zz": "sums of products of features",
    "zy": "sums of products of features and labels",
    "loglik": "log-likelihood",
    "held_out_loglik": "log-likelihood of held-out rows",
    "held_out": "log-likelihood of held-out rows",
    "held_out_rows": "counts of held-out rows",
    "held": "counts of held-out rows",
    "error": "sum of squared errors",
    "central": "histogram of where hidden cells lie in their interval",
    "outer": "sums of products of losses",
    "total": "sums of losses",
    "theta": "parameters of a learner",
    "gradient": "gradient of the loss",
    "curvature": "curvature of the loss",
    "deviance": "deviance",
    "missing": "counts of missing values",
    "patterns": "counts of rows by pattern of missing values",
    "mean": "means",
    "means": "means",
    "centre": "means of groups of rows",
    "centre_n": "counts of rows by group",
    "centre_scatter": "spread of groups of rows",
    "scatter": "spread of columns",
    "pairs": "counts of rows by pair of parts",
    "topics": "counts of rows by cluster",
    "weight_penalty": "a penalty for weights",
    "rr": "sums of products of responsibilities",
    "value": "numbers",
    "loss": "sums of losses",
    "score": "derivatives of the log-likelihood",
    "hessian": "second derivatives of the log-likelihood",
    "outside": "counts of values that the family does not have",
    "died": "events by step of time",
    "died_weight": "weights of events by step of time",
    "censored": "censored rows by step of time",
    "early": "counts of rows without time at risk",
    "died_x": "sums of columns over events",
    "died_r": "sums of risks at events",
    "died_rz": "sums of risks times columns at events",
    "r": "sums of risks",
    "rz": "sums of risks times columns",
    "level": "counts of rows by level",
    "t": "the number of the round",
    "limbs": "masked numbers",
    "shares": "shares of masks",
    "parts": "shares of masks",
    "sealed": "shares of masks, encrypted for one other site",
    "mask_key": "a public key for the next mask",
    "exchange": "a public key",
    "verify": "a public key",
    "identity": "the site's public key",
    "signature": "a signature",
    "commitment": "a commitment to the mask",
}
RISK = "The coordinator sees this answer of each client singly: it can tell much about a client with few rows."
KINDS = {"sum": "SUM", "masked": "SUM, masked", "gather": "GATHER", "tell": "nothing", "keys": "keys for masks"}


def contents(text: str) -> list[str]:
    """The leaves of an answer, as `tree.describe` writes them, each in words; the same leaf of several candidates once."""
    if text in ("", "nothing"):
        return ["nothing"] if text else []
    sizes: dict[str, list[int]] = {}
    for leaf in text.split(", "):
        path, size = _leaf(leaf)
        sizes.setdefault(_name(path), []).append(size)
    return [f"{name}: {_count(numbers)}" for name, numbers in sizes.items()]


def _leaf(text: str) -> tuple[str, int]:
    """(path, how many numbers)."""
    found = LEAF.match(text)
    shape = found and found["shape"]
    size = 1
    for axis in shape.split(" x ") if shape else ():
        size *= int(axis)
    return (found["path"] if found else text), size


def _name(path: str) -> str:
    """A leaf's last name, in plain words."""
    last = re.sub(r"\[[^\]]*\]", "", path.rpartition(".")[2]) or re.sub(r"\[[^\]]*\]|\.", "", path) or "value"
    return PLAIN.get(last, last.replace("_", " "))


def _count(sizes: list[int]) -> str:
    """How many numbers there are, and in how many parts."""
    total = sum(sizes)
    return f"{total:,} number{'s' if total != 1 else ''}"


def question(name: str) -> str:
    """The first line of the docstring of a question, or else of its answer's type."""
    if name not in REGISTRY:
        with suppress(KeyError, BadParameter, ImportError):
            import_home(name)
    ask = REGISTRY.get(name)
    if ask is None:
        return ""
    kind = get_type_hints(ask.answer).get("return")
    own = getattr(kind, "__doc__", "") if hasattr(kind, "_fields") else ""
    own = "" if (own or "").startswith(f"{getattr(kind, '__name__', '')}(") else own  # generated by NamedTuple
    return (ask.answer.__doc__ or own or "").strip().split("\n")[0]
