"""Every refusal of the library: one sentence that says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnpooledError(Exception):
    """The base of all refusals: catch it to catch them all."""


class BadData(UnpooledError, ValueError):
    """Rows, labels or columns that no model should be fitted to."""


class BadParameter(UnpooledError, ValueError):
    """A parameter outside of what it may be."""


class DataNotFound(UnpooledError, FileNotFoundError):
    """A file or folder that is not there."""


class TooFewClients(UnpooledError, RuntimeError):
    """Fewer clients answered than `min_clients`."""


class RunError(UnpooledError, RuntimeError):
    """A run folder that cannot be written, read or continued."""


class MaskingRefused(UnpooledError, RuntimeError):
    """A step of a masked sum that a node or the coordinator does not take, because it could show a single share."""


class DataWarning(UserWarning):
    """Data that can be fitted but is probably not what was meant."""


def suggest(word: object, known: Iterable[object]) -> str:
    """The helpful end of a sentence: "did you mean 'age'?", or the names there are.

    >>> suggest("agee", ["age", "chol"])
    "did you mean 'age'?"
    """
    names = [str(k) for k in known]
    lower = {n.lower(): n for n in reversed(names)}
    close = get_close_matches(str(word).lower(), lower, n=1)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    shown = ", ".join(repr(n) for n in names[:10]) + (", ..." if len(names) > 10 else "")
    return f"known: {shown}" if names else "there are none"
