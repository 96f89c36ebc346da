"""Noise on an answer: the same for the same request and rows, fresh for others, on a grid, and of the right size."""

from typing import NamedTuple

import numpy as np
import pytest

from unpooled.privacy.exact import factors, terms
from unpooled.privacy.noise import add_noise, digest, release, request_digest, seed_of, sigma_of
from unpooled.privacy.sampler import WIDTH

SECRET = b"k" * 32


class Answer(NamedTuple):
    n: np.ndarray
    x: np.ndarray


ANSWER = Answer(np.asarray(100.0), np.arange(6.0).reshape(2, 3))


def seed(answer=ANSWER, secret=SECRET, **changed):
    request = {"question": "q", "options": {"shape": "full"}, "down": ANSWER, "mu2": 0.1} | changed
    return seed_of(secret, request_digest(**request), digest(answer.x))


def test_the_same_request_about_the_same_rows_has_the_same_noise():
    noisy = [add_noise(ANSWER, 2.0, seed()) for _ in range(2)]
    np.testing.assert_array_equal(noisy[0].x, noisy[1].x)
    assert noisy[0].x.shape == (2, 3)
    assert noisy[0].n.shape == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"question": "p"},
        {"options": {"shape": "diag"}},
        {"mu2": np.nextafter(0.1, 1)},
        {"down": ANSWER._replace(n=np.asarray(101.0))},
        {"answer": ANSWER._replace(x=ANSWER.x + 1e-12)},
        {"secret": b"j" * 32},
    ],
)
def test_anything_else_has_fresh_noise(changed):
    assert seed(**changed) != seed()


def test_numbers_lie_on_the_grid_and_noise_has_its_size():
    zero = np.zeros(200_000)
    noisy = add_noise(zero, 3.0, seed())
    steps = noisy / (3.0 / WIDTH)
    np.testing.assert_allclose(steps, np.rint(steps), rtol=1e-15)
    assert noisy.std() == pytest.approx(3.0, rel=0.01)
    assert sigma_of(0.25) == pytest.approx(2.0, rel=2e-6)
    assert sigma_of(0.25) > 2.0


def test_noise_does_not_depend_on_the_answer_it_is_added_to():
    exact = np.array([0.0, 1e6, -3.3])
    difference = add_noise(exact, 1.0, seed()) - add_noise(np.zeros(3), 1.0, seed())
    np.testing.assert_allclose(difference, exact, atol=1e-9)


def test_sums_of_cut_numbers_do_not_round_in_any_order():
    rng = np.random.default_rng(0)
    v = factors(rng.uniform(-1, 1, size=(50_000, 3)))
    shuffled = v[rng.permutation(len(v))]
    np.testing.assert_array_equal(v.T @ v, shuffled.T @ shuffled)
    t = terms(rng.uniform(-1, 1, size=100_000))
    assert t.sum() == t[::-1].sum() == sum(t.tolist())
    assert np.all(np.abs(factors(v)) <= np.abs(v))


def test_a_release_is_named_by_the_request_and_the_rows_and_not_by_its_seed():
    request = request_digest("q", {}, ANSWER, 0.1)
    one, again = (release(ANSWER, request, SECRET, 1.0) for _ in range(2))
    assert one.name == again.name
    assert (one.answer.x == again.answer.x).all()
    other = release(ANSWER, request, SECRET, 1.0, whose="b")
    assert other.name != one.name
    assert (other.answer.x != one.answer.x).any()
    assert seed_of(SECRET, request, digest(ANSWER)) != one.name
