"""MixtureImputer: what all rows say of single Gaussians with different priors, beside the hidden cells."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.models.mixture_imputer import choice, evidence, stacking

PRIORS = np.array([1.0, 0.01, 100.0])


def covariances(z, priors=PRIORS):
    """Those of standardised rows under each prior."""
    return np.stack([(z.T @ z + p * np.eye(z.shape[1])) / (len(z) + p) for p in priors])


def complete(rows, columns):
    """What is known of columns of normal values without gaps."""
    return evidence.Known(float(rows), np.full(columns, float(rows)), np.zeros(columns), np.ones(columns))


def standard(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def normal_rows(rng, rows, columns):
    return rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.3)


def test_parameters_are_the_trace_of_each_ridge_regression():
    z = standard(normal_rows(np.random.default_rng(0), 60, 4))
    cov, others = z.T @ z / 60, [0, 1, 3]
    inside = cov[np.ix_(others, others)]
    expected = [1 + np.trace(inside @ np.linalg.inv(inside + p / 60 * np.eye(3))) for p in PRIORS]
    assert_allclose(evidence._parameters(cov, PRIORS, np.full(4, 60.0))[2], expected)


def test_products_are_those_of_errors_on_new_rows():
    """The mean over many tables; errors on the rows that were fitted are far smaller."""
    rng = np.random.default_rng(1)
    mix = np.eye(5) + 0.3
    said, new, fitted = [], [], []
    for _ in range(200):
        x = rng.normal(size=(40, 5)) @ mix
        mean, scale = x.mean(axis=0), x.std(axis=0)
        covs = covariances(standard(x))
        precisions = np.linalg.inv(covs)
        errors = precisions[:, :, 2] / precisions[:, 2, 2, None]  # (m, e)
        spent = evidence._parameters(covs[1], PRIORS, np.full(5, 40.0))[2, 1]
        said.append(evidence.products(covs, PRIORS, complete(40, 5))[2] / (40 - spent))
        new.append((errors / scale) @ (mix.T @ mix + np.outer(mean, mean)) @ (errors / scale).T)
        fitted.append(errors @ covs[1] @ errors.T)
    expected = np.mean(new, axis=0)
    assert_allclose(np.mean(said, axis=0), expected, rtol=0.1)
    assert (np.mean(fitted, axis=0) < 0.85 * expected).all()


def test_values_that_are_the_same_but_for_a_few_tell_little():
    rng = np.random.default_rng(2)
    odd = (np.arange(400) < 4).astype(float)
    x = np.column_stack([rng.normal(size=400), rng.uniform(size=400), odd])
    share = evidence.informative(np.abs(standard(x)).sum(axis=0), np.full(3, 400.0))
    assert share[0] > 0.9
    assert share[1] == 1.0
    assert_allclose(share[2], 4 * 0.01 * 0.99 * np.pi / 2)


def test_columns_that_rest_on_few_rows_have_no_say():
    rng = np.random.default_rng(3)
    odd = (np.arange(300) < 3).astype(float)
    x = standard(np.column_stack([normal_rows(rng, 300, 3), odd, odd + 0.01 * rng.normal(size=300)]))
    known = complete(300, 5)
    known = known._replace(informative=evidence.informative(np.abs(x).sum(axis=0), known.seen))
    products = evidence.products(covariances(x), PRIORS, known)
    equal = evidence.products(covariances(x), PRIORS, complete(300, 5))
    worth = np.einsum("jmm->j", products) / np.einsum("jmm->j", equal)
    assert worth[:3].min() > 4 * worth[3:].max()
    assert worth[3:].max() < 0.02


def test_gaps_and_hidden_cells_are_not_counted():
    z = standard(normal_rows(np.random.default_rng(4), 200, 3))
    known = complete(200, 3)
    gaps = known._replace(seen=np.full(3, 160.0), hidden=np.full(3, 16.0))
    assert_allclose(evidence._complete(known), 200)
    assert_allclose(evidence._complete(gaps), 144 * 0.8)
    assert (
        evidence.products(covariances(z), PRIORS, gaps).sum() < evidence.products(covariances(z), PRIORS, known).sum()
    )


def test_nothing_breaks_where_there_are_fewer_rows_than_columns():
    z = standard(normal_rows(np.random.default_rng(5), 6, 9))
    products = evidence.products(covariances(z), PRIORS, complete(6, 9))
    assert np.isfinite(products).all()
    assert (np.einsum("jmm->jm", products) >= 0).all()


def test_what_is_known_of_a_column_moves_its_own_shares_only():
    gram = np.tile(np.diag([1.0, 1.0]), (2, 1, 1))
    cells, usable, of_levels = np.full(2, 10.0), np.ones((2, 2), bool), np.zeros(2, bool)
    known = np.array([np.diag([100.0, 1.0]), np.zeros((2, 2))])
    found = stacking.shares(gram, cells, usable, of_levels, known)
    assert found[0, 1] > 0.7
    assert_allclose(found[1], 0.5)


def test_shares_of_all_candidates_may_be_those_of_single_gaussians():
    """A mixture that errs more than both: the single Gaussians count as what all rows say of them."""
    gram, cells = np.diag([1.0, 1.0, 900.0])[None], np.array([10.0])
    alone, known = np.array([[True, True, False]]), np.diag([2000.0, 0.0, 0.0])[None]
    base, found = choice._two(gram, cells, choice.Columns(alone, np.ones((1, 3), bool), np.zeros(1, bool), known))
    assert base[0, 1] > 0.9
    assert_allclose(found.sum(), 1.0)
    assert found[0, 2] < 0.01


@pytest.fixture(scope="module")
def one_relation():
    """A table in which two of nine columns depend on each other, and on nothing else."""
    rng = np.random.default_rng(6)
    full = rng.normal(size=(240, 9))
    full[:, 1] = 0.6 * full[:, 0] + 0.8 * full[:, 1]
    holes = (rng.random(full.shape) < 0.2) & (np.arange(9) != rng.integers(9, size=(240, 1)))
    return full, holes, np.where(holes, np.nan, full)


def slope(model, gaps):
    """How much a prediction of the second column grows with the first, everything else at the mean."""
    rows = np.tile(np.nanmean(gaps, axis=0), (2, 1))
    rows[:, 1], rows[1, 0] = np.nan, rows[0, 0] + 1.0
    return np.diff(model.transform(rows)[:, 1])[0]


def test_a_relation_between_two_columns_is_kept_where_all_others_depend_on_nothing(one_relation, monkeypatch):
    _, _, gaps = one_relation
    model = up.MixtureImputer(choose_iter=8).fit(gaps, by=np.arange(240) % 3)
    nothing = lambda covs, priors, known: np.zeros((covs.shape[1], len(covs), len(covs)))  # noqa: E731
    monkeypatch.setattr(evidence, "products", nothing)
    before = up.MixtureImputer(choose_iter=8).fit(gaps, by=np.arange(240) % 3)
    assert slope(before, gaps) < slope(model, gaps) - 0.02
    assert abs(slope(model, gaps) - 0.6) < 0.2


def test_the_split_of_rows_does_not_matter(one_relation):
    _, _, gaps = one_relation
    pooled = up.MixtureImputer(choose_iter=4).fit(gaps)
    split = up.MixtureImputer(choose_iter=4).fit(gaps, by=np.arange(240) % 5)
    assert_allclose(split.shares_, pooled.shares_, atol=1e-6)
