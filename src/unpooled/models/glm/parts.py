"""What a round of `GLM` is made of: the point to ask at, the penalty, the objective. Nothing is sent."""

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
    seen: Look
    path: Path
    started: bool


class GLMParts(FittedGLM):
    """The numbers of a round, from the parameters of a `GLM` and what was seen first."""

    alpha: float
    l1_ratio: float
    nb_alpha: float | None
    offset: str | int | None

    @property
    def _learns_alpha(self) -> bool:
        return self.family == "negative_binomial" and self.nb_alpha is None

    @property
    def _may_separate(self) -> bool:
        return self.family in ("binomial", "poisson", "negative_binomial")

    def _q(self, seen: Look) -> int:
        """How many coefficients there are, the intercept included."""
        return len(seen.x) + int(self.fit_intercept)

    def _names(self, fed: Federation, seen: Look) -> list[str]:
        offset = offset_index(self.offset, fed.columns)
        given = fed.columns or [f"x{j}" for j in range(len(seen.x) + (offset >= 0))]
        columns = [str(c) for j, c in enumerate(given) if j != offset]
        return ["intercept", *columns] if self.fit_intercept else columns

    def _options(self, fed: Federation) -> dict[str, Any]:
        return {
            "family": self.family,
            "link": self._link,
            "offset": offset_index(self.offset, fed.columns),
            "intercept": bool(self.fit_intercept),
            "learn_alpha": self._learns_alpha,
        }

    def _mean(self, seen: Look) -> np.ndarray:
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
        if self._learns_alpha:
            return float(np.exp(at[-1]))
        return 1.0 if self.nb_alpha is None else float(self.nb_alpha)

    def _point(self, state: State) -> Point:
        at, seen = state.path.at, state.seen
        return Point(self._mean(seen), at[: self._q(seen)], seen.y / seen.n, np.asarray(self._alpha(at)))

    def _penalty(self, seen: Look) -> Penalty:
        free = np.zeros(int(self.fit_intercept))
        each = np.full(len(seen.x), float(seen.n) * self.alpha)
        more = np.zeros(int(self._learns_alpha))
        ridge, absolute = (1 - self.l1_ratio) * each, self.l1_ratio * each
        return Penalty(np.concatenate([free, ridge, more]), np.concatenate([free, absolute, more]))

    def _objective(self, total: Curvature, at: np.ndarray, seen: Look) -> float:
        """Half the loss plus the penalty; infinite where a row's mean is none of the family's."""
        if total.outside > 0 or not np.isfinite(total.loss):
            return float(np.inf)
        return float(0.5 * total.loss) + self._penalty(seen).value(at)

    def _unit(self, total: Curvature, seen: Look) -> float:
        """What a change is measured in, so that it is one of the linear predictor, or relative to it."""
        if self.family == "normal":
            return max(float(total.loss), 1e-16 * float(seen.yy), np.finfo(float).tiny)
        if self.family == "gamma" or not self.fit_intercept:
            return float(total.n)
        return float(total.hessian[0])  # the curvature of all rows together

    def _numpy(self, total: Curvature) -> Curvature:
        return tree.map(to_numpy, total)

    def _positive(self, total: Curvature) -> np.ndarray:
        """The curvature as a matrix; that of log alpha is made positive where the likelihood is not yet concave in it."""
        hessian = unpack_triangle(total.hessian)
        if not self._learns_alpha:
            return hessian
        side = hessian[:-1, -1]
        lost = side @ newton.solve_scaled(hessian[:-1, :-1], side)
        left = hessian[-1, -1] - lost
        hessian[-1, -1] = lost + max(abs(left), 1e-8 * abs(hessian[-1, -1]), 1e-12)
        return hessian
