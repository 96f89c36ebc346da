"""Levels that sites write differently: "M" beside "male", 1 and 2 beside 0 and 1. Pure functions, nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

SHARE = 0.05  # of a site's rows: a level that is rarer may be missing elsewhere by chance
EXPECTED = 10  # rows with a level that a site would have as others do: none by chance has a probability of exp(-10)
FEW = 12  # levels of a column whose spellings are compared
ALIKE = 0.8  # likeness of two spellings of one level


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
    pairs = [(level, twin) for level in new if (twin := _twin(level, unused, is_common(level, mine))) is not None]
    if pairs:
        return ", ".join(f"{a!r} is written {b!r} elsewhere" for a, b in pairs)
    if new and not set(mine) & known and _repeat(mine):
        return f"it has {_some(mine)} where others have {_some(known)}"
    if _all_binary(others) and new:
        return f"it has {_some(new)} besides {_some(known)}"
    own = [level for level in new if is_common(level, mine)]
    lacking = [level for level in unused if _expected(level, mine, others)]
    if own and lacking:
        return f"it has {_some(own)} and not {_some(lacking)}, which all others have"
    return ""


def _expected(level: str, mine: Mapping[str, int], others: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether at least two other sites have a level so often that EXPECTED rows or more were expected here."""
    shares = [held.get(level, 0) / max(sum(held.values()), 1) for held in others.values()]
    return len(shares) >= 2 and min(shares) * sum(mine.values()) >= EXPECTED


def _repeat(mine: Mapping[str, int]) -> bool:
    """Whether levels have two rows on average; names of single rows differ between sites as they should."""
    return sum(mine.values()) >= 2 * len(mine)


def is_common(level: str, mine: Mapping[str, int]) -> bool:
    """Whether a level is one of few and has a good part of the rows: its absence elsewhere is not due to chance."""
    return len(mine) <= FEW and mine[level] >= SHARE * sum(mine.values())


def _twin(level: str, unused: Iterable[str], common: bool) -> str | None:
    """The spelling that others use for a level: other capitals or spaces; for a common one also an abbreviation or a slip."""
    a = plain(level)
    for other in unused:
        b = plain(other)
        if a == b or (common and _alike(a, b)):
            return other
    return None


def _alike(a: str, b: str) -> bool:
    """Whether one level is the beginning of the other, or nearly spelled like it; numbers are never alike."""
    if not (a and b) or a.isdigit() or b.isdigit():
        return False
    return a.startswith(b) or b.startswith(a) or SequenceMatcher(None, a, b).ratio() >= ALIKE


def plain(text: str) -> str:
    """A level or a name in lower case, letters and digits alone."""
    return "".join(ch for ch in text.lower() if ch.isalnum())


def _all_binary(others: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether all other sites together know two levels, and at least two of them have both."""
    known = {level for held in others.values() for level in held}
    return len(known) == 2 and sum(len(held) == 2 for held in others.values()) >= 2


def _some(levels: Iterable[str]) -> str:
    """Up to four of the levels, quoted, for a sentence."""
    names = sorted(levels)
    return ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
