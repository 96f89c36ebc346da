"""What is sent arrives with the same bits; what is broken is refused in one sentence."""

import json
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unpooled import tree, wire
from unpooled.tree import SchemaError


class Pair(NamedTuple):
    a: np.ndarray
    b: dict


DTYPES = [np.float64, np.float32, np.int64, np.int8, np.uint16, np.bool_]


@given(
    st.lists(
        st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0))), max_size=4
    )
)
def test_arrays_arrive_with_the_same_bits(arrays):
    sent = Pair(tuple(arrays), {"k": [None, "text", True, 3, 0.1]})
    got = wire.unpack(wire.pack({"kind": "x"}, sent)).value()
    assert isinstance(got, Pair)
    assert got.b == sent.b
    for x, y in zip(got.a, arrays, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.tobytes() == y.tobytes()
        assert x.flags.writeable


def test_big_endian_arrays_keep_their_values():
    a = np.arange(3, dtype=">f8")
    np.testing.assert_array_equal(wire.unpack(wire.pack({}, a)).value(), a)


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    got = wire.unpack(wire.pack({}, {"t": torch.arange(3.0), "a": np.ones(2)})).value()
    assert isinstance(got["t"], torch.Tensor)
    assert isinstance(got["a"], np.ndarray)


def test_it_costs_the_arrays_and_some_hundred_bytes():
    stats = {"xx": np.zeros((10, 1000))}
    assert len(wire.pack({"run": "0" * 32, "round": 1}, stats)) < tree.size(stats) + 400


def change(message: bytes, **fields) -> bytes:
    """The message with other entries in its JSON."""
    length = int.from_bytes(message[4:8], "big")
    body = json.loads(message[8 : 8 + length]) | fields
    text = json.dumps(body).encode()
    return message[:4] + len(text).to_bytes(4, "big") + text + message[8 + length :]


GOOD = wire.pack({"kind": "hello"}, np.arange(4.0))

BROKEN = {
    "empty": b"",
    "foreign": b"\x80\x04\x95pickle",
    "cut head": GOOD[:20],
    "cut arrays": GOOD[:-3],
    "too many bytes": GOOD + b"0",
    "head longer than the message": GOOD[:4] + b"\xff\xff\xff\xff" + GOOD[8:],
    "not JSON": GOOD[:4] + (3).to_bytes(4, "big") + b"{{{",
    "JSON of another kind": GOOD[:4] + (2).to_bytes(4, "big") + b"[]",
    "deep JSON": GOOD[:4] + (200_000).to_bytes(4, "big") + b"[" * 200_000,
    "other version": change(GOOD, unpooled="99.0"),
    "no version": change(GOOD, unpooled=None),
    "no head": change(GOOD, head=None),
    "no structure": change(GOOD, structure=3),
    "object array": change(GOOD, arrays=[["|O", [4], False]]),
    "complex array": change(GOOD, arrays=[["<c16", [2], False]]),
    "structured dtype": change(GOOD, arrays=[["f8,f8", [2], False]]),
    "negative shape": change(GOOD, arrays=[["<f8", [-4], False]]),
    "huge shape": change(GOOD, arrays=[["<f8", [2**62, 4], False]]),
    "shape of floats": change(GOOD, arrays=[["<f8", [4.0], False]]),
    "too many axes": change(GOOD, arrays=[["<f8", [1] * 40 + [4], False]]),
    "arrays that are no list": change(GOOD, arrays=7),
    "spec too short": change(GOOD, arrays=[["<f8"]]),
}

BROKEN_VALUES = {
    "index out of range": json.dumps({"array": 5}),
    "negative index": json.dumps({"array": -1}),
    "unknown kind": json.dumps({"pickle": "x"}),
    "not an object": json.dumps([1, 2]),
    "unknown type": json.dumps({"type": "os:system", "items": []}),
    "a function for a type": json.dumps({"type": "unpooled.wire:pack", "items": []}),
    "a module never imported": json.dumps({"type": "unpooled.cli:main", "items": []}),
    "a type without items": json.dumps({"type": "test_wire:Pair"}),
    "wrong number of fields": json.dumps({"type": "test_wire:Pair", "items": [{"value": 1}]}),
    "path tricks": json.dumps({"type": "../../etc:passwd", "items": []}),
    "not JSON": "{",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("message", BROKEN.values(), ids=BROKEN)
def test_a_broken_message_is_refused(message):
    with pytest.raises(SchemaError):
        wire.unpack(message)


@pytest.mark.parametrize("structure", BROKEN_VALUES.values(), ids=BROKEN_VALUES)
def test_a_broken_value_is_refused(structure):
    with pytest.raises(SchemaError):
        wire.unpack(change(GOOD, structure=structure)).value()


def test_a_message_over_the_limit_is_refused_before_it_is_read():
    with pytest.raises(SchemaError, match="more than the limit of 10"):
        wire.unpack(GOOD, limit=10)


@given(st.binary(max_size=200), st.integers(0, len(GOOD) - 1))
def test_random_damage_never_does_anything_but_refuse(noise, where):
    damaged = GOOD[:where] + noise + GOOD[where + len(noise) :]
    with suppress(SchemaError):
        wire.unpack(damaged).value()
