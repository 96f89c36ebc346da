"""The recommendation follows from held-out losses by site and from the tests; EM goes on with its likeliest start."""

import numpy as np
import pytest

from unpooled.maths.gaussian import pack_triangle
from unpooled.models.pooling import starts, verdict
from unpooled.models.pooling.mixtures import Components
from unpooled.models.pooling.sites import STRATEGIES, Losses, candidates

SITES, ROWS = 8, 100.0


def losses(means, spread=0.01):
    """Losses of 8 sites of 100 rows; differences between candidates vary by `spread` from site to site."""
    noise = np.random.default_rng(0).normal(size=(SITES, len(means)))
    noise -= noise.mean(0)
    each = np.column_stack([np.full(SITES, ROWS), ROWS * (np.asarray(means) + spread * noise)])
    return Losses(np.asarray(each[:, 0].sum()), each[:, 1:].sum(0), pack_triangle(each.T @ each))


def found_by_tests(model, slopes):
    return {"P(y | x)": {"lr": {"p_value": model}}, "slopes": {"lr": {"p_value": slopes}}}


def test_standard_errors_are_those_of_paired_differences_by_site():
    means = np.linspace(1.0, 1.5, 6)
    found = verdict.by_strategy(losses(means), SITES)
    noise = np.random.default_rng(0).normal(size=(SITES, 6))
    apart = 0.01 * (noise[:, 3] - noise[:, 0])
    assert found["own weights"]["difference"] == pytest.approx(0.3)
    assert found["own weights"]["difference_stderr"] == pytest.approx(apart.std(ddof=1) / np.sqrt(SITES))


@pytest.mark.parametrize(
    ("p", "means", "said"),
    [
        ((0.5, 0.5), [1.0, 1.01, 1.0, 1.0, 0.999, 1.1], "one model"),  # nothing seen, nothing better
        ((0.5, 0.5), [1.0, 1.01, 1.0, 0.9, 1.0, 1.1], "own weights"),  # better by far, whatever the tests see
        ((0.01, 0.5), [1.2, 1.0, 1.1, 1.1, 0.99, 1.1], "own intercepts"),
        ((0.04, 0.5), [1.0, 0.9999, 1.1, 1.1, 0.99, 1.1], "one model"),  # a test alone is no reason
        ((0.01, 0.01), [2.0, 1.9, 1.0, 1.2, 0.9999, 1.1], "groups"),  # a simpler kind as good as the best
        ((0.01, 0.01), [2.0, 1.9, 1.1, 1.0, 1.3, 1.3], "own weights"),
        ((0.01, 0.01), [2.0, 1.9, 1.1, 1.2, 1.0, 1.3], "personalised"),
        ((0.01, 0.01), [2.0, 1.9, 1.1, 1.2, 1.3, 1.0], "own fit"),
    ],
)
def test_the_simplest_kind_that_is_as_good_as_the_best(p, means, said):
    assert verdict.recommended(losses(means), SITES, found_by_tests(*p), 0.05) == said


def test_the_fewest_groups_that_are_as_good_as_the_best_number():
    sizes = [2, 3]
    assert [strategy for strategy, _ in candidates(sizes)].count("groups") == 2
    kept = verdict.chosen(losses([2.0, 1.9, 1.0001, 1.0, 1.2, 1.1, 1.3, 1.4]), sizes, SITES)
    assert kept == [0, 1, 2, 5, 6, 7]
    assert verdict.groups_of(kept, sizes) == 2
    only = verdict.only(losses([2.0, 1.9, 1.0001, 1.0, 1.2, 1.1, 1.3, 1.4]), kept)
    assert len(only.total) == len(STRATEGIES)
    np.testing.assert_allclose(verdict.means(only, SITES)[0], [2.0, 1.9, 1.0001, 1.1, 1.3, 1.4])


def test_the_likeliest_start_of_every_size_goes_on():
    sizes = [2, 3]
    components = sum(starts.repeated(sizes))
    coef = np.arange(components, dtype=float)[None, :, None]
    loglik = np.zeros(2 * starts.STARTS)
    loglik[[1, starts.STARTS + 2]] = 1.0
    found = starts.likeliest(Components(coef, coef[..., 0], coef[..., 0]), loglik, sizes)
    first = 2 * starts.STARTS + 2 * 3  # of the third start of three components
    np.testing.assert_array_equal(found.coef[0, :, 0], [2, 3, first, first + 1, first + 2])
