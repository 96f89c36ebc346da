"""A fitted model's coefficients as a table of text. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def table(title: str, head: Mapping[str, str], names: Sequence[str], rows: np.ndarray, level: float) -> str:
    """Facts about the fit, then one line for each coefficient: estimate, standard error, z, p and confidence limits."""
    width = max(len(key) for key in head)
    facts = [f"{key:<{width}}  {value}" for key, value in head.items()]
    first = max(11, *(len(name) for name in names))
    low, high = f"{50 * (1 - level):.4g} %", f"{50 * (1 + level):.4g} %"
    titles = ("estimate", "std. error", "z", "p", low, high)
    line = f"{'':<{first}}" + "".join(f"{t:>13}" for t in titles)
    body = [f"{name:<{first}}" + _numbers(*row) for name, row in zip(names, rows)]
    return "\n".join([title, *facts, "", line, "-" * len(line), *body])


def _numbers(estimate: float, error: float, p: float, low: float, high: float) -> str:
    z = estimate / error
    return f"{estimate:>13.6g}{error:>13.4g}{z:>13.2f}{p:>13.3g}{low:>13.6g}{high:>13.6g}"
