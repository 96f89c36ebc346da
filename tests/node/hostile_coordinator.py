"""Requests that no honest coordinator would send, made from the requests of an honest run: shared by tests of the node."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from test_study import COLUMNS, NAMES, ROWS, MemoryTransport, coordinator, fit, make_sites

from unpooled import tree, wire
from unpooled.client import Client
from unpooled.node.ledger import Ledger
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site

VICTIM = "basel"


class Sent(NamedTuple):
    """One request to the victim as it was sent, the reply, and what the victim held before."""

    head: dict[str, Any]
    down: Any
    private: str
    letters: dict[str, bytes]
    reply: bytes
    vault: dict[str, bytes]
    ledger: bytes

    def message(self) -> bytes:
        """The bytes of the request that all nodes get."""
        return wire.pack(self.head, self.down)


class Recording(MemoryTransport):
    """A transport that notes what the victim is sent and answers."""

    def __init__(self, sites, ledger: Path):
        super().__init__(sites)
        self.noted: list[Sent] = []
        self.ledger = ledger

    def _post(self, request) -> str:
        site = self.sites[request.node]
        if site.name != VICTIM:
            return super()._post(request)
        before = dict(site.vault)
        ledger = self.ledger.read_bytes() if self.ledger.exists() else b""
        name = super()._post(request)
        parcel = wire.unpack(request.message)
        letters = wire.unpack_letters(request.letter)
        reply = self._replies[name][1].content
        self.noted.append(Sent(parcel.head, parcel.value(), request.private, letters, reply, before, ledger))
        return name


def recorded(folder: Path, approved) -> list[Sent]:
    """Every request of an honest run of a study to the victim."""
    transport = Recording(make_sites(folder, approved), folder / VICTIM / "ledger.jsonl")
    fed = coordinator(transport, approved)
    fit(approved, fed)
    assert not fed.journal.refusals
    return transport.noted


def victim(folder: Path, approved, sent: Sent) -> Site:
    """The victim as it was before a request."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "ledger.jsonl"
    path.write_bytes(sent.ledger)
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    identity = next(s for s in make_sites(folder / "keys", approved) if s.name == VICTIM).identity
    source = Source(Client(VICTIM, ROWS[VICTIM]), COLUMNS)
    return Site(VICTIM, source, dict(sent.vault), policy=lambda: policy, ledger=Ledger(path), identity=identity)


# ---- values that do not belong there ----

DEEP: Any = 0
for _ in range(300):
    DEEP = [DEEP]

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 2**31, 2**63, 2**64, 10**30, 10**400, 0.5, 1e308, float("nan"), float("inf"), -0.0,
    "", "x", "0", "../../x", "\x1b[2J", "é" * 40, "x" * 100_000, [], [[]], {}, {"a": 1}, [1, 2], ["x"], [None], DEEP,
    {"a": DEEP}, list(range(3000)), {str(i): i for i in range(2000)}, [NAMES[0]] * 3, NAMES,
]  # fmt: skip


def arrays(a: np.ndarray, rng: random.Random) -> np.ndarray:
    """An array like this one, but wrong."""
    a = np.asarray(a)
    bad = a.astype(float).copy()
    choice = rng.randrange(12)
    if choice < 4 and bad.size:
        bad.reshape(-1)[rng.randrange(bad.size)] = [np.nan, np.inf, 1e300, -1e300][choice]
        return bad
    if choice == 4:
        return bad * (1 + 1e-6) + 1e-6
    return [
        bad[None], bad.reshape(-1)[:-1], np.zeros((0,)), bad.astype(np.int64, casting="unsafe") if bad.size < 1 else a.astype("i8") * 0,
        np.zeros((3, 3, 3, 3)), np.zeros(500_000), a.astype(np.float32) * 2, a.astype(bool),
    ][choice - 5 if choice - 5 < 8 else 0]  # fmt: skip


def trees(value: Any, rng: random.Random) -> Any:
    """A value like this one, but wrong in one leaf or in its structure."""
    leaves = tree.leaves(value)
    choice = rng.randrange(8)
    if choice < 5 and leaves:
        i = rng.randrange(len(leaves))
        wrong = (
            arrays(leaves[i], rng) if not isinstance(leaves[i], int | float) else rng.choice([-1, 0, 2**62, 1e300, 0.5])
        )
        return tree.rebuild(value, [wrong if j == i else leaf for j, leaf in enumerate(leaves)])
    deep: Any = np.zeros(1)
    for _ in range(200):
        deep = (deep,)
    return [
        None,
        {},
        (),
        [value],
        (value, value),
        {"a": value},
        deep,
        "text",
        True,
        np.zeros(3),
        {"t": 1},
        [value] * 40,
    ][rng.randrange(12)]


def texts(value: Any, rng: random.Random) -> Any:
    """A value like this one with wrong strings in place of some of its strings."""
    if isinstance(value, str):
        words = [
            "",
            "x",
            "[]",
            "[[]]",
            '[["<f8", [1e300]]]',
            '[["<f8", [1000000000, 1000000000]]]',
            "{" * 50,
            value * 2,
            value[:-1],
            NAMES[0],
        ]
        return rng.choice([value, *words])
    if isinstance(value, dict):
        return {key: texts(part, rng) for key, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [texts(part, rng) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def nested(value: Any, rng: random.Random) -> Any:
    """JSON like this, with one entry replaced at any depth."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(sorted(value))
        return {**value, key: nested(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        i = rng.randrange(len(value))
        return [*value[:i], nested(value[i], rng), *value[i + 1 :]]
    return rng.choice(VALUES)


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Bytes with a few bits flipped, cut off, or with more at the end."""
    choice = rng.randrange(4)
    if choice == 0 or not content:
        return content[: rng.randrange(len(content) + 1)]
    if choice == 1:
        return content + bytes(rng.randrange(256) for _ in range(9))
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def totals(letter: bytes, rng: random.Random) -> bytes:
    """The totals that a coordinator says earlier rounds had, wrong in one way."""
    told = wire.unpack(letter).value() if letter else {}
    told = told if isinstance(told, dict) else {}
    choice = rng.randrange(8)
    if choice == 0:
        told = {str(rng.choice([0, 1, 2, 3, 7, 10**9, 10**30])): value for value in told.values()} or {"1": None}
    elif choice == 1:
        told = {key: trees(value, rng) for key, value in told.items()} or {"1": np.zeros(3)}
    elif choice == 2:
        told = {**told, **{str(i): np.zeros(1) for i in range(50)}}
    elif choice == 3:
        told = {}
    elif choice == 4:
        told = {**told, "x": 1, "²": np.zeros(1)}
    elif choice == 5:
        told = texts(told, rng)
    else:
        return wire.pack({}, trees(told, rng))
    return wire.pack({}, told)


Attack = Callable[[list[Sent], int, random.Random], tuple[bytes, str, bytes]]


def _packed(sent: Sent, **changes: Any) -> tuple[bytes, str, bytes]:
    """The three parts of a request with other parts."""
    sent = sent._replace(**changes)
    return sent.message(), sent.private, wire.pack_letters(sent.letters)


def _other(run: list[Sent], i: int, rng: random.Random) -> Sent:
    """Any request of the run, past or future; without totals of sums that are not there yet, as the victim has no part in them."""
    j = rng.randrange(len(run))
    if j <= i:
        return run[j]
    letters = {**run[j].letters, "study": run[i].letters.get("study", b"")}
    return run[j]._replace(letters=letters)


def wrong_head(run, i, rng):
    return _packed(run[i], head=nested(run[i].head, rng))


def missing_field(run, i, rng):
    head = dict(run[i].head)
    head.pop(rng.choice(sorted(head)))
    return _packed(run[i], head=head)


def wrong_private(run, i, rng):
    own = json.loads(run[i].private or "{}")
    return _packed(run[i], private=rng.choice([json.dumps(nested(own, rng)), "[1]", "{", "[" * 5000, "null", "NaN"]))


def overridden(run, i, rng):
    """What belongs to the message of all is said once more to this node alone."""
    own = json.loads(run[i].private or "{}")
    key = rng.choice(sorted(run[i].head))
    return _packed(run[i], private=json.dumps({**own, key: rng.choice(VALUES)}))


def wrong_down(run, i, rng):
    return _packed(run[i], down=trees(run[i].down, rng))


def wrong_words(run, i, rng):
    return _packed(run[i], down=texts(run[i].down, rng))


def another_down(run, i, rng):
    return _packed(run[i], down=rng.choice(run).down)


def wrong_letter(run, i, rng):
    letters = dict(run[i].letters)
    key = rng.choice([*sorted(letters), "study", "secure", "study file", "x"])
    letters[key] = flipped(letters.get(key, b""), rng)
    return _packed(run[i], letters=letters)


def no_letter(run, i, rng):
    return _packed(run[i], letters={})


def another_letter(run, i, rng):
    return _packed(run[i], letters=_other(run, i, rng).letters)


def wrong_totals(run, i, rng):
    return _packed(run[i], letters={**run[i].letters, "study": totals(run[i].letters.get("study", b""), rng)})


def replayed(run, i, rng):
    return _packed(_other(run, i, rng))


def renumbered(run, i, rng):
    other = _other(run, i, rng)
    same = {key: run[i].head[key] for key in ("round", "base", "floor") if key in run[i].head}
    return _packed(other, head={**other.head, **same})


def flipped_message(run, i, rng):
    message, private, letter = _packed(run[i])
    return flipped(message, rng), private, letter


def flipped_letters(run, i, rng):
    message, private, letter = _packed(run[i])
    return message, private, flipped(letter, rng)


ATTACKS: list[Attack] = [
    wrong_head, wrong_head, wrong_head, missing_field, wrong_private, overridden, wrong_down, wrong_down, wrong_words, another_down,
    wrong_letter, no_letter, another_letter, wrong_totals, wrong_totals, replayed, renumbered, flipped_message, flipped_letters,
]  # fmt: skip


def attempts(run: list[Sent], i: int, n: int, seed: int) -> Iterator[tuple[str, tuple[bytes, str, bytes]]]:
    """`n` hostile requests in place of request `i`, each with the name of its kind."""
    rng = random.Random(f"{seed} {i}")
    for _ in range(n):
        attack = rng.choice(ATTACKS)
        yield attack.__name__, attack(run, i, rng)
