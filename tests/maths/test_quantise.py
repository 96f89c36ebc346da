"""Every quantiser: the mean is right, the variance is within its bound, and both ends read the same."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unpooled.choices import describe, resolve
from unpooled.layers.compression.quantisers import (
    FAINT,
    QUANTISERS,
    Cast,
    Dither,
    Grid,
    Identity,
    Sparsify,
    TopK,
    memory_step,
)

UNBIASED = [
    Identity(),
    Dither(1),
    Dither(7, 16),
    Dither(1, 8, 2.0),  # block-p quantisation
    Dither(3, 20, 1.0),
    Grid(7),
    Sparsify(0.5),
    Sparsify(0.1),
    Cast("bfloat16"),
    Cast("float16"),
]
VECTORS = {
    "normal": np.random.default_rng(0).normal(size=50),
    "one large among small": np.r_[1.0, np.full(49, 0.15)],
    "sizes apart": np.geomspace(1e-5, 1, 50) * np.where(np.arange(50) % 2, 1, -1),
    "far from one": 1e-30 * np.random.default_rng(1).normal(size=50),
}


def draws(q, x, n):
    out = np.empty((n, len(x)))
    for i in range(n):
        out[i] = q.decode(q.encode(x, np.random.default_rng(i)), len(x), np.random.default_rng(i))
    return out


@pytest.mark.parametrize("q", UNBIASED, ids=str)
@pytest.mark.parametrize("name", VECTORS)
def test_the_mean_is_right_and_the_variance_within_its_bound(q, name):
    x = VECTORS[name]
    seen = draws(q, x, 300)
    ways = np.random.default_rng(9).normal(size=(50, 20))  # along many directions at once, rare roundings show too
    off = (seen - x) @ ways
    slack = 1e-6 * np.abs(x) @ np.abs(ways) + 1e-9 * np.abs(x).max()  # float32 on the way
    assert (np.abs(off.mean(axis=0)) <= 5 * off.std(axis=0) / np.sqrt(len(seen)) + slack).all()
    error = ((seen - x) ** 2).sum(axis=1).mean()
    assert error <= 1.1 * q.omega(len(x)) * (x @ x) + 1e-12 * (x @ x)


@pytest.mark.parametrize("levels", [1, 2, 7])
def test_the_bound_is_nearly_reached(levels):
    """So that it is no needless caution: the worst vector has one large coordinate among equal small ones."""
    b = 64
    root = np.sqrt(1 + (b - 1) / levels**2)
    x = np.r_[1.0, np.full(b - 1, 1 / levels / (1 + root))]
    seen = draws(Dither(levels, b), x, 600)
    assert_allclose(((seen - x) ** 2).sum(axis=1).mean() / (x @ x), (root - 1) / 2, rtol=0.1)
    assert (root - 1) / 2 <= Dither(levels, b).omega(b) <= 1.3 * (root - 1) / 2 + 0.1


@pytest.mark.parametrize("q", [Dither(1), Dither(3), Dither(7, 16), Dither(3, 20, 1.0)], ids=str)
def test_the_usual_variance_is_that_of_normal_numbers(q):
    x = np.random.default_rng(5).normal(size=40 * q.bucket)
    seen = draws(q, x, 60)
    assert_allclose(((seen - x) ** 2).sum(axis=1).mean() / (x @ x), q.usual_omega(), rtol=0.1)
    assert q.usual_omega() < q.omega(len(x))


@pytest.mark.parametrize("q", [*UNBIASED, Dither(2), Dither(3)], ids=str)
@pytest.mark.parametrize("name", VECTORS)
def test_a_memory_comes_nearer_whatever_it_follows(q, name):
    x = VECTORS[name]
    alpha = memory_step(q, len(x))
    away = ((x - alpha * draws(q, x, 200)) ** 2).sum(axis=1).mean()
    assert away < x @ x
    assert (1 - alpha) ** 2 + alpha**2 * q.omega(len(x)) < 1  # for any vector


def test_top_k_keeps_the_largest_and_contracts():
    x = np.random.default_rng(0).normal(size=1000)
    for share in (0.01, 0.2):
        q = TopK(share)
        seen = q.decode(q.encode(x, None), 1000, None)
        kept = np.flatnonzero(seen)
        assert len(kept) == round(share * 1000)
        assert np.abs(x[kept]).min() >= np.sort(np.abs(x))[-len(kept)]
        assert_allclose(seen[kept], x[kept], rtol=1e-6)
        assert ((seen - x) ** 2).sum() <= q.omega(1000) * (x @ x)


@pytest.mark.parametrize("q", [*UNBIASED, TopK(0.3)], ids=str)
def test_zeros_and_odd_sizes_come_back(q):
    for size in (1, 3, 31, 33):
        assert (q.decode(q.encode(np.zeros(size), np.random.default_rng(0)), size, np.random.default_rng(0)) == 0).all()
        x = np.random.default_rng(size).normal(size=size)
        assert q.decode(q.encode(x, np.random.default_rng(0)), size, np.random.default_rng(0)).shape == (size,)


def test_the_same_draws_give_the_same_bytes():
    x = np.random.default_rng(0).normal(size=999)
    for q in UNBIASED:
        assert (q.encode(x, np.random.default_rng(7)) == q.encode(x, np.random.default_rng(7))).all()


@pytest.mark.parametrize(("q", "bits"), [(Dither(1), 1.7), (Dither(7), 4.1), (Sparsify(0.25), 8.5), (Cast(), 16.1)])
def test_bits_a_number_really_sent(q, bits):
    x = np.random.default_rng(0).normal(size=5000)
    assert 8 * len(q.encode(x, np.random.default_rng(1))) / 5000 < bits


def test_a_message_of_another_length_is_refused():
    with pytest.raises(ValueError, match="stand for"):
        Identity().decode(np.zeros(16, np.uint8), 3, None)


@pytest.mark.parametrize("q", [*UNBIASED, TopK(0.3)], ids=str)
def test_it_travels_as_a_dict(q):
    assert resolve(describe(q, QUANTISERS), QUANTISERS, "quantiser") == q


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Dither(0), "levels=0 must be a whole number"),
        (Dither(200), "at most 127"),
        (Dither(1, 8, 0.5), "norm=0.5"),
        (Sparsify(0.0), "keep=0.0 must be above 0"),
        (TopK(1.5), "share=1.5"),
        (Cast("float8"), "dtype='float8'"),
        ("dithr", "did you mean 'dither'"),
    ],
)
def test_what_cannot_work_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        resolve(given, QUANTISERS, "quantiser")


def test_a_grid_has_steps_for_each_column_and_none_too_small():
    x = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 100.0, 0.0]
    steps = Grid(5).steps(Grid(5).lay(x))
    wanted = np.abs(x).max(axis=0) / 5
    assert ((steps[:2] >= wanted[:2] * 0.999) & (steps[:2] <= wanted[:2] * 2 ** (2 / 8))).all()
    assert_allclose(steps[2], FAINT * wanted[1], rtol=0.2)
    assert Grid(5).steps(Grid(5).lay(x[:, 0]))[0] < steps[0] / 6  # of a vector


def test_what_stays_on_a_grid_costs_nothing():
    rng = np.random.default_rng(0)
    x, draws, q = rng.normal(size=(30, 4)), rng.random((30, 4)), Grid(7)
    steps = q.steps(q.lay(x))
    first = q.moved(q.moves(x, steps, draws), x.shape, steps)
    assert (np.abs(first - x) <= steps).all()
    assert len(q.moves(x - first, steps, draws)) == 0
    assert 0 < len(q.moves(x + 0.1 * steps - first, steps, draws)) < 30
