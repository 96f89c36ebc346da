"""Which questions may be asked privately: those that have declared how far one row can move their answer, whatever comes down.

A question is declared where it is defined: `declare(question, 1.0)`. The declaration holds for every value of the parameters and of the
options, since the coordinator chooses them; `tests/models/private/test_sensitivity.py` tries to break each one.
"""

from __future__ import annotations

from typing import Any

from unpooled.errors import BadParameter

SENSITIVITY: dict[str, float] = {}  # question name -> the largest L2 norm by which one row of weight 1 moves the answer


def declare(question: Any, sensitivity: float = 1.0) -> Any:
    """Register a question as bounded: adding or removing one row moves its answer by at most `sensitivity` in L2 norm.

    Parameters
    ----------
    question : Ask
        What `@client` returned.
    sensitivity : float, default 1.0

    Returns
    -------
    question : Ask
        The same.
    """
    SENSITIVITY[question.name] = float(sensitivity)
    return question


def sensitivity_of(name: str) -> float:
    """The declared sensitivity of a question, or the refusal of one that has none."""
    if name not in SENSITIVITY:
        short = name.rsplit(".", 1)[-1]
        text = f"the question {short!r} does not bound what one row can change, so no noise makes it private"
        raise BadParameter(f"{text}: fit one of the private models, or without Private")
    return SENSITIVITY[name]
