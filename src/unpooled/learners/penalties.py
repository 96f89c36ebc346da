"""The ridge penalty of linear learners, and the two forms of their parameters. Nothing is sent.

Free parameters, c - 1 vectors of d + 1 numbers, are the coefficients and intercepts of classes 2 to c for columns minus a centre; class 1
has score 0. `theta` holds coefficients and intercepts of all c classes, for the columns as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Penalty(NamedTuple):
    """|coefficients|^2 / C, as scikit-learn has it: of the one score of two classes, of all scores of more."""

    columns: np.ndarray  # (d + 1,) 1 / C, and 0 for the intercept
    # (c - 1, c - 1) the sum over classes as a quadratic form in classes 2 to c; class 1 has score 0
    classes: np.ndarray

    @property
    def matrix(self) -> np.ndarray:
        """The penalty's second derivative."""
        wide = len(self.columns)
        matrix = np.zeros((len(self.classes), wide, len(self.classes), wide))
        matrix[:, range(wide), :, range(wide)] = self.columns[:, None, None] * self.classes
        return matrix.reshape(len(self.classes) * wide, -1)

    def times(self, free: np.ndarray) -> np.ndarray:
        """The penalty's gradient at free parameters."""
        return (self.classes @ free.reshape(len(self.classes), -1) * self.columns).ravel()


def penalty(classes: int, inputs: int, C: float | np.ndarray) -> Penalty:
    """The ridge penalty of C, a number or one per column; intercepts have none."""
    columns = np.append(np.full(inputs, 1.0 / C), 0.0)
    across = np.eye(1) if classes == 2 else np.eye(classes - 1) - 1.0 / classes
    return Penalty(columns, across)


def as_theta(free: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """(1, p) parameters of the learner from free ones about a centre."""
    scores = free.reshape(-1, len(centre) + 1).copy()
    scores[:, -1] -= scores[:, :-1] @ centre
    return np.concatenate([np.zeros((1, len(centre) + 1)), scores]).reshape(1, -1)


def coefficients(theta: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """(coef, intercept) in scikit-learn's form: one row for two classes; for more one each, of sum 0."""
    scores = theta.reshape(classes, -1)
    scores = scores[1:] - scores[:1] if classes == 2 else scores - scores.mean(0)
    return scores[:, :-1], scores[:, -1]


def with_one(x: np.ndarray) -> np.ndarray:
    """Rows (..., d) with a last column of ones, for the intercept."""
    return np.concatenate([x, np.ones_like(x[..., :1])], -1)
