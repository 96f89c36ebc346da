"""Numbers modulo 2^192: exact against fractions, the same bits in any order, and clear refusals at the edges."""

from fractions import Fraction

import numpy as np
import pytest

from unpooled.errors import BadData, MaskingRefused
from unpooled.secure import ring

MODULUS = 2**192


def integers(limbs):
    """Each column as a Python integer, without a sign."""
    return [sum(int(limbs[i, j]) << (64 * i) for i in range(3)) for j in range(limbs.shape[1])]


def signed(limbs):
    return [v - MODULUS if v >= MODULUS // 2 else v for v in integers(limbs)]


def numbers(rng, shape, low=-12.0, high=26.0):
    """Both signs, sizes from 1e-12 to 1e26."""
    return rng.normal(size=shape) * 10.0 ** rng.uniform(low, high, shape)


def random_limbs(rng, size):
    return rng.integers(0, 2**64, (3, size), dtype=np.uint64)


def test_a_number_is_its_nearest_multiple_of_the_step():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [numbers(rng, 500), numbers(rng, 500, -40, -10), [0.0, -0.0, 1.0, -1.0, 5e-324, 2.0**-97, 3 * 2.0**-97]]
    )
    assert signed(ring.encode(x, 3)) == [round(Fraction(v) * 2**96) for v in x.tolist()]


@pytest.mark.parametrize("n", [3, 10, 60])
def test_totals_are_exact_to_the_last_digit_in_any_order(n):
    rng = np.random.default_rng(n)
    x = numbers(rng, (n, 300))
    encoded = [ring.encode(row, n) for row in x]
    totals = []
    for order in (range(n), rng.permutation(n)):
        total = ring.RingSum(300)
        for i in order:
            total.add(encoded[i])
        totals.append(total.total())
    assert np.array_equal(*totals)
    exact = [sum(Fraction(v) for v in column) for column in x.T.tolist()]
    size = np.abs(x).sum(axis=0)
    errors = [
        abs(Fraction(v) - e) / Fraction(s) for v, e, s in zip(ring.decode(totals[0]).tolist(), exact, size.tolist())
    ]
    assert max(errors) <= 4e-16


def test_numbers_below_the_step_cost_half_a_step_each():
    x = np.random.default_rng(1).normal(size=(5, 200)) * 1e-28
    total = ring.RingSum(200)
    for row in x:
        total.add(ring.encode(row, 5))
    assert np.abs(ring.decode(total.total()) - x.sum(axis=0)).max() <= 5 * 2.0**-97


def test_differences_are_those_of_integers():
    rng = np.random.default_rng(2)
    edges = np.array([[0, 0, 0], [2**64 - 1] * 3, [1, 0, 0], [0, 0, 2**63], [2**64 - 1, 0, 0]], dtype=np.uint64).T
    a = np.concatenate([random_limbs(rng, 200), np.repeat(edges, 5, axis=1)], axis=1)
    b = np.concatenate([random_limbs(rng, 200), np.tile(edges, 5)], axis=1)
    assert integers(ring.subtract(a, b)) == [(x - y) % MODULUS for x, y in zip(integers(a), integers(b))]
    assert integers(ring.negate(a)) == [-x % MODULUS for x in integers(a)]


def test_a_running_sum_is_that_of_integers():
    rng = np.random.default_rng(3)
    terms = [random_limbs(rng, 50) for _ in range(40)]
    total = ring.RingSum(50)
    for i, term in enumerate(terms):
        (total.add if i % 3 else total.subtract)(term)
    expected = [sum(v if i % 3 else -v for i, v in enumerate(column)) for column in zip(*map(integers, terms))]
    assert integers(total.total()) == [v % MODULUS for v in expected]


@pytest.mark.parametrize(("n", "bits"), [(3, 92), (4, 92), (5, 91), (60, 88), (64, 88), (65, 87)])
def test_the_limit_per_client(n, bits):
    largest = np.nextafter(2.0**bits, 0)
    with pytest.raises(BadData, match="too large for a masked sum"):
        ring.encode(np.array([1.0, -(2.0**bits)]), n)
    total = ring.RingSum(1)
    for _ in range(n):
        total.add(ring.encode(np.array([-largest]), n))
    assert ring.decode(total.total())[0] == pytest.approx(-n * largest, rel=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_refused(bad):
    with pytest.raises(BadData, match="NaN or an infinite number"):
        ring.encode(np.array([0.0, bad]), 3)


def test_integers_are_kept_whole():
    x = np.array([[2**61 + 1, -(2**61) - 3, -1, 0, 7]] * 3)
    total = ring.RingSum(5)
    for row in x:
        total.add(ring.encode_integers(row))
    assert ring.decode_integers(total.total(), x.dtype).tolist() == [3 * v for v in x[0].tolist()]
    edges = np.array([2**63 - 1, -(2**63)])
    assert np.array_equal(ring.decode_integers(ring.encode_integers(edges), edges.dtype), edges)
    unsigned = np.array([2**64 - 1, 0], np.uint64)
    assert np.array_equal(ring.decode_integers(ring.encode_integers(unsigned), unsigned.dtype), unsigned)


def test_totals_of_integers_that_are_none_are_refused():
    most = ring.encode_integers(np.array([2**63 - 1]))
    with pytest.raises(MaskingRefused, match="overflowed or was altered"):
        ring.decode_integers(ring.subtract(most, ring.negate(most)), np.dtype(np.int64))
    with pytest.raises(MaskingRefused, match="overflowed or was altered"):
        ring.decode_integers(ring.encode(np.array([0.5]), 3), np.dtype(np.int64))
    with pytest.raises(MaskingRefused, match="does not fit into int8"):
        ring.decode_integers(ring.encode_integers(np.array([200])), np.dtype(np.int8))


def test_single_integers_go_there_and_back():
    for value in (0, 1, 2**64, MODULUS - 1):
        assert ring.to_integer(ring.from_integer(value)) == value
