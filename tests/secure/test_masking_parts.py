"""Shares, the graph, keys and masks, each against what it should be by itself."""

from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy.stats import hypergeom

from unpooled.errors import MaskingRefused
from unpooled.secure import graph, keys, masks, shamir


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, bytes(range(32))])
def test_any_t_shares_give_the_secret(secret):
    shares = dict(zip(range(1, 7), shamir.split(secret, 4, range(1, 7), b"seed")))
    assert {shamir.combine({x: shares[x] for x in some}) for some in combinations(shares, 4)} == {secret}


def test_fewer_shares_fit_every_secret():
    first, second, _ = shamir.split(b"\x07" * 32, 3, (1, 2, 3), b"seed")
    for other in (bytes(32), b"\x08" * 32, b"\xff" * 32):  # each is what the two known shares and some third one give
        third = int.from_bytes(other, "big") - 3 * first + 3 * second  # Lagrange's weights at 1, 2, 3 are 3, -3, 1
        assert shamir.combine({1: first, 2: second, 3: third % shamir.PRIME}) == other


def test_the_prime_is_one():
    assert all(pow(a, shamir.PRIME - 1, shamir.PRIME) == 1 for a in (2, 3, 5, 7, 11, 13))
    assert shamir.PRIME > 2**256


def test_small_groups_are_complete():
    names = [f"n{i}" for i in range(64)]
    near = graph.neighbours(reversed(names), b"salt")
    assert all(near[a] == sorted(set(names) - {a}) for a in names)


def test_large_groups_are_regular_symmetric_and_shuffled():
    names = [f"n{i}" for i in range(200)]
    near = graph.neighbours(names, b"salt")
    assert near == graph.neighbours(reversed(names), b"salt") != graph.neighbours(names, b"other")
    assert {len(peers) for peers in near.values()} == {graph.degree(200)}
    assert all(a in near[b] and a != b for a in names for b in near[a])


@pytest.mark.parametrize("n", [65, 100, 300, 1000])
def test_the_degree_is_the_smallest_safe_one(n):
    def risks(k):
        h, corrupt, lost = k + 1, int(graph.CORRUPT * n), int(graph.LOST * n)
        t = graph.threshold(h)
        return n * hypergeom.sf(2 * t - h - 1, n - 1, corrupt, k), n * hypergeom.sf(h - t, n - 1, lost, k)

    def is_safe(k):
        return risks(k)[0] <= graph.INSECURITY and risks(k)[1] <= graph.FAILURE

    k = graph.degree(n)
    assert k % 2 == 0
    assert is_safe(k)
    assert not is_safe(k - 2)


def test_two_thirds_and_one():
    for h in range(3, 200):
        t = graph.threshold(h)
        assert 3 * t > 2 * h
        assert t <= h
        assert (
            2 * t > h + (h - 1) // 3
        )  # a lying coordinator with fewer than a third of the holders has not both secrets


def test_derived_keys_are_hkdf():
    info = keys.canonical("purpose", 7, b"x")
    theirs = HKDF(hashes.SHA256(), 32, b"unpooled masked sum 1", info).derive(b"k" * 32)
    assert keys.derive(b"k" * 32, "purpose", 7, b"x") == theirs


def test_contexts_cannot_be_mistaken_for_each_other():
    contexts = [("ab", "c"), ("a", "bc"), (["ab"], "c"), (["ab", "c"],), (b"ab", "c"), ("1",), (1,), (), ([],), ("",)]
    assert len({keys.canonical(*c) for c in contexts}) == len(contexts)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), (2**255 - 19).to_bytes(32, "little")])
def test_keys_of_low_order_are_refused(point):
    with pytest.raises(MaskingRefused, match="not a usable X25519 key"):
        keys.agree(keys.exchange_key(b"k" * 32), point, "bonn")


def test_masks_are_uniform_and_follow_from_the_seed():
    limbs = masks.mask(b"s" * 32, 20000)
    assert np.array_equal(limbs, masks.mask(b"s" * 32, 20000))
    assert not np.array_equal(limbs, masks.mask(b"t" * 32, 20000))
    ones = np.unpackbits(limbs.copy().view(np.uint8).ravel()).mean()
    assert abs(ones - 0.5) < 0.002  # 3.84 million bits: five standard errors are 0.0013
