"""The parts of a round of `GLM`: the parameters to send, the penalty, the objective. Nothing is sent here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.glm import newton
from unpooled.models.glm.checks import offset_index
from unpooled.models.glm.families import LINKS
from unpooled.models.glm.newton import Path, Penalty
from unpooled.models.glm.prediction import FittedGLM
from unpooled.models.glm.questions import Curvature, Look, Point
from unpooled.tree import message


@message("glm.State")
class State(NamedTuple):
    """The sums of the first round, and where Newton's method is."""

    seen: Look
    path: Path
    started: bool


class GLMParts(FittedGLM):
    """The part of `GLM` that computes the numbers of a round; `seen` are the sums of the first round."""

    alpha: float
    l1_ratio: float
    nb_alpha: float | None
    offset: str | int | None

    @property
    def _learns_alpha(self) -> bool:
        """Whether the negative binomial's alpha is estimated."""
        return self._family == "negative_binomial" and self.nb_alpha is None

    @property
    def _may_separate(self) -> bool:
        """Whether rows can make coefficients grow without bound."""
        return self._family in ("binomial", "poisson", "negative_binomial")

    def _q(self, seen: Look) -> int:
        """How many coefficients there are, the intercept included."""
        return len(seen.x) + int(self.fit_intercept)

    def _names(self, fed: Federation, seen: Look) -> list[str]:
        """Names of the coefficients."""
        offset = offset_index(self.offset, fed.columns)
        given = fed.columns or [f"x{j}" for j in range(len(seen.x) + (offset >= 0))]
        columns = [str(c) for j, c in enumerate(given) if j != offset]
        return ["intercept", *columns] if self.fit_intercept else columns

    def _options(self, fed: Federation) -> dict[str, Any]:
        """Options of the questions."""
        return {
            "family": self._family,
            "link": self._link,
            "offset": offset_index(self.offset, fed.columns),
            "intercept": bool(self.fit_intercept),
            "learn_alpha": self._learns_alpha,
        }

    def _mean(self, seen: Look) -> np.ndarray:
        """What columns are centred by: their mean, or 0 without an intercept."""
        return seen.x / seen.n if self.fit_intercept else np.zeros_like(seen.x)

    def _null(self, seen: Look) -> np.ndarray:
        """The point at which every coefficient is 0 but the intercept (and log alpha)."""
        at = np.zeros(self._q(seen) + self._learns_alpha)
        if self.fit_intercept:
            at[0] = LINKS[self._link].of(seen.y / seen.n) - seen.offset / seen.n
        if self._learns_alpha:
            mean = seen.y / seen.n
            spread = seen.yy / seen.n - mean**2
            at[-1] = np.log(np.clip((spread - mean) / mean**2, 0.05, 1.0))  # the columns will explain some of it
        return at

    def _alpha(self, at: np.ndarray) -> float:
        """The negative binomial's alpha at this point."""
        if self._learns_alpha:
            return float(np.exp(at[-1]))
        return 1.0 if self.nb_alpha is None else float(self.nb_alpha)

    def _point(self, state: State) -> Point:
        """What goes down: means, coefficients and alpha."""
        at = state.path.at
        seen = state.seen
        return Point(self._mean(seen), at[: self._q(seen)], seen.y / seen.n, np.asarray(self._alpha(at)))

    def _penalty(self, seen: Look) -> Penalty:
        """Ridge and absolute penalties; intercept and alpha have none."""
        for_intercept = np.zeros(int(self.fit_intercept))
        for_columns = np.full(len(seen.x), float(seen.n) * self.alpha)
        for_alpha = np.zeros(int(self._learns_alpha))
        ridge = np.concatenate([for_intercept, (1 - self.l1_ratio) * for_columns, for_alpha])
        absolute = np.concatenate([for_intercept, self.l1_ratio * for_columns, for_alpha])
        return Penalty(ridge, absolute)

    def _objective(self, total: Curvature, at: np.ndarray, seen: Look) -> float:
        """Half the loss plus the penalty; infinite if a row's mean is outside the family's range."""
        if total.outside > 0 or not np.isfinite(total.loss):
            return float(np.inf)
        return float(0.5 * total.loss) + self._penalty(seen).value(at)

    def _unit(self, total: Curvature, seen: Look) -> float:
        """The `unit` of `newton.Evaluated`: `Path.moved` is then in units of the noise (normal), or of the linear predictor."""
        if self._family == "normal":
            return max(float(total.loss), 1e-16 * float(seen.yy), np.finfo(float).tiny)
        if self._family == "gamma" or not self.fit_intercept:
            return float(total.n)
        return float(total.hessian[0])  # the curvature of all rows together

    def _numpy(self, total: Curvature) -> Curvature:
        """The total as NumPy arrays."""
        return tree.map(to_numpy, total)

    def _positive(self, total: Curvature) -> np.ndarray:
        """The curvature as a matrix; that of log alpha is made positive where the likelihood is not yet concave in it."""
        hessian = unpack_triangle(total.hessian)
        if not self._learns_alpha:
            return hessian
        side = hessian[:-1, -1]
        explained = side @ newton.solve_scaled(hessian[:-1, :-1], side)
        schur = hessian[-1, -1] - explained  # the Schur complement must be positive
        hessian[-1, -1] = explained + max(abs(schur), 1e-8 * abs(hessian[-1, -1]), 1e-12)
        return hessian
