"""Accelerated EM that stops when plain EM would, or before: one SUM per round serves plain EM and one faster path.

A round asks about two mixtures at most. Plain EM goes on as a trunk; when its gain falls below one of DEPARTURES and no path is
under way, a path leaves it (`acceleration`). The race ends as soon as one of two things is so:

- the path has settled (a step of plain EM from there would gain less than `tol` per row), at a log-likelihood that the trunk will
  not reach before it settles too, if its gains go on falling as they do;
- the trunk has settled: rounds are never more than plain EM's.

A path that settles lower waits, and another leaves at the next of DEPARTURES. All log-likelihoods are exact and of the same
rows, so that they can be compared; the likeliest mixture is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import like
from unpooled.maths.mixture import Params, Stats
from unpooled.models.mixture import acceleration as accelerate
from unpooled.models.mixture.acceleration import Accelerator
from unpooled.tree import message

DEPARTURES = (1e-3, 1e-4, 3e-5, 1e-5, 3e-6)  # gain per row in a round of plain EM; easy fits end before the first
SLOWEST = 0.99  # ratio of two gains of plain EM in a row; nearer to 1 they do not tell where it will end


@message("mixture.Path")
class Path(NamedTuple):
    """One way through the rounds: plain EM or an accelerated one."""

    memory: Accelerator
    asked: Params
    best: Params
    loglik: float  # per row, of the best accepted; it never falls
    gain: float
    before: float  # the gain of the round before
    settled: bool


@message("mixture.Race")
class Race(NamedTuple):
    """All paths of one candidate."""

    paths: tuple[Path, ...]  # the first is plain EM, unless only one path may be asked about
    departures: tuple[float, ...]  # that are still ahead
    alone: bool  # whether a path takes the trunk's place


def start(params: Params, shape: str, alone: bool = False) -> Race:
    """Before the first round, which asks about `params`; `alone` asks about one mixture in every round."""
    trunk = Path(accelerate.start(params, shape), params, params, -np.inf, np.inf, np.inf, False)
    return Race((trunk,), DEPARTURES, alone)


def asked(race: Race) -> tuple[Params, ...]:
    """The parameters that the next round asks about, one per path that goes on."""
    return tuple(path.asked for path in race.paths if not path.settled)


def leader(race: Race) -> Path:
    """The path with the largest log-likelihood."""
    return max(race.paths, key=lambda path: path.loglik)


def settled(race: Race) -> bool:
    """Whether every path has converged."""
    return all(path.settled for path in race.paths)


def advance(race: Race, answers: Sequence[Stats], shape: str, reg: float, tol: float) -> Race:
    """The race after the answers to what was `asked`, in that order; `tol` is the gain at which a path settles."""
    left = iter(answers)
    paths = [path if path.settled else _moved(path, next(left), shape, reg, tol) for path in race.paths]
    race = race._replace(paths=tuple(paths))
    if race.alone:
        return _take_over(race, shape)
    trunk, *others = race.paths
    ends = [path.loglik for path in others if path.settled]
    if trunk.settled or (ends and max(ends) >= trunk.loglik + _ahead(trunk, tol)):
        return _ended(race)
    return _branch(race, shape)


def _moved(path: Path, stats: Stats, shape: str, reg: float, tol: float) -> Path:
    """The path after the answer to what it asked."""
    about = tree.map(lambda a: like(a, stats.x), path.asked)  # where the clients' arrays live
    memory, asked, info = accelerate.advance(path.memory, about, stats, shape, reg)
    return Path(memory, asked, info.best, info.loglik, info.gain, path.gain, bool(info.gain < tol))


def _ahead(trunk: Path, tol: float) -> float:
    """What plain EM will still gain per row before a round gains less than `tol`, if its gains go on falling as they do."""
    ratio = trunk.gain / trunk.before if np.isfinite(trunk.before) else 1.0
    ratio = min(ratio, SLOWEST)
    return max(trunk.gain - tol, 0.0) * ratio / (1 - ratio)


def _branch(race: Race, shape: str) -> Race:
    """A path leaves the trunk where no other is under way and the gain has fallen below the next of the departures."""
    trunk, *others = race.paths
    ahead = tuple(gain for gain in race.departures if gain < trunk.memory.gain)
    if len(asked(race)) > 1 or ahead == race.departures:
        return race
    return race._replace(paths=(trunk, *others, _departed(trunk, shape)), departures=ahead)


def _take_over(race: Race, shape: str) -> Race:
    """Let the only path leave plain EM once its gain is small enough."""
    (path,) = race.paths
    if path.memory.plain and not path.settled and path.memory.gain <= race.departures[0]:
        return race._replace(paths=(_departed(path, shape),))
    return race


def _departed(trunk: Path, shape: str) -> Path:
    """An accelerated path that starts where plain EM is."""
    memory, asked = accelerate.depart(trunk.memory, trunk.asked, shape)
    return trunk._replace(memory=memory, asked=asked)


def _ended(race: Race) -> Race:
    """The race with all paths stopped."""
    return race._replace(paths=tuple(path._replace(settled=True) for path in race.paths))
