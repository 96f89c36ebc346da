"""What follows a run of learners: the fitted attributes, networks of groups, and what each client keeps.

One SUM of second derivatives where linear learners took steps of SGD, for linear learners one of squares of the columns, unless the fit
has had them, and one of how well candidates explain rows, one SUM of losses for the calibration, and a TELL for the clients' choices; for
networks a TELL and a SUM of label counts more, and the SUMs of `input_groups` and `group_models`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.federation import Federation, find_layer
from unpooled.learners import calibration, curvatures, exact, newton, penalties, personal, polishing
from unpooled.learners.adapting import Adapting
from unpooled.learners.calibration import NONE
from unpooled.learners.group_models import fit_group_models
from unpooled.learners.input_groups import InputGroups, find_groups
from unpooled.learners.label_shift import label_shares
from unpooled.learners.own_nets import GROUP_MODEL, Version, train_own
from unpooled.learners.personal import Shared, personalise
from unpooled.learners.trainer import Trainer, as_option

UNITS = 1.5  # the largest deviation of a column is as good as 1 between 1 / UNITS and UNITS
SMALL_UNITS = 0.1  # the smallest one above this: indicators, and columns whose gaps were filled, vary less


class LearnerChoices(Adapting):
    """The end of a run: attributes of the fitted model, and what each client keeps of it."""

    learner: Any
    norm: str
    lr: float | str
    C: float | str
    personalize: str
    groups_: InputGroups | None = None
    # inverse second derivatives of linear learners, centre of the columns
    optimum_: tuple[np.ndarray, np.ndarray] | None = None
    spread_: np.ndarray | None = None  # (d,) deviations of the columns over all clients, where the fit has found them
    equal_units_: bool = False  # whether the penalty of the learners does not depend on the units of the columns
    n_effective_: float  # parameters that the rows determine
    history_: list[dict]

    def describe(self, fed: Federation, trainer: dict | Trainer, theta: Array, *private: str) -> None:
        """Set classes_, theta_, trainer_ and clients_; `private` are the names of client state that clients_ holds."""
        self.trainer_ = as_option(trainer) if isinstance(trainer, Trainer) else trainer
        self.theta_ = to_numpy(theta)
        self.classes_, self.n_features_in_ = np.asarray(self.trainer_["labels"]), self.trainer_["inputs"]
        states = {c.name: c.state for c in fed.here()}
        kept = {name: _picked(states.get(name, {}), private) for name in fed.names}
        personal = set(private) - {"norm"}  # if clients have state of their own, only those of this process are listed
        self.clients_ = {name: own for name, own in kept.items() if own or not personal}
        self.own_: dict[str, np.ndarray] = {}
        self.spread_ = None
        self.calibration_, self.one_calibration_ = NONE, []
        self.one_theta_ = self.theta_[:0]
        self.n_effective_ = 0.5 * self.theta_.size * (1 - 1 / len(self.classes_))
        if len(self.theta_) == 1 and self.learner == "linear":
            found = penalties.coefficients(self.theta_[0], len(self.classes_))
            self.coef_, self.intercept_ = _of_units(*found, fed)

    def polish(
        self, fed: Federation, theta: Array, trainer: dict | Trainer, weights: str, ids: Sequence[int]
    ) -> np.ndarray:
        """Linear learners with lr="auto" at the optimum of their rows, with the clients' weights as they are; others as they were."""
        trainer = as_option(trainer) if isinstance(trainer, Trainer) else trainer
        small = newton.fits(trainer["inputs"], len(trainer["labels"]))
        if self.lr != "auto" or self.learner != "linear" or not small:
            return to_numpy(theta)
        sums = fed.sum(curvatures.column_sums, None)
        C = self._strength(fed, self._spread(fed, to_numpy(sums.x) / float(sums.n)))
        theta, *optimum = polishing.polish(fed, to_numpy(theta), trainer, weights, [int(i) for i in ids], C)
        self.optimum_ = (optimum[0], optimum[1])
        self.equal_units_ = True
        return theta

    def _strength(self, fed: Federation, spread: np.ndarray) -> Any:
        """C, or one per column such that the penalty is of columns divided by their deviations, where they have units."""
        return float(self.C) / np.where(spread > 0, spread, 1.0) ** 2 if has_units(fed, spread) else float(self.C)

    def _second_derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """(inverse at the optimum, centre of the columns) of a linear learner that was fitted exactly, else empty."""
        return (np.zeros((0, 0, 0, 0)), np.zeros(0)) if self.optimum_ is None else self.optimum_

    def _optimism(self, fed: Federation) -> np.ndarray:
        """Parameters per training row: by how much the log-likelihood of such a row exceeds that of a new one (Akaike).

        0 where rows were held out, and over a network, where the server need not know the number of rows.
        """
        if self.trainer_["hold_out"] or self.optimum_ is not None:
            return np.asarray(0.0)
        rows = sum(float(to_numpy(c.w).sum()) for c in fed.here())
        return np.asarray(self.n_effective_ / rows if rows else 0.0)

    def fit_groups(self, fed: Federation, shared_weights: Array, **own: Any) -> None:
        """Networks for groups of clients with similar inputs, in half as many rounds again; sets `groups_` and `group_theta_`.

        `own` is as in `personalise`. There are none for linear learners, or where the clients' inputs do not differ or have gaps.
        """
        self.groups_ = None
        if not self.trainer_["hold_out"] or self.norm == "local":
            return
        if (mean := self._mean_of_columns(fed)) is None:
            return
        groups = find_groups(fed, mean, fed.journal.rng)
        if len(groups.centres) > 1:
            rounds = max(1, len(self.history_) // 2)
            shared = Version(self.theta_, to_numpy(shared_weights), np.zeros(0))
            self.group_theta_ = fit_group_models(fed, self.trainer_, shared, own, len(groups.centres), rounds)
            self.groups_ = groups

    def _mean_of_columns(self, fed: Federation) -> np.ndarray | None:
        """Means of the columns over all clients; None where there are gaps."""
        sums = fed.sum(curvatures.column_sums, None)
        return to_numpy(sums.x) / float(sums.n)

    def personalise(self, fed: Federation, shared_weights: Array | None = None, **own: Any) -> None:
        """Let each client choose what it keeps: one TELL, and one more before it for networks. Call it after `describe`.

        `shared_weights` (k,) are those of the learners over all clients. `own` names the keys of the client's state that make a version of
        its own, see `personal.own_version`.
        """
        if self.personalize == "auto":
            options = {"trainer": self.trainer_, "own": own}
            down = self._shared(fed, shared_weights, own)
            if self.trainer_["hold_out"] or len(down.inverse):
                down = self._calibrate(fed, down, options)
            if len(down.inverse):
                said = fed.sum(personal.judge_candidates.using(**options), down)
                down = down._replace(said=np.stack([said.shares, said.losses]), said_rows=said.rows)
            fed.tell(personalise.using(**options), down)
        self._describe_choices(fed)

    def _shared(self, fed: Federation, shared_weights: Array | None, own: dict[str, Any]) -> Shared:
        """What clients choose by; before it networks are trained at the clients, and linear learners get their second derivatives."""
        k = len(self.theta_)
        shares = np.full(k, 1 / k) if shared_weights is None else to_numpy(shared_weights)
        if self.trainer_["hold_out"]:
            ask = train_own.using(trainer=self.trainer_, own=own, epochs=self._epochs_alone)
            fed.tell(ask, Version(self.theta_, shares, label_shares(fed, self.trainer_["labels"])))
        if self._learned_by_steps:
            ids = own.get("ids") or list(range(k))
            weights = own.get("weights", "")
            self.optimum_ = polishing.second_derivatives(fed, self.theta_, self.trainer_, weights, ids, float(self.C))
        inverse, centre = self._second_derivatives()
        spread = self._spread(fed, centre)
        self.one_theta_, single_inverse = self._fit_single(fed, inverse, spread)
        none = np.array([NONE] * (1 + len(self.one_theta_)))
        optimism = self._optimism(fed)
        single = (self.one_theta_, single_inverse)
        unsaid = personal.NOTHING_SAID
        return Shared(self.theta_, shares, optimism, inverse, centre, none, *single, spread, *unsaid)

    def _calibrate(self, fed: Federation, down: Shared, options: dict[str, Any]) -> Shared:
        """Set the calibrations of the shared models; one SUM."""
        found = calibration.best(fed.sum(personal.calibration_losses.using(**options), down))
        self.calibration_, *self.one_calibration_ = found
        return down._replace(calibration=np.array(self._calibrations))

    def _fit_single(
        self, fed: Federation, inverse: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:  # (1, p), and for its left-out rows
        """One linear learner of all rows beside several that rows were left out of, or beside one whose columns have units of their own;
        else none.

        Its penalty is of columns divided by their deviations.
        """
        units = not self.equal_units_ and not isinstance(self.C, str) and has_units(fed, spread)
        if len(inverse) and (len(self.theta_) > 1 or units):
            path = exact.fit(fed, self.trainer_, self._strength(fed, spread))
            found = exact.at_optimum(fed, path)[0]
            if len(found):
                return path.theta, found
        return self.theta_[:0], np.zeros((0, 0, 0, 0))

    def _spread(self, fed: Federation, centre: np.ndarray) -> np.ndarray:  # (d,), or none
        """Deviations of the columns over all clients about a centre, for linear learners, or 1 where numbers are scaled; one SUM unless the
        fit has found them.
        """
        if not len(centre) or find_layer(fed, "find_moments") is not None:
            return np.ones_like(centre)
        if self.spread_ is not None:
            return self.spread_
        about = curvatures.ColumnSums(np.zeros(()), centre)
        squares = to_numpy(fed.sum(curvatures.second_moments.using(whole=False), about).xx)
        return np.sqrt(squares[:-1] / squares[-1])

    @property
    def _learned_by_steps(self) -> bool:
        """Whether linear learners were trained by SGD on all rows, and few enough parameters to leave rows out afterwards."""
        small = newton.fits(self.trainer_["inputs"], len(self.classes_))
        return self.learner == "linear" and small and self.optimum_ is None

    @property
    def _epochs_alone(self) -> int:
        """Epochs of a network that a client trains alone: those of the run, within bounds."""
        return int(np.clip(self.trainer_["epochs"] * len(self.history_), 10, 200))

    def _describe_choices(self, fed: Federation) -> None:
        """Set gain_ and comparison_, and add what clients of this process keep to clients_."""
        for c in fed.here():
            kept = _picked(c.state, (*personal.KEYS, GROUP_MODEL))
            if kept and c.name in self.clients_:
                self.clients_[c.name] |= kept
        self.comparison_ = {name: _compared(own) for name, own in self.clients_.items() if "kept_losses" in own}
        self.gain_ = {name: row["alone"] - row["kept"] for name, row in self.comparison_.items()}

    def report_figures(self) -> dict[str, str]:
        """The figures of a run's report, by title: what each client of this process has with and without the federation."""
        if not getattr(self, "comparison_", None):
            return {}
        return {"Held-out log-loss of each client, alone and with the federation": gain_table(self.comparison_)}


def _of_units(coef: np.ndarray, intercept: np.ndarray, fed: Federation) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients per unit of each column, where the learner saw mixed columns scaled by their deviations."""
    design = find_layer(fed, "find_moments")
    if design is None or len(design.scale) != coef.shape[1]:
        return coef, intercept
    coef = coef / np.asarray(design.scale)
    return coef, intercept - coef @ np.asarray(design.mean)


def has_units(fed: Federation, spread: np.ndarray) -> bool:
    """Whether columns are as they were given, and their deviations (d,) far from 1: a penalty then depends on units."""
    largest = spread.max(initial=0.0)
    least = spread[spread > 0].min(initial=1.0)
    far = largest > UNITS or 0 < largest < 1 / UNITS or least < SMALL_UNITS
    return bool(far) and find_layer(fed, "find_moments") is None


def gain_table(comparison: Mapping[str, Mapping[str, float]]) -> str:
    """An HTML table of held-out log-losses by client: alone, shared, kept, and what taking part gains."""
    head = "".join(f"<th>{name}</th>" for name in ("client", "rows", "alone", "shared", "kept", "gain"))
    lines = []
    for name, row in comparison.items():
        numbers = [f"{row['rows']:.0f}", *(f"{row[key]:.3f}" for key in ("alone", "shared", "kept"))]
        cells = [escape(name), *numbers, f"{row['alone'] - row['kept']:+.3f}"]
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _compared(own: Mapping[str, np.ndarray]) -> dict[str, float]:
    """A client's held-out losses: alone, shared, and of what it keeps."""
    alone, shared, kept = map(float, own["kept_losses"])
    return {"alone": alone, "shared": shared, "kept": kept, "rows": float(own["kept_rows"])}


def _picked(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Some entries of a client's state as arrays."""
    return {key: to_numpy(state[key]) for key in keys if key in state}
