"""Packed numbers come back, whatever they are, and take about what their entropy says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpooled.layers.compression import coding


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 127), st.integers(0, 300), st.integers(0, 2**32 - 1))
def test_what_was_packed_comes_back(levels, size, seed):
    symbols = np.random.default_rng(seed).integers(-levels, levels + 1, size=size).astype(np.int8)
    assert (coding.unpack(coding.pack(symbols, levels), size, levels) == symbols).all()


@pytest.mark.parametrize("levels", [1, 2, 3, 7, 127])
@pytest.mark.parametrize("size", [100_001, 40_000])
def test_long_messages_come_back_near_their_entropy(levels, size):
    rng = np.random.default_rng(levels)
    symbols = np.clip(np.round(rng.normal(scale=levels / 2.5, size=size)), -levels, levels).astype(np.int8)
    packed = coding.pack(symbols, levels)
    assert (coding.unpack(packed, size, levels) == symbols).all()
    share = np.bincount(symbols.astype(int) + levels) / size
    entropy = -(share[share > 0] * np.log2(share[share > 0])).sum()
    assert 8 * len(packed) / size < 1.03 * entropy + 0.02


def test_short_messages_of_few_levels_cost_little_more():
    symbols = np.random.default_rng(0).choice([-1, 0, 1], p=[0.2, 0.6, 0.2], size=2310).astype(np.int8)
    assert 8 * len(coding.pack(symbols, 1)) / 2310 < 1.05 * 1.371


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.integers(1, 400), st.integers(1, 10**6), st.integers(0, 2**32 - 1))
def test_gaps_come_back(share, size, largest, seed):
    rng = np.random.default_rng(seed)
    symbols = np.where(rng.random(size) < share, rng.integers(-largest, largest + 1, size=size), 0)
    assert (coding.unpack_gaps(coding.pack_gaps(symbols), size) == symbols).all()


@pytest.mark.parametrize("share", [0.005, 0.02, 0.1, 0.3])
def test_gaps_cost_about_the_entropy_of_sparse_numbers_and_nothing_of_zeros(share):
    rng = np.random.default_rng(0)
    symbols = np.where(rng.random(20_000) < share, rng.choice([-1, 1], 20_000), 0)
    entropy = -share * np.log2(share) - (1 - share) * np.log2(1 - share) + share
    assert 8 * len(coding.pack_gaps(symbols)) / len(symbols) < 1.12 * entropy
    assert len(coding.pack_gaps(np.zeros(500))) == 0


@given(st.integers(0, 2**40))
def test_lengths_come_back(n):
    assert coding.read_length(b"x" + coding.length(n), 1) == (n, 1 + len(coding.length(n)))
