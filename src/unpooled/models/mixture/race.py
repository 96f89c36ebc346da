"""Accelerated EM that ends no lower than EM: several paths leave it at different moments and ride in the same rounds.

Where a likelihood has many near maxima, which of them a path ends in depends on how closely it followed EM: paths that leave
later did so longer, and faithful ones (`maths.accelerate`) do so all the way, but are slower. So plain EM goes on as a trunk;
each time its gain falls below one of DEPARTURES a path leaves it, the first time also two faithful ones, and the likeliest is kept.
A round sends `Stats` once for every path still under way. A path that comes to where another has settled is given up, and once
one has settled the others have PATIENCE times its rounds in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import like
from unpooled.maths.mixture import Params, Stats
from unpooled.models.mixture import acceleration as accelerate
from unpooled.models.mixture import whitening as whitened
from unpooled.models.mixture.acceleration import Accelerator
from unpooled.tree import message

DEPARTURES = (1e-3, 3e-5, 1e-5)  # a row in a round of plain EM; easy fits end before the first, as plain EM does
NEAR = 0.05  # of a standard deviation, and of a weight: nearer than this to where a path settled it is the same maximum
PATIENCE = 3  # times the rounds of the first that settled


@message("mixture.Path")
class Path(NamedTuple):
    memory: Accelerator
    asked: Params
    best: Params
    loglik: float  # per row, of the best accepted; it never falls
    gain: float
    settled: bool


@message("mixture.Race")
class Race(NamedTuple):
    paths: tuple[Path, ...]  # the first is plain EM while departures are ahead
    departures: tuple[float, ...]  # that are still ahead
    rounds: int
    first: int  # the round in which the first path settled, or 0


def start(params: Params, shape: str, departures: tuple[float, ...] = DEPARTURES) -> Race:
    """Before the first round, which asks about `params`."""
    return Race((Path(accelerate.start(params, shape), params, params, -np.inf, np.inf, False),), departures, 0, 0)


def asked(race: Race) -> tuple[Params, ...]:
    return tuple(path.asked for path in race.paths if not path.settled)


def leader(race: Race) -> Path:
    return max(race.paths, key=lambda path: path.loglik)


def settled(race: Race) -> bool:
    return all(path.settled for path in race.paths)


def advance(race: Race, answers: Sequence[Stats], shape: str, reg: float, tol: float) -> Race:
    """The race after the answers to what was `asked`, in that order; `tol` is the gain at which a path settles."""
    left = iter(answers)
    paths = [path if path.settled else _moved(path, next(left), shape, reg, tol) for path in race.paths]
    race = _branch(race._replace(paths=tuple(paths), rounds=race.rounds + 1), shape)
    if any(path.settled for path in race.paths) and not race.first:
        race = race._replace(first=race.rounds)
    return _give_up(race, shape)


def _moved(path: Path, stats: Stats, shape: str, reg: float, tol: float) -> Path:
    about = tree.map(lambda a: like(a, stats.x), path.asked)  # where the clients' arrays live
    memory, asked, info = accelerate.advance(path.memory, about, stats, shape, reg)
    return Path(memory, asked, info.best, info.loglik, info.gain, bool(info.gain < tol))


def _branch(race: Race, shape: str) -> Race:
    trunk, *others = race.paths
    ahead = tuple(gain for gain in race.departures if gain < trunk.memory.gain)
    if trunk.settled or ahead == race.departures:
        return race
    faiths = range(len(accelerate.TRUST) if not others and len(race.departures) > 1 else 1)
    left = [_departed(trunk, shape, faith) for faith in faiths]
    return race._replace(paths=(*([trunk] if ahead else []), *others, *left), departures=ahead)


def _departed(trunk: Path, shape: str, faith: int) -> Path:
    memory, asked = accelerate.depart(trunk.memory, trunk.asked, shape, faith)
    return trunk._replace(memory=memory, asked=asked)


def _give_up(race: Race, shape: str) -> Race:
    """Without the paths that come to where another has settled, and without those that have had their time."""
    ends = [path for path in race.paths if path.settled]
    if len(race.paths) == 1 or not ends:
        return race
    ahead, late = leader(race), race.rounds >= PATIENCE * race.first

    def goes_on(path: Path) -> bool:
        return (path is ahead or not late) and not any(_near(path, end, shape) for end in ends)

    kept = [path for path in race.paths if path.settled or goes_on(path)]
    return race._replace(paths=tuple(kept), departures=race.departures if kept[0].memory.plain else ())


def _near(path: Path, end: Path, shape: str) -> bool:
    here, there = path.memory.point, end.memory.point
    assert here is not None  # every path has been answered
    assert there is not None
    return whitened.apart(whitened.around(there.params, shape), here.params) < NEAR
