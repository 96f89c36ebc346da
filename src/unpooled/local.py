"""A federation in this process: clients are merged if the question adds over rows, stacked if it is batched, else asked
one by one.

How the work is cut into jobs depends on the clients alone, and answers are added in a fixed order, so any number of
threads gives the same bits. At most a window of answers is alive at a time: memory does not grow with clients x
statistics.
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
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from unpooled import tree
from unpooled.arrays import namespace
from unpooled.client import KEYS, SMALL, Ask, Client, digest
from unpooled.errors import BadParameter
from unpooled.federation import Journal, Tally, cohort
from unpooled.jobs import STACK_CELLS, STACK_PADDING, Job, merged_jobs, single_jobs, small_jobs, stacked_jobs
from unpooled.parameters import one_of
from unpooled.tree import Tree

FEW_CELLS = 500_000  # numbers in the rows of all clients, below which no threads are started
MODES = ("auto", "stacked", "one by one")


def count_threads(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` asks for, counted as in scikit-learn: -1 is one per core, -2 one less."""
    cores = _cores()
    if n_jobs is None:
        return cores
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise BadParameter(f"n_jobs={n_jobs!r} must be a whole number other than 0, or None: -1 is one thread per core")
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Local:
    """A federation whose clients are in this process.

    Usually made by `federate`. Results do not depend on `mode` or `n_jobs`.

    Parameters
    ----------
    clients : sequence of Client
        Rows, labels and row weights of each client.
    mode : {"auto", "stacked", "one by one"}, default="auto"
        "auto" merges or stacks clients wherever a question allows it, "stacked" never merges them, and "one by one" asks
        each client by itself, which is slow and easy to debug.
    n_jobs : int or None, default=None
        Threads that work on clients at the same time; None and -1 are one per available core, -2 is one less than that.
        Any value gives the same bits.
    min_clients : int, default=1
        Fewer answers than this in a round raise TooFewClients.
    stack_cells : int, default=4_000_000
        Numbers in one stack of clients at most; a GPU can take more.
    stack_padding : float, default=0.125
        Share of a stack that may be padding, roughly; larger values give fewer stacks, which suits a GPU.
    threads : int or None, default=None
        The former name of `n_jobs`, still read where `n_jobs` is None.

    Attributes
    ----------
    names : list of str
        Names of the clients.
    columns : list of str or None
        Names of the columns, if the data has names.
    schema : Schema or None
        Kinds, units and levels of the columns, if they are known; rows hold codes of levels and days of dates.
    journal : Journal
        The record of the run: every exchange and every refusal.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> from unpooled.client import Client
    >>> fed = up.Local([Client("north", np.ones((4, 2))), Client("south", np.zeros((6, 2)))], mode="one by one")
    >>> fed.names
    ['north', 'south']
    >>> up.PCA(n_components=1).fit(fed).n_samples_
    10
    """

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        mode: str = "auto",
        n_jobs: int | None = None,
        min_clients: int = 1,
        stack_cells: int = STACK_CELLS,
        stack_padding: float = STACK_PADDING,
        threads: int | None = None,
    ):
        one_of("mode", mode, MODES)
        self.clients = list(clients)
        self.mode = mode
        self.min_clients = min_clients
        self.threads = count_threads(threads if n_jobs is None else n_jobs)
        self.stack_cells, self.stack_padding = stack_cells, stack_padding
        self.columns: list[str] | None = None
        self.schema: Any = None
        self.journal = Journal()
        self._jobs: dict[str, list[Job]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the clients, in order."""
        return [c.name for c in self.clients]

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask all clients and add up their answers as they come."""
        total: Tree = None
        with self.journal.exchange(ask, down, "sum", self.names, self.min_clients) as tally:
            for _, up in self._answers(ask, down, tally, self._plan(ask), together=True):
                total = up if total is None else tree.add(total, up)
        return ask.complete(total, tally.names, tree.dims(down, ask.types[0])) if ask.on_totals else total

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Ask all clients and keep each answer."""
        with self.journal.exchange(ask, down, "gather", self.names, self.min_clients) as tally:
            return dict(self._answers(ask, down, tally, self._plan(ask, merge=False)))

    def tell(self, ask: Ask, down: Tree) -> None:
        """Tell all clients; nothing comes back."""
        with self.journal.exchange(ask, down, "tell", self.names, self.min_clients) as tally:
            for _ in self._answers(ask, down, tally, self._plan(ask, merge=False), together=True):
                pass  # nothing comes back, so that stacked clients may be counted together

    def only(self, names: Sequence[str]) -> Local:
        """The same federation with some of the clients; states are shared."""
        wanted = set(names)
        part = copy.copy(self)
        part.clients = [c for c in self.clients if c.name in wanted]
        part._jobs = {}
        return part

    def sample(self, share: float, rng: np.random.Generator) -> Local:
        """The same federation with a random part of the clients."""
        return self.only(cohort(self.names, share, rng))

    def here(self) -> list[Client]:
        """All clients: they are in this process."""
        return self.clients

    def snapshot(self) -> Tree:
        """The states of clients that have one, for a checkpoint."""
        return {c.name: dict(c.state) for c in self.clients if c.state}

    def restore(self, saved: Tree) -> None:
        """Go back to what `snapshot` gave; clients without a saved state have none."""
        for c in self.clients:
            c.state = dict(saved.get(c.name, {}))

    # ---- jobs ----

    def _plan(self, ask: Ask, merge: bool = True) -> list[Job]:
        """Jobs for a question: clients merged, stacked or single, as the question and the mode allow."""
        kind = self._kind_of_jobs(ask, merge)
        if kind not in self._jobs:
            cut: dict[str, Callable[..., Iterator[Job]]] = {
                "single": single_jobs,
                "merged": merged_jobs,
                "small": small_jobs,
                "stacked": partial(stacked_jobs, cells=self.stack_cells, padding=self.stack_padding),
            }
            self._jobs[kind] = list(cut[kind](self.clients))
        return self._jobs[kind]

    def _kind_of_jobs(self, ask: Ask, merge: bool) -> str:
        """ "single", "merged", "small" or "stacked"; what layers do to an answer is done for each client alone."""
        alone = ask.steps or ask.letters or ask.inspect or ask.kind == KEYS
        if self.mode == "one by one" or alone:
            return "single"
        if ask.adds and merge and self.mode == "auto":
            return "merged"
        if ask.batched == SMALL:
            return "small"
        return "stacked" if ask.batched else "single"

    # ---- answers, in order ----

    def _answers(
        self, ask: Ask, down: Tree, tally: Tally, jobs: list[Job], together: bool = False
    ) -> Iterator[tuple[str, Tree]]:
        """(client, checked answer) pairs; clients that answer together are one pair with the first client's name."""
        moment = self.journal.seed, self.journal.round
        asked = _Asked(ask, down, moment, tree.dims(down, ask.types[0]), tally, together)
        so_far: Any = None
        for job, outcome in self._run(asked.attempt, jobs, threads=1 if ask.brief else self.threads):
            so_far = _join(so_far, outcome)
            if job.last:
                yield from self._accept(asked, job, so_far)
                so_far = None

    def _accept(self, asked: _Asked, job: Job, outcome: Any) -> Iterator[tuple[str, Tree]]:
        """Check the answer of a job; if a job of several clients fails, they are asked one by one."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            answers = list(asked.checked(job, *outcome))
        except Exception as error:
            if len(job.clients) == 1:
                asked.tally.refuse(job.clients[0].name, error)
                return
            yield from self._one_by_one(asked, job, error)
            return
        for answer in answers:
            asked.tally.count(answer.sent, [c.name for c in answer.clients])
            for c, state in zip(answer.clients, answer.states):
                c.state = state
            yield answer.clients[0].name, answer.up

    def _one_by_one(self, asked: _Asked, job: Job, error: Exception) -> Iterator[tuple[str, Tree]]:
        """Ask the clients of a job that failed one by one, so that only the faulty ones are refused."""
        before = len(self.journal.refusals)
        for single in single_jobs(job.clients):
            yield from self._accept(asked, single, asked.attempt(single))
        none_refused = len(self.journal.refusals) == before
        if none_refused and not isinstance(error, _StatesDiffer):  # then the question itself is wrong
            text = f"{asked.ask.name} fails for stacked or merged clients but for no single one ({error}): asked one by one, it is slow"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _run(self, work: Callable[[Job], Any], jobs: Iterable[Job], threads: int) -> Iterator[tuple[Job, Any]]:
        """(job, result) pairs in order; at most a window of results is in memory."""
        with _one_blas_thread():
            jobs = list(jobs)
            if threads == 1 or len(jobs) == 1 or _few_cells(jobs):  # starting a thread may take longer than the answer
                yield from ((job, work(job)) for job in jobs)
                return
            with ThreadPoolExecutor(threads) as pool:
                window: deque = deque()
                for job in jobs:
                    window.append((job, pool.submit(work, job)))
                    if len(window) >= 2 * threads:
                        done, future = window.popleft()
                        yield done, future.result()
                while window:
                    done, future = window.popleft()
                    yield done, future.result()


class Answer(NamedTuple):
    """One checked answer, of one client or of several together."""

    clients: list[Client]
    states: list[dict]  # their new states; empty if the question keeps none
    sent: Tree  # the answer as one of them sent it
    up: Tree


class _Asked(NamedTuple):
    """One question of one round, as all jobs are asked it."""

    ask: Ask
    down: Tree
    moment: tuple[int, int]  # (seed, round)
    bound: dict[str, Any]  # sizes of the named axes of `down`
    tally: Tally
    together: bool  # whether the answers of stacked clients are added up at once

    def attempt(self, job: Job) -> Any:
        """(new state, answer), or the exception: a client that fails does not stop the others."""
        try:
            me = copy.copy(job.target.at(*self.moment))
            me.state = _stack_states(job.clients) if me.stacked else dict(me.state)
            me.letters = self.ask.letters_to(me.name)
            me.asked = partial(digest, self.ask, self.down)
            sent = self.ask(self.down, me)
            return me.state, sent
        except ModuleNotFoundError:  # missing for all clients, not an error of one
            raise
        except Exception as error:
            return error

    def checked(self, job: Job, state: Any, sent: Tree) -> Iterator[Answer]:
        """The checked answers of a job."""
        clients = job.clients
        if not job.target.stacked:
            states = [state] if job.target is clients[0] else []
            yield Answer(clients, states, sent, self._received(sent, clients[0]))
            return
        states = state if isinstance(state, list) else [tree.at(state, i) for i in range(len(clients))]
        if self.together:
            tree.check(sent, self.ask.types[1], tree.copied(self.bound), lead=1)
            yield Answer(clients, states, tree.at(sent, 0), tree.map(lambda a: a.sum(0), sent))
            return
        for i, c in enumerate(clients):
            one = tree.at(sent, i)
            yield Answer([c], [states[i]], one, self._received(one, c))

    def _received(self, sent: Tree, client: Client) -> Tree:
        """One client's answer as the server adds it."""
        return self.ask.receive(sent, client.name, tree.copied(self.bound))


def _join(a: Any, b: Any) -> Any:
    """The outcomes of two slices of the same client: answers are added, an error is kept."""
    if a is None or isinstance(b, Exception):
        return b
    return a if isinstance(a, Exception) else (b[0], tree.add(a[1], b[1]))


@cache
def _controller() -> ThreadpoolController:
    """The controller of BLAS threads, made once."""
    return ThreadpoolController()


def _one_blas_thread():
    """BLAS on one core: threads work on different clients, so results do not depend on the number of threads."""
    controller = _controller()
    several = any(library.num_threads != 1 for library in controller.lib_controllers)
    return controller.limit(limits=1, user_api="blas") if several else nullcontext()


def _few_cells(jobs: list[Job]) -> bool:
    """Whether all jobs together have few numbers."""
    return sum(job.target.x.size if hasattr(job.target.x, "size") else FEW_CELLS for job in jobs) < FEW_CELLS


# ---- jobs from clients ----


class _StatesDiffer(Exception):
    """States of different structure cannot be stacked: such clients are asked one by one."""


def _stack_states(clients: list[Client]) -> dict[str, Tree]:
    """The clients' states stacked leaf by leaf."""
    try:
        return tree.map(lambda *leaves: namespace(*leaves).stack(leaves), *[c.state for c in clients])
    except Exception as error:
        raise _StatesDiffer(str(error)) from error
