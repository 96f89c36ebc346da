"""Lines on standard output while a mixture is fitted, as scikit-learn's `verbose` prints them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from unpooled.estimator import Moment


def printed(moments: Iterable[Moment], verbose: int, interval: int) -> Iterator[Moment]:
    """The same moments; a line before the first round, one every `interval` rounds, and one at the end."""
    start = last = time.perf_counter()
    for moment in moments:
        done = len(moment.history)
        now = time.perf_counter()
        if not done:
            print("Initialization", flush=True)
        elif done % interval == 0:
            print(_line(moment, verbose, now - last), flush=True)
            last = now
        if moment.done:
            print(_end(moment, verbose, now - start), flush=True)
        yield moment


def _line(moment: Moment, verbose: int, seconds: float) -> str:
    """The line of one round."""
    text = f"  Iteration {len(moment.history)}"
    return text if verbose < 2 else f"{text}\t time lapse {seconds:.5f}s\t ll change {_change(moment):.5f}"


def _end(moment: Moment, verbose: int, seconds: float) -> str:
    """The line at the end of the fit."""
    text = f"Initialization ended after {len(moment.history)} rounds."
    return text if verbose < 2 else f"{text} time lapse {seconds:.5f}s\t lower bound {_last(moment):.5f}."


def _last(moment: Moment) -> float:
    """The last log-likelihood per row."""
    return moment.history[-1]["loglik"] if moment.history else float("-inf")


def _change(moment: Moment) -> float:
    """How much the last round gained."""
    if len(moment.history) < 2:
        return float("inf")
    return moment.history[-1]["loglik"] - moment.history[-2]["loglik"]
