"""All clients in this process: merged when the question adds over rows, stacked when it is batched, one by one otherwise.

How the work is cut into jobs depends on the clients alone, and answers are added in a fixed order, so any number of threads gives
the same bits. At most a window of answers is alive at a time: memory does not grow with clients x statistics.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from unpooled import tree
from unpooled.arrays import is_torch, namespace
from unpooled.client import KEYS, Ask, Client, digest
from unpooled.errors import BadParameter
from unpooled.federation import Journal, cohort
from unpooled.tree import Tree

BLOCKS = 16  # merged blocks, and slices of large clients, are about this many, so that threads have something to share,
BLOCK_ROWS = (8_192, 65_536)  # of at least and at most so many rows, so that handing them out costs little
STACK_CLIENTS = 256  # clients stacked into one job at most: bounds the answers in memory
STACK_CELLS = 4_000_000  # numbers in one stack at most, unless Local is told otherwise: a GPU wants more
STACK_PADDING = 0.125  # of a stack at most, about, unless Local is told otherwise: a GPU wants few stacks, say 1.0

MODES = ("auto", "stacked", "one by one")


class Job(NamedTuple):
    """A piece of work for one thread: the clients it speaks for, and what the question is put to."""

    clients: list[Client]
    target: Client  # a client, many merged or stacked, or a slice of one
    last: bool = True  # False: more slices of the same clients follow


class Local:
    """A federation whose clients live here. `mode="one by one"` is the way to debug; results do not depend on it."""

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        mode: str = "auto",
        threads: int | None = None,
        min_clients: int = 1,
        stack_cells: int = STACK_CELLS,
        stack_padding: float = STACK_PADDING,
    ):
        if mode not in MODES:
            raise BadParameter(f"mode={mode!r} is not known: use one of {', '.join(MODES)}")
        self.clients, self.mode, self.min_clients = list(clients), mode, min_clients
        self.threads = threads or len(os.sched_getaffinity(0))
        self.stack_cells, self.stack_padding = stack_cells, stack_padding
        self.columns: list[str] | None = None
        self.journal = Journal()
        self._jobs: dict[str, list[Job]] = {}

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.clients]

    def sum(self, ask: Ask, down: Tree) -> Tree:
        total: Tree = None
        with self.journal.exchange(ask, down, "sum", self.names, self.min_clients) as tally:
            for _, up in self._answers(ask, down, tally, self._plan(ask), together=True):
                total = up if total is None else tree.add(total, up)
        return ask.complete(total, tally.names, tree.dims(down, ask.types[0]))

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        with self.journal.exchange(ask, down, "gather", self.names, self.min_clients) as tally:
            return dict(self._answers(ask, down, tally, self._plan(ask, merge=False)))

    def tell(self, ask: Ask, down: Tree) -> None:
        with self.journal.exchange(ask, down, "tell", self.names, self.min_clients) as tally:
            for _ in self._answers(ask, down, tally, self._plan(ask, merge=False)):
                pass

    def only(self, names: Sequence[str]) -> Local:
        wanted = set(names)
        part = copy.copy(self)
        part.clients, part._jobs = [c for c in self.clients if c.name in wanted], {}
        return part

    def sample(self, share: float, rng: np.random.Generator) -> Local:
        return self.only(cohort(self.names, share, rng))

    def here(self) -> list[Client]:
        return self.clients

    def snapshot(self) -> Tree:
        return {c.name: dict(c.state) for c in self.clients if c.state}

    def restore(self, saved: Tree) -> None:
        for c in self.clients:
            c.state = dict(saved.get(c.name, {}))

    # ---- who answers together ----

    def _plan(self, ask: Ask, merge: bool = True) -> list[Job]:
        if self.mode == "one by one" or ask.steps or ask.letters or ask.kind == KEYS or not (ask.batched or ask.adds):
            kind = "single"
        else:
            kind = "merged" if ask.adds and merge and self.mode == "auto" else "stacked"
        if kind == "stacked" and not ask.batched:
            kind = "single"
        if kind not in self._jobs:
            cut: dict[str, Callable[..., Iterator[Job]]] = {
                "single": single_jobs,
                "merged": merged_jobs,
                "stacked": partial(stacked_jobs, cells=self.stack_cells, padding=self.stack_padding),
            }
            self._jobs[kind] = list(cut[kind](self.clients))
        return self._jobs[kind]

    # ---- answers, in order ----

    def _answers(
        self, ask: Ask, down: Tree, tally: Any, jobs: list[Job], together: bool = False
    ) -> Iterator[tuple[str, Tree]]:
        """(client, checked answer) pairs; clients that answer together come as one pair under the first one's name."""
        moment, bound = (self.journal.seed, self.journal.round), tree.dims(down, ask.types[0])
        so_far: Any = None
        for job, outcome in self._run(lambda job: _attempt(ask, down, job, moment), jobs):
            so_far = _join(so_far, outcome)
            if job.last:
                yield from self._accept(ask, down, tally, job, so_far, bound, together)
                so_far = None

    def _accept(self, ask, down, tally, job: Job, outcome, bound, together) -> Iterator[tuple[str, Tree]]:
        """Check what a job sent; whatever is wrong with many together is looked for one by one."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            state, sent = outcome
            voices = list(_voices(ask, job, state, sent, bound, together))
        except Exception as error:
            if len(job.clients) == 1:
                tally.refuse(job.clients[0].name, error)
                return
            yield from self._one_by_one(ask, down, tally, job, bound, together, error)
            return
        for voice in voices:
            tally.count(voice.sent, [c.name for c in voice.clients])
            for c, state in zip(voice.clients, voice.states):
                c.state = state
            yield voice.clients[0].name, voice.up

    def _one_by_one(self, ask, down, tally, job: Job, bound, together, error: Exception) -> Iterator[tuple[str, Tree]]:
        moment, before = (self.journal.seed, self.journal.round), len(self.journal.refusals)
        for single in single_jobs(job.clients):
            outcome = _attempt(ask, down, single, moment)
            yield from self._accept(ask, down, tally, single, outcome, bound, together)
        if len(self.journal.refusals) == before and not isinstance(error, _Unlike):  # then the question is at fault
            text = f"{ask.name} fails for clients together but for none alone ({error}): asked one by one, it is slow"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _run(self, work: Callable[[Job], Any], jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """(job, result) in order, with at most a window of results alive."""
        with _one_blas_thread():
            if self.threads == 1:
                yield from ((job, work(job)) for job in jobs)
                return
            with ThreadPoolExecutor(self.threads) as pool:
                window: deque = deque()
                for job in jobs:
                    window.append((job, pool.submit(work, job)))
                    if len(window) >= 2 * self.threads:
                        done, future = window.popleft()
                        yield done, future.result()
                while window:
                    done, future = window.popleft()
                    yield done, future.result()


def _attempt(ask: Ask, down: Tree, job: Job, moment: tuple[int, int]) -> Any:
    """(new state, what was sent), or the exception: a broken client never stops the others."""
    try:
        me = copy.copy(job.target.at(*moment))
        me.state = _stack_states(job.clients) if me.stacked else dict(me.state)
        me.letters = ask.letters_to(me.name)
        me.asked = partial(digest, ask, down)
        sent = ask(down, me)
        return me.state, sent
    except ModuleNotFoundError:  # is missing for all, and no fault of a client
        raise
    except Exception as error:
        return error


def _join(a: Any, b: Any) -> Any:
    """Two outcomes of slices of the same client: answers add, an error stays."""
    if a is None or isinstance(b, Exception):
        return b
    return a if isinstance(a, Exception) else (b[0], tree.add(a[1], b[1]))


class Voice(NamedTuple):
    """One checked answer, of one client or of several together."""

    clients: list[Client]
    states: list[dict]  # their new states; none where the question keeps none
    sent: Tree  # what one of them sent
    up: Tree


def _voices(ask: Ask, job: Job, state: dict, sent: Tree, bound: dict, together: bool) -> Iterator[Voice]:
    """The checked answers in what a job sent."""
    if not job.target.stacked:
        states = [state] if job.target is job.clients[0] else []
        yield Voice(job.clients, states, sent, ask.receive(sent, job.clients[0].name, copy.deepcopy(bound)))
        return
    states = [tree.at(state, i) for i in range(len(job.clients))]
    if together:
        tree.check(sent, ask.types[1], copy.deepcopy(bound), lead=1)
        yield Voice(job.clients, states, tree.at(sent, 0), tree.map(lambda a: a.sum(0), sent))
        return
    for i, c in enumerate(job.clients):
        one = tree.at(sent, i)
        yield Voice([c], [states[i]], one, ask.receive(one, c.name, copy.deepcopy(bound)))


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _one_blas_thread():
    """Threads go over clients; each does its algebra on one core, so that bits do not depend on how many there are."""
    controller = _controller()
    return controller.limit(limits=1, user_api="blas") if controller.lib_controllers else nullcontext()


# ---- how clients become jobs ----


def single_jobs(clients: Iterable[Client]) -> Iterator[Job]:
    return (Job([c], c) for c in clients)


def merged_jobs(clients: Sequence[Client]) -> Iterator[Job]:
    """Small neighbours concatenated, large clients cut into slices of rows; the cut depends on the clients alone."""
    rows = int(np.clip(sum(len(c.w) for c in clients) // BLOCKS, *BLOCK_ROWS))
    for large, run in groupby(clients, key=lambda c: len(c.w) > rows):
        group = list(run)
        yield from (job for c in group for job in _slices(c, rows)) if large else _blocks(group, rows)


def _slices(c: Client, rows: int) -> Iterator[Job]:
    n = len(c.w)
    for start in range(0, n, rows):
        some = slice(start, start + rows)
        part = Client(c.name, c.x[some], None if c.y is None else c.y[some], c.w[some])
        yield Job([c], part, last=start + rows >= n)


def _blocks(clients: list[Client], rows: int) -> Iterator[Job]:
    ends = np.cumsum([len(c.w) for c in clients])
    for _, block in groupby(range(len(clients)), key=lambda i: (ends[i] - 1) // rows):
        group = [clients[i] for i in block]
        yield Job(group, group[0] if len(group) == 1 else _merge(group))


def _merge(group: list[Client]) -> Client:
    join = namespace(group[0].x).concatenate
    y = None if group[0].y is None else join([c.y for c in group])
    return Client(f"{group[0].name}+...", join([c.x for c in group]), y, join([c.w for c in group]))


def stacked_jobs(clients: Sequence[Client], cells: int = STACK_CELLS, padding: float = STACK_PADDING) -> Iterator[Job]:
    """Clients of like size padded to one width; padding has weight 0."""
    by_size: dict[int, list[Client]] = {}
    for c in clients:
        by_size.setdefault(_bucket(len(c.w), padding), []).append(c)
    for width, members in sorted(by_size.items()):
        per_client = width * members[0].x.shape[-1]
        step = int(np.clip(cells // max(per_client, 1), 1, STACK_CLIENTS))
        for i in range(0, len(members), step):
            group = members[i : i + step]
            yield Job(group, _stack(group))


def _bucket(n: int, padding: float) -> int:
    """Widths grow by this share: by an eighth there is little padding and there are few buckets."""
    if n <= 16:
        return 16
    step = max(int(2 ** (int(n - 1).bit_length() - 1) * padding), 1)
    return -(-n // step) * step


def _stack(group: list[Client]) -> Client:
    width = max(len(c.w) for c in group)
    stack = lambda arrays: namespace(arrays[0]).stack([_pad(a, width) for a in arrays])  # noqa: E731
    y = None if group[0].y is None else stack([c.y for c in group])
    x, w, members = stack([c.x for c in group]), stack([c.w for c in group]), tuple(c.name for c in group)
    return Client("stack", x, y, w, stacked=True, members=members)


def _pad(a: Any, width: int) -> Any:
    short = width - a.shape[0]
    if short == 0:
        return a
    xp = namespace(a)
    filler = xp.zeros((short, *a.shape[1:]), dtype=a.dtype, **({"device": a.device} if is_torch(a) else {}))
    return xp.concatenate([a, filler])


class _Unlike(Exception):
    """States of different make cannot be stacked: such clients are asked one by one."""


def _stack_states(clients: list[Client]) -> dict[str, Tree]:
    """The clients' states as one, leaf by leaf."""
    try:
        return tree.map(lambda *leaves: namespace(*leaves).stack(leaves), *[c.state for c in clients])
    except Exception as error:
        raise _Unlike(str(error)) from error
