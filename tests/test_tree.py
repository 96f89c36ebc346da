"""Trees: mapped, flattened, packed and checked against their annotations."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled import store, tree
from unpooled.arrays import Array, Float, Int
from unpooled.tree import SchemaError


class Point(NamedTuple):
    n: Float[Array, "k", ">=0"]
    x: Float[Array, "k d"]
    c: Float[Array, "*c"]
    i: Int[Array, ""]


def point(k=2, d=3, c=(4, 5)):
    return Point(np.ones(k), np.zeros((k, d)), np.zeros(c), np.array(1))


leaf = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
    st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda s: np.arange(s[0] * s[1], dtype=float).reshape(s)),
    st.just(np.array(2.5)),
)
trees = st.recursive(
    leaf,
    lambda t: st.one_of(st.lists(t, max_size=3), st.dictionaries(st.text(max_size=2), t, max_size=3), st.tuples(t, t)),
    max_leaves=12,
)


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(a, dict):
        return sorted(a) == sorted(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


@given(trees)
def test_saved_and_read_back_it_is_the_same(t):
    assert same(store.loads(store.dumps(t)), t)


@given(trees)
def test_rebuilt_from_its_leaves_it_is_the_same(t):
    assert same(tree.rebuild(t, tree.leaves(t)), t)


def test_flatten_and_back():
    t = {"b": np.arange(6.0).reshape(2, 3), "a": (np.array(7.0), "text", None)}
    vector = tree.flatten(t)
    np.testing.assert_array_equal(vector, [7, 0, 1, 2, 3, 4, 5])
    assert same(tree.unflatten(vector, t), t)


def test_named_tuples_come_back_as_themselves():
    back = store.loads(store.dumps(point()))
    assert type(back) is Point


def test_a_foreign_type_is_refused():
    with pytest.raises(SchemaError, match="not a known message type"):
        tree.unpack('{"type": "os:system", "items": []}', [])


def test_dims_bind_named_axes():
    assert tree.dims(point(), Point) == {"k": 2, "d": 3, "*c": (4, 5)}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (point()._replace(n=np.ones(3)), r"x should have shape \(3, 3\)"),
        (point()._replace(n=np.array([-1.0, 0])), "n holds a negative number"),
        (point()._replace(x=np.full((2, 3), np.nan)), "x holds NaN"),
        (point()._replace(x=np.full((2, 3), np.inf)), "x holds an infinite"),
        (point()._replace(x=np.zeros((2, 3), complex)), "x should hold floats"),
        (point()._replace(i=np.array(1.5)), "i should hold integers"),
        (point()._replace(x=np.array([["a"] * 3] * 2)), "x should hold floats"),
        (point()[:3], "should have the fields n, x, c, i"),
        ([1, 2], "should be a tuple"),
    ],
)
def test_a_value_that_does_not_fit_is_one_sentence(bad, sentence):
    with pytest.raises(SchemaError, match=sentence):
        tree.check(bad, Point)


def test_axes_bound_before_are_kept():
    tree.check(point(2, 3), Point, {"k": 2, "d": 3})
    with pytest.raises(SchemaError, match=r"n should have shape \(5,\)"):
        tree.check(point(2, 3), Point, {"k": 5})


def test_describe_says_what_numbers_there_are():
    assert tree.describe(point()) == "n (2), x (2 x 3), c (4 x 5), i"
