"""Jobs for clients in one process: one client at a time, small ones merged, or similar ones stacked. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import is_torch, namespace
from unpooled.client import Client

BLOCKS = 16  # approximate number of merged blocks or slices, to keep all threads busy
BLOCK_ROWS = (8_192, 65_536)  # rows of a block, at least and at most, so that scheduling costs little
WORTH_MERGING = 4  # clients of a block, at least: for fewer the copy costs more than it saves
STACK_CLIENTS = 256  # clients in one stack at most: bounds the answers in memory
STACK_CELLS = 4_000_000  # default of stack_cells
STACK_PADDING = 0.125  # default of stack_padding
SMALL_STACK = 200_000  # numbers in a stack of small clients


class Job(NamedTuple):
    """A unit of work for one thread: the clients it covers, and the client object that the question is applied to."""

    clients: list[Client]
    target: Client  # a client, many merged or stacked, or a slice of one
    last: bool = True  # False: more slices of the same clients follow


def single_jobs(clients: Iterable[Client]) -> Iterator[Job]:
    """One job per client."""
    return (Job([c], c) for c in clients)


def merged_jobs(clients: Sequence[Client]) -> Iterator[Job]:
    """Small neighbouring clients concatenated, large ones cut into slices of rows; the cuts depend on the clients only."""
    rows = int(np.clip(sum(len(c.w) for c in clients) // BLOCKS, *BLOCK_ROWS))
    for large, run in groupby(clients, key=lambda c: len(c.w) > rows // WORTH_MERGING):
        if large:
            for c in run:
                yield from _slices(c, rows)
        else:
            yield from _blocks(list(run), rows)


def _slices(c: Client, rows: int) -> Iterator[Job]:
    """One client's rows in slices, for questions whose answers add over rows."""
    n = len(c.w)
    if n <= rows:
        yield Job([c], c)
        return
    for start in range(0, n, rows):
        some = slice(start, start + rows)
        part = Client(c.name, c.x[some], None if c.y is None else c.y[some], c.w[some])
        yield Job([c], part, last=start + rows >= n)


def _blocks(clients: list[Client], rows: int) -> Iterator[Job]:
    """Neighbouring clients merged into blocks of about `rows` rows."""
    ends = np.cumsum([len(c.w) for c in clients])
    blocks: dict[int, list[Client]] = {}
    for client, end in zip(clients, ends):
        blocks.setdefault((end - 1) // rows, []).append(client)
    for group in blocks.values():
        yield Job(group, group[0] if len(group) == 1 else _merge(group))


def _merge(group: list[Client]) -> Client:
    """Several clients as one with all their rows."""
    join = namespace(group[0].x).concatenate
    x = join([c.x for c in group])
    y = None if group[0].y is None else join([c.y for c in group])
    w = join([c.w for c in group])
    return Client(f"{group[0].name}+...", x, y, w)


def stacked_jobs(clients: Sequence[Client], cells: int, padding: float) -> Iterator[Job]:
    """Clients of similar size padded to one width; padding has weight 0."""
    by_size: dict[int, list[Client]] = {}
    for c in clients:
        by_size.setdefault(_bucket(len(c.w), padding), []).append(c)
    for width, members in sorted(by_size.items()):
        per_client = width * members[0].x.shape[-1]
        step = int(np.clip(cells // max(per_client, 1), 1, STACK_CLIENTS))
        for i in range(0, len(members), step):
            group = members[i : i + step]
            yield Job(group, _stack(group))


def small_jobs(clients: Sequence[Client]) -> Iterator[Job]:
    """Small clients padded to the width of the largest beside them, larger ones alone."""
    group: list[Client] = []
    for c in sorted(clients, key=lambda c: len(c.w)):
        cells = len(c.w) * c.x.shape[-1]
        if group and (len(group) + 1) * cells > SMALL_STACK:
            yield Job(group, _stack(group) if len(group) > 1 else group[0])
            group = []
        group.append(c)
    if group:
        yield Job(group, _stack(group) if len(group) > 1 else group[0])


def _bucket(n: int, padding: float) -> int:
    """The padded width for n rows; neighbouring widths differ by about the share `padding`."""
    if n <= 16:
        return 16
    step = max(int(2 ** (int(n - 1).bit_length() - 1) * padding), 1)
    return -(-n // step) * step


def _stack(group: list[Client]) -> Client:
    """Several clients as one array with a leading axis, short ones padded with rows of weight 0."""
    width = max(len(c.w) for c in group)

    def stack(arrays: list[Any]) -> Any:
        return namespace(arrays[0]).stack([_pad(a, width) for a in arrays])

    y = None if group[0].y is None else stack([c.y for c in group])
    x = stack([c.x for c in group])
    w = stack([c.w for c in group])
    members = tuple(c.name for c in group)
    return Client("stack", x, y, w, stacked=True, members=members)


def _pad(a: Any, width: int) -> Any:
    """The array with zeros appended up to `width` rows."""
    short = width - a.shape[0]
    if short == 0:
        return a
    xp = namespace(a)
    device = {"device": a.device} if is_torch(a) else {}
    filler = xp.zeros((short, *a.shape[1:]), dtype=a.dtype, **device)
    return xp.concatenate([a, filler])
