"""Several fits in the same rounds: each question asks for the sums of many points, without many folds, at once. SUMs only.

Which question of a fit is asked as part of which of these stands in `GRIDS`. `held` is how many rows each fold leaves out at the client:
a node that lets out no count of few rows refuses folds that are too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Ask, Client, client
from unpooled.layers.folds import training_rows
from unpooled.models.glm import classes, questions
from unpooled.models.glm.classes import Counts
from unpooled.models.glm.classes import Curvature as ClassCurvature
from unpooled.models.glm.classes import Point as ClassPoint
from unpooled.models.glm.questions import Curvature, Final, Look, Point
from unpooled.tree import Tree, message


@message("glm.Looks")
class Looks(NamedTuple):
    """First looks of several fits; `held` are the rows that each leaves out."""

    held: Float[Array, "a", ">=0 rows"]
    parts: tuple[Look, ...]


@message("glm.Curvatures")
class Curvatures(NamedTuple):
    """Newton sums of several fits; `held` are the rows that each leaves out."""

    held: Float[Array, "a", ">=0 rows"]
    parts: tuple[Curvature, ...]


@message("glm.Finals")
class Finals(NamedTuple):
    """Last sums of several fits; `held` are the rows that each leaves out."""

    held: Float[Array, "a", ">=0 rows"]
    parts: tuple[Final, ...]


@message("glm.ManyCounts")
class ManyCounts(NamedTuple):
    """Counts by class of several fits; `held` are the rows that each leaves out."""

    held: Float[Array, "a", ">=0 rows"]
    parts: tuple[Counts, ...]


@message("glm.ClassCurvatures")
class ClassCurvatures(NamedTuple):
    """Newton sums of several classifiers; `held` are the rows that each leaves out."""

    held: Float[Array, "a", ">=0 rows"]
    parts: tuple[ClassCurvature, ...]


@client("glm.look_grid", SUM, batched=False)
def look_grid(downs: tuple[None, ...], client: Client, *, asks: list) -> Looks:
    """Rows and column sums, without each of some folds."""
    return Looks(*_each(questions.look, downs, client, asks))


@client("glm.start_grid", SUM, batched=False)
def start_grid(downs: tuple[Point, ...], client: Client, *, asks: list) -> Curvatures:
    """The least squares problems of first scoring steps, without each of some folds."""
    return Curvatures(*_each(questions.start, downs, client, asks))


@client("glm.newton_grid", SUM, batched=False)
def newton_grid(downs: tuple[Point, ...], client: Client, *, asks: list) -> Curvatures:
    """Scores and curvatures of the log-likelihood at several points, without each of some folds."""
    return Curvatures(*_each(questions.newton, downs, client, asks))


@client("glm.final_grid", SUM, batched=False)
def final_grid(downs: tuple[Point, ...], client: Client, *, asks: list) -> Finals:
    """Scores, curvatures and deviances at several fitted points, without each of some folds."""
    return Finals(*_each(questions.final, downs, client, asks))


@client("glm.class_counts_grid", SUM, batched=False)
def class_counts_grid(downs: tuple[None, ...], client: Client, *, asks: list) -> ManyCounts:
    """Rows of each class and column sums, without each of some folds."""
    return ManyCounts(*_each(classes.counts, downs, client, asks))


@client("glm.class_curvature_grid", SUM, batched=False)
def class_curvature_grid(downs: tuple[ClassPoint, ...], client: Client, *, asks: list) -> ClassCurvatures:
    """Scores and curvatures of the log-loss at several points, without each of some folds."""
    return ClassCurvatures(*_each(classes.curvature, downs, client, asks))


GRIDS: dict[str, Ask] = {
    "glm.look": look_grid,
    "glm.start": start_grid,
    "glm.newton": newton_grid,
    "glm.final": final_grid,
    "glm.class_counts": class_counts_grid,
    "glm.class_curvature": class_curvature_grid,
}


def _each(ask: Ask, downs: Sequence[Tree], client: Client, asks: list) -> tuple[np.ndarray, tuple]:
    """(rows left out by each, the answers), every fold's rows chosen once."""
    views: dict[tuple[int, int], Client] = {}
    parts: list[Any] = []
    for down, one in zip(downs, asks, strict=True):
        fold = (int(one["folds"]), int(one["fold"]))
        if fold not in views:
            views[fold] = training_rows.answer(client, folds=fold[0], fold=fold[1])
        parts.append(ask.using(**one["options"]).answer(down, views[fold], **one["options"]))
    held = [float((to_numpy(client.w) > 0).sum() - (to_numpy(v.w) > 0).sum()) for v in views.values()]
    return np.array(held), tuple(parts)
