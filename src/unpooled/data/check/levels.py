"""Levels that sites write differently: "M" beside "male", 1 and 2 beside 0 and 1. Pure functions, nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHARE = 0.05  # of a site's rows: a level that is rarer may be missing elsewhere by chance


def odd_levels(mine: Mapping[str, int], others: Mapping[str, Mapping[str, int]]) -> str:
    """What is odd about a site's levels beside those of other sites; nothing if they may be alike.

    >>> odd_levels({"M": 40, "F": 60}, {"basel": {"male": 50, "female": 50}, "bern": {"male": 30, "female": 20}})
    "'F' is written 'female' elsewhere, 'M' is written 'male' elsewhere"
    """
    known = {level for held in others.values() for level in held}
    if not mine or not known:
        return ""
    new = [level for level in sorted(mine) if level not in known]
    unused = [level for level in sorted(known) if level not in mine]
    pairs = [(level, twin) for level in new if (twin := _twin(level, unused)) is not None]
    if pairs:
        return ", ".join(f"{a!r} is written {b!r} elsewhere" for a, b in pairs)
    if new and not set(mine) & known:
        return f"it has {_some(mine)} where others have {_some(known)}"
    if _all_binary(others) and new:
        return f"it has {_some(new)} besides {_some(known)}"
    return ""


def _twin(level: str, unused: Iterable[str]) -> str | None:
    """The spelling that others use for a level: other capitals or spaces, or an abbreviation."""
    a = _plain(level)
    for other in unused:
        b = _plain(other)
        if a == b or (a and b and (a.startswith(b) or b.startswith(a)) and not a.isdigit() and not b.isdigit()):
            return other
    return None


def _plain(level: str) -> str:
    return "".join(ch for ch in level.lower() if ch.isalnum())


def _all_binary(others: Mapping[str, Mapping[str, int]]) -> bool:
    known = {level for held in others.values() for level in held}
    return len(known) == 2 and sum(len(held) == 2 for held in others.values()) >= 2


def _some(levels: Iterable[str]) -> str:
    names = sorted(levels)
    return ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
