"""The errors of the library: each message is one sentence that says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnpooledError(Exception):
    """Base class of all errors of the library."""


class BadData(UnpooledError, ValueError):
    """Rows, labels or columns that cannot be fitted."""


class BadParameter(UnpooledError, ValueError):
    """A parameter with an invalid value."""


class DataNotFound(UnpooledError, FileNotFoundError):
    """A file or folder that does not exist."""


class TooFewClients(UnpooledError, RuntimeError):
    """Fewer clients answered than `min_clients`."""


class RunError(UnpooledError, RuntimeError):
    """A run folder that cannot be written, read or continued."""


class MaskingRefused(UnpooledError, RuntimeError):
    """A step of a masked sum that a node or the coordinator refuses, because it could reveal a single answer."""


class DataWarning(UserWarning):
    """Data that can be fitted but is probably a mistake."""


def suggest(word: object, known: Iterable[object]) -> str:
    """The end of an error message: "did you mean 'age'?", or the known names.

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


def printable(text: str) -> str:
    """A text from elsewhere as a terminal may show it: characters that move the cursor, hide or reorder text become "?".

    >>> printable("fine\\x1b[8m, hidden")
    'fine?[8m, hidden'
    """
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
