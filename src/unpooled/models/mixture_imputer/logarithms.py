"""Mean and spread of the columns, which columns are skewed, and mixtures of their logarithms: two SUMs of moments for each."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.errors import BadData
from unpooled.federation import Federation, refuse_few
from unpooled.maths.mixture import Params
from unpooled.models import initialization as start
from unpooled.models.initialization import Centre, Frame, without_constants
from unpooled.models.mixture_imputer.candidates import Candidate, Kind, of_logarithms
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.questions import look, spread

FAR = 2.0  # standard deviations of logarithms that a start is at most from their mean


def start_frame(fed: Federation, embedding: Embedding) -> tuple[Frame, np.ndarray]:
    """Mean and standard deviation of every embedded column over all clients, and how many values it has: two SUMs."""
    first = fed.sum(look.using(columns=embedding.option), None)
    seen = to_numpy(first.seen)
    held = np.array([seen[part].sum() for part in embedding.parts])
    if (held == 0).any():
        raise BadData(f"column {int(np.argmin(held))} holds no value at any client: drop it")
    refuse_few(fed, _rows_by_level(embedding, seen, to_numpy(first.x)))
    mean = to_numpy(first.x) / np.maximum(seen, 1e-300)
    squares = to_numpy(fed.sum(spread.using(columns=embedding.option), Centre(mean)).xx)
    variance = squares / np.maximum(seen, 1e-300)
    return Frame(mean, np.sqrt(without_constants(variance, mean)), np.asarray(float(first.rows))), seen


def _rows_by_level(embedding: Embedding, seen: np.ndarray, x: np.ndarray) -> dict[str, float]:
    """How many rows have each level of categories and binary columns."""
    found: dict[str, float] = {}
    for j, part in enumerate(embedding.parts):
        if embedding.kinds[j] not in ("category", "binary"):
            continue
        counts = x[part] if embedding.kinds[j] == "category" else np.append(seen[part] - x[part], x[part])
        found |= {f"level {level} of column {j}": float(n) for level, n in enumerate(counts)}
    return found


def skewed_columns(
    fed: Federation, embedding: Embedding, frame: Frame, seen: np.ndarray
) -> tuple[tuple[int, ...], Frame]:
    """(columns of numbers above 0 whose logarithms are nearer to a normal distribution, the frame with logarithms there).

    Nearer by likelihood, as Box and Cox choose a transformation, and by more than BIC's price of a parameter. The unit of a column does
    not matter.
    """
    numbers = [j for j, kind in enumerate(embedding.kinds) if kind in ("real", "count")]
    if not numbers:
        return (), frame
    option = Embedding(embedding.kinds, embedding.levels, numbers).logarithmic.option
    first = fed.sum(look.using(columns=option), None)
    positive = to_numpy(first.seen)
    mean = to_numpy(first.x) / np.maximum(positive, 1e-300)
    variance = to_numpy(fed.sum(spread.using(columns=option), Centre(mean)).xx) / np.maximum(positive, 1e-300)
    scale = np.sqrt(without_constants(variance, mean))
    gain = seen * (np.log(frame.scale) - np.log(scale) - mean)
    chosen = (positive == seen) & (gain > np.log(np.maximum(seen, 1.0)) / 2)  # no value is 0 or below
    skewed = [j for j in numbers if chosen[embedding.parts[j].start]]
    of_logs = np.isin(embedding.column_of, skewed)
    frame = frame._replace(mean=np.where(of_logs, mean, frame.mean), scale=np.where(of_logs, scale, frame.scale))
    return tuple(skewed), frame


def candidates(
    kinds: list[Kind], starts: dict[int, Params], embedding: Embedding, skewed: tuple[int, ...], frame: Frame
) -> tuple[Candidate, ...]:
    """Mixtures of logarithms of skewed columns, which start at the means of mixtures of the columns themselves."""
    places = [embedding.parts[j].start for j in skewed]
    low, high = (np.exp((frame.mean + sign * FAR * frame.scale)[places]) for sign in (-1, 1))
    tried = []
    for kind in of_logarithms(kinds) if places else []:
        means = np.array(starts[kind.k].means)
        means[:, places] = np.log(np.clip(means[:, places], low, high))
        params = start.wide(frame, means, "full")
        tried.append(Candidate(params, kind.prior, kind.pooled, -np.inf, False, logs=True))
    return tuple(tried)
