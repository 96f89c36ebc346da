"""TOML from elsewhere: what `tomllib` reads, and its error for a text that would keep it busy, fill the memory or end in another error.

And keys and strings as TOML writes them.

`tomllib` takes time and memory that grow with the square of the length of a dotted key: one line of 200 kB fills 6 GB.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

LARGEST = 4 * 2**20  # bytes of a text
DEEPEST = 64  # parts of a dotted key
STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*+"|' + r"'[^'\n]*+'")
CHAIN = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{DEEPEST}}}")

TOMLError = tomllib.TOMLDecodeError


def loads(text: str) -> dict[str, Any]:
    """The tables of a TOML text; TOMLError if it is none, or one that nobody writes.

    >>> loads("age = {kind = 'real'}")
    {'age': {'kind': 'real'}}
    """
    if len(text) > LARGEST:
        raise TOMLError(f"it has more than {LARGEST} characters")
    if CHAIN.search(STRINGS.sub("s", text)):
        raise TOMLError(f"a key has more than {DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except TOMLError:
        raise
    except (RecursionError, ValueError) as error:  # brackets that nest without end, numbers without end
        raise TOMLError("it nests too deeply, or a number is too long") from error


def key(name: str) -> str:
    """A key, in quotes where it is not made of letters, digits, - and _ alone.

    >>> key("age"), key("RR sys")
    ('age', '"RR sys"')
    """
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else quoted(name)


def quoted(text: str) -> str:
    """A TOML string: JSON escapes quotes and control characters alike."""
    return json.dumps(text, ensure_ascii=False)
