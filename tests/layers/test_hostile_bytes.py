"""Bytes that no client of ours would send: one sentence that names the client, no memory taken, and the others go on."""

import re
import tracemalloc
import zlib
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled import tree
from unpooled.arrays import Array, Float, Int
from unpooled.client import STEP, SUM, Client, client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.federation import Layer
from unpooled.layers.compression import coding
from unpooled.layers.compression import message as parts
from unpooled.layers.compression.layer import Compressed
from unpooled.layers.compression.quantisers import Cast, Dither, Grid, Identity, Sparsify, TopK
from unpooled.tree import SchemaError

QUANTISERS = [Dither(1), Dither(7), Dither(5, 16, 2.0), Grid(5), TopK(0.3), TopK(0.02), Sparsify(0.4), Cast("bfloat16"),
              Cast("float16"), Identity()]  # fmt: skip


class Answer(NamedTuple):
    rows: Int[Array, ""]
    x: Float[Array, "d"]
    xx: Float[Array, "d d"]


def answer(step):
    rng = np.random.default_rng(step)
    one = Answer(np.int64(7 + step), rng.normal(size=3), np.abs(rng.normal(size=(9, 8))) + step)
    return {"first": one, "other": (rng.normal(size=40), np.arange(4))} if step % 2 else {"first": one}


def how(quantiser, alpha):
    rng = np.random.default_rng(0)
    return parts.How(quantiser, alpha, rng, lambda name, shape: np.full(shape, 0.4))


def messages(quantiser, alpha):
    """(bytes, what both ends hold) of four answers in a row: all afresh without a memory."""
    held, found = None, []
    for step in range(4):
        sent = parts.write(answer(step), held, how(quantiser, alpha))
        found.append((sent, held))
        _, memory = parts.read(sent, held, how(quantiser, alpha))
        held = memory if alpha is not None else None
    return found


WAYS = [(q, alpha) for q in QUANTISERS for alpha in (0.5, None) if not (isinstance(q, TopK) and alpha is None)]


@pytest.mark.parametrize(("quantiser", "alpha"), WAYS, ids=str)
def test_bytes_cut_off_anywhere_are_refused_and_so_is_one_too_many(quantiser, alpha):
    for sent, held in messages(quantiser, alpha):
        for wrong in [sent[:n] for n in range(len(sent))] + [sent + b"\0"]:
            with pytest.raises(SchemaError):
                parts.read(wrong, held, how(quantiser, alpha))


@pytest.mark.parametrize(("quantiser", "alpha"), WAYS, ids=str)
def test_any_byte_may_be_wrong(quantiser, alpha):
    """What cannot be told from an honest answer is an answer, finite and of honest size; all else is refused."""
    rng = np.random.default_rng(1)
    refused = 0
    for sent, held in messages(quantiser, alpha):
        for at in range(len(sent)):
            wrong = bytearray(sent)
            wrong[at] ^= int(rng.choice([1, 16, 64, 128, 255]))
            refused += not taken(bytes(wrong), held, quantiser, alpha)
    assert refused > 50


@pytest.mark.parametrize(("quantiser", "alpha"), WAYS, ids=str)
def test_any_bytes_at_all(quantiser, alpha):
    rng = np.random.default_rng(2)
    sent, held = messages(quantiser, alpha)[2]
    for n in rng.integers(0, 200, size=150):
        noise = rng.integers(0, 256, size=n, dtype=np.uint8).tobytes()
        taken(noise, held, quantiser, alpha)
        taken(bytes([parts.AFRESH]) + noise, held, quantiser, alpha)
        taken(sent[: 5 + n % 9] + noise, held, quantiser, alpha)


RAW = re.compile("codec|literal|index|buffer|reshape|broadcast|dtype|Errno|argument")


def taken(content, held, quantiser, alpha):
    """Whether the bytes are an answer; any other error than ours comes through, and so does a sentence that is not ours."""
    try:
        meant, _ = parts.read(content, held, how(quantiser, alpha), limit=2**20)
    except SchemaError as error:
        reason = str(error)
    else:
        assert all(np.isfinite(leaf).all() for leaf in tree.leaves(meant))
        assert tree.size(meant) <= 2**20
        return True
    assert not RAW.search(reason), reason
    return False


# ---- what only malice writes ----


def told(make, *bodies, name="", count=0):
    """An answer afresh that claims a structure and shapes."""
    return bytes([parts.AFRESH]) + coding.length(count) + entry(make, bodies, name, [])


def again(make, *bodies, name=""):
    """The same entry once more."""
    return entry(make, bodies, name, [f"{name}\n{make}"])


def entry(make, bodies, name, before):
    packed = parts._deflated(f"{name}\n{make}", before)
    body = b"".join(coding.length(len(b)) + b for b in bodies)
    return coding.length(0) + coding.length(len(packed)) + packed + body


PAIR = '{"array": 0}\n<f8:2'
MANY = '{"list": [' + ", ".join(['{"array": 0}'] * 1000) + "]}"
BOMB = zlib.compress(bytes(2**28))[2:-4]
MALICE = {
    "a large array of zeros": (told('{"array": 0}\n<f8:100000,100000', bytes([parts.NUMBERS])), "max_bytes="),
    "beyond any memory": (told('{"array": 0}\n<f8:1000000000,1000000000,1000000', b"\0"), "is claimed"),
    "one array a thousand times": (told(f"{MANY}\n<f8:1000,1000", *[b"\0"] * 1000), "max_bytes="),
    "an endless axis": (told('{"array": 0}\n<f8:0,' + "9" * 18, b""), "invalid array shape"),
    "a negative axis": (told('{"array": 0}\n<f8:-5', b""), "is claimed"),
    "no number": (told('{"array": 0}\n<f8:five', b""), "is claimed"),
    "objects": (told('{"array": 0}\n|O:4', b""), "instead of numbers"),
    "words": (told('{"array": 0}\n<U9:4', b""), "instead of numbers"),
    "a number for an array": (told('{"value": 3}'), "a number stands"),
    "an array that is not there": (told('{"array": 3}'), "broken"),
    "another module": (told('{"type": "unpooled.models.nothing:It", "items": []}'), "not a known"),
    "a class that is no message": (told('{"type": "subprocess:Popen", "items": []}'), "not a known"),
    "no structure": (told("nothing"), "broken"),
    "very deep": (told('{"list": [' * 5000 + "]}" * 5000), "broken"),
    "a name for what has none": (told('{"array": 0}\n<f8:2', bytes(16), name="me"), "no place"),
    "a name twice": (told(PAIR, bytes(16), name="me", count=3) + again(PAIR, bytes(16), name="me"), "no place"),
    "more entries than bytes": (told('{"array": 0}\n<f8:2', bytes(16), name="me", count=2**50), "cut off"),
    "an endless length": (bytes([parts.AFRESH]) + b"\xff" * 10_000, "no length"),
    "an unknown entry": (bytes([parts.AFRESH, 0, 9]), "entry 9 of 0"),
    "a text that swells": (bytes([parts.AFRESH, 0, 0]) + coding.length(len(BOMB)) + BOMB, "inflate"),
    "a change of nothing": (bytes([parts.CHANGE, 0, 0, 0, 0, 0]), "has not seen"),
    "another beginning": (bytes([9]), "begins with 9"),
    "nothing": (b"", "cut off"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MALICE)
def test_malice_is_refused_before_memory_is_taken(kind):
    content, reason = MALICE[kind]
    tracemalloc.start()
    with pytest.raises(SchemaError, match=reason):
        parts.read(content, None, how(Dither(7), 0.5), limit=2**28)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 2**20


@pytest.mark.parametrize("quantiser", [Dither(7), Dither(127)], ids=str)
def test_numbers_that_swell_are_refused_before_memory_is_taken(quantiser):
    sent = np.concatenate(
        [np.array([0, 0, 80], np.uint8), np.array([coding.HUFFMAN], np.uint8), np.frombuffer(BOMB, np.uint8)]
    )
    tracemalloc.start()
    with pytest.raises(ValueError, match="inflate"):
        quantiser.decode(sent, 32, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


# ---- in a federation ----


@client("hostile_bytes.scatter", SUM, adds=True)
def scatter(about: Float[Array, "d"], client: Client) -> Float[Array, "d d"]:
    z = client.x - about
    return np.einsum("...ni,...nj->...ij", z, z)


@client("hostile_bytes.garble", STEP, batched=False)
def garble(up: Int[Array, "b"], client: Client, *, plan: dict) -> Int[Array, "b"]:
    kind = plan.get(client.name, {}).get(str(client.moment[1]))
    if kind == "another thing":
        return {"not": np.zeros(3), "bytes": None}
    return (
        up if kind is None else {"cut": up[: len(up) // 2], "noise": up[::-1], "floats": up / 3, "none": up[:0]}[kind]
    )


class Garbled(Layer):
    """What some clients send is garbled in some rounds: {name: {round: kind}}."""

    def __init__(self, inner, plan):
        super().__init__(inner)
        self.plan = plan

    def wrap(self, ask):
        return ask.then(garble, plan=self.plan)


DATA = {f"c{i}": np.random.default_rng(i).normal(size=(40, 20)) + i for i in range(4)}
KINDS = ["cut", "noise", "floats", "none", "another thing"]


@pytest.mark.parametrize("options", [{"levels": 7}, {"quantiser": "grid"}, {"levels": 7, "memory": False}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_others_go_on_and_the_client_is_taken_again_once_it_is_honest(kind, options):
    fed = Compressed(Garbled(up.federate(DATA), {"c1": {"1": kind, "3": kind}}), **options)
    fed.journal.begin(3)
    few, all_ = (up.federate(DATA).only(n).sum(scatter, np.zeros(20)) for n in (["c0", "c2", "c3"], list(DATA)))
    scale = np.abs(all_).max()
    for wanted in (few, all_, few, all_):
        assert np.abs(fed.sum(scatter, np.zeros(20)) - wanted).max() < 0.4 * scale
    assert [(r.client, r.round) for r in fed.journal.refusals] == [("c1", 1), ("c1", 3)]
    for refusal in fed.journal.refusals:
        assert refusal.reason.startswith("the answer of 'c1' cannot be read (")
        assert "asked afresh" in refusal.reason


def test_the_client_is_exact_again_after_a_garbled_answer():
    fed = Compressed(Garbled(up.federate(DATA), {"c1": {"5": "noise"}}), levels=7)
    for _ in range(40):
        found = fed.sum(scatter, np.zeros(20))
    assert_allclose(found, up.federate(DATA).sum(scatter, np.zeros(20)), rtol=1e-6)
    assert [r.round for r in fed.journal.refusals] == [5]


def test_an_answer_larger_than_was_allowed_is_refused_with_the_remedy():
    fed = Compressed(up.federate(DATA), max_bytes=3000)
    with pytest.raises(TooFewClients, match="max_bytes= of Compressed"):
        fed.sum(scatter, np.zeros(20))
    assert Compressed(up.federate(DATA), max_bytes=3200).sum(scatter, np.zeros(20)).shape == (20, 20)
    with pytest.raises(BadParameter, match="max_bytes=0"):
        Compressed(up.federate(DATA), max_bytes=0)
