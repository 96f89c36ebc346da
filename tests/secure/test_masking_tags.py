"""Tags: the true total passes, and whatever else is told does not."""

import numpy as np
import pytest

from unpooled.secure import ring, tags

KEY = tags.TagKey(b"k" * 32, b"d" * 32)
NAMES = ["a", "b", "c"]


def answers(size=40, seed=0):
    rng = np.random.default_rng(seed)
    return [ring.encode(rng.normal(size=size) * 10.0 ** rng.uniform(-20, 20, size), 3) for _ in NAMES]


def tagged_total(size=40):
    total = ring.RingSum(size + 2)
    for name, limbs in zip(NAMES, answers(size)):
        total.add(tags.append_tag(limbs, KEY, name))
    return total.total()


def added(total, column, value):
    """The total with an integer added to one column."""
    out = total.copy()
    out[:, column : column + 1] = ring.subtract(out[:, column : column + 1], ring.negate(ring.from_integer(value)))
    return out


def test_the_inner_product_is_exact():
    limbs = answers(300)[0]
    weights = KEY.weights(300)
    values = [v - 2**192 if v >> 191 else v for v in (ring.to_integer(limbs[:, j : j + 1]) for j in range(300))]
    factors = [int.from_bytes(weights[16 * j : 16 * j + 16], "little") for j in range(300)]
    assert tags._inner(weights, limbs) == sum(r * v for r, v in zip(factors, values))


def test_long_answers_are_taken_in_chunks(monkeypatch):
    limbs = answers(100)[0]
    whole = tags._inner(KEY.weights(100), limbs)
    monkeypatch.setattr(tags, "_CHUNK", 7)
    assert tags._inner(KEY.weights(100), limbs) == whole


@pytest.mark.parametrize("size", [0, 1, 40])
def test_the_true_total_passes(size):
    assert tags.is_true_total(tagged_total(size), KEY, NAMES)


def test_every_changed_bit_is_found():
    total = tagged_total(4)
    for limb in range(3):
        for column in range(4):
            for bit in range(64):
                altered = total.copy()
                altered[limb, column] ^= np.uint64(1) << np.uint64(bit)
                assert not tags.is_true_total(altered, KEY, NAMES)


@pytest.mark.parametrize("step", [2**61 - 1, (2**61 - 1) ** 2, 2**96, 2**191, -1])
def test_steps_that_a_small_field_would_not_see_are_found(step):
    assert not tags.is_true_total(added(tagged_total(), 3, step), KEY, NAMES)


@pytest.mark.parametrize("factor", [0, 2, 3])
def test_a_total_scaled_together_with_its_tag_is_found(factor):
    total = tagged_total()
    scaled = ring.RingSum(total.shape[1])
    for _ in range(factor):
        scaled.add(total)
    assert not tags.is_true_total(scaled.total(), KEY, NAMES)


def test_a_total_of_other_nodes_or_another_sum_is_found():
    total = tagged_total()
    assert not tags.is_true_total(total, KEY, NAMES[:2])
    assert not tags.is_true_total(total, KEY._replace(digest=b"e" * 32), NAMES)
    assert not tags.is_true_total(total, KEY._replace(key=b"l" * 32), NAMES)
