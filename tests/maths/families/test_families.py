"""The laws of a family, inherited by every one: EM rises, statistics add, the truth's statistics give the truth."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unpooled import tree
from unpooled.choices import describe, resolve
from unpooled.maths.gaussian import pack_covs, reshape_covs
from unpooled.models.fedem import families
from unpooled.models.fedem.families import base, bernoulli, categorical, common, factor, lowrank, poisson, regression
from unpooled.models.fedem.families.gaussian import Params as GaussianParams

ROWS = 400


def flat(t):
    return tree.flatten(t)


class FamilyContract:
    """A subclass gives a family, its truth, and a row that it cannot take."""

    bad_row: tuple

    @pytest.fixture
    def rng(self):
        return np.random.default_rng(5)

    @pytest.fixture
    def rows(self, rng):
        return self.family.sample(self.truth, ROWS, rng)

    def em(self, params, x, rounds=25):
        """(likelihoods, last params) of plain EM."""
        logliks = []
        for _ in range(rounds):
            found = self.family.statistics(params, x, np.ones(len(x)))
            logliks.append(found.loglik)
            params = self.family.maximize(tree.map(lambda s: s / len(x), found.stats), params)
        return np.array(logliks), params

    def start(self, x, rng):
        spread = np.maximum(np.nanstd(x, axis=0), 1e-3)
        return self.family.start(np.nanmean(x, axis=0), spread, rng)

    def test_em_never_lowers_the_likelihood(self, rows, rng):
        logliks, _ = self.em(self.start(rows, rng), rows)
        assert np.diff(logliks).min() > -1e-9 * abs(logliks[0])
        assert logliks[-1] > logliks[0]

    def test_statistics_add_over_rows(self, rows):
        w = np.ones(ROWS)
        whole = self.family.statistics(self.truth, rows, w)
        parts = [self.family.statistics(self.truth, rows[s], w[s]) for s in (slice(0, 7), slice(7, None))]
        assert_allclose(flat(whole.stats), sum(flat(p.stats) for p in parts), rtol=1e-10, atol=1e-9)
        assert_allclose(whole.loglik, sum(p.loglik for p in parts), rtol=1e-12)

    def test_a_weight_is_a_number_of_rows(self, rows):
        w = np.array([2.0, 0.0, 1.0])
        weighted = self.family.statistics(self.truth, rows[:3], w)
        repeated = self.family.statistics(self.truth, rows[[0, 0, 2]], np.ones(3))
        assert_allclose(flat(weighted.stats), flat(repeated.stats), rtol=1e-12, atol=1e-12)

    def test_the_truths_statistics_give_the_truth(self):
        found = self.family.maximize(self.family.moments(self.truth), self.truth)
        assert_allclose(flat(self.family.moments(found)), flat(self.family.moments(self.truth)), rtol=1e-9, atol=1e-9)
        assert self.family.change(self.truth, found) < 1e-7
        assert not self.family.project(self.family.moments(self.truth))[1]

    def test_the_mean_statistics_of_many_rows_are_the_moments(self, rng):
        x = self.family.sample(self.truth, 40_000, rng)
        found = self.family.statistics(self.truth, x, np.ones(len(x)))
        moments = flat(self.family.moments(self.truth))
        assert_allclose(flat(found.stats) / len(x), moments, atol=0.05 * np.abs(moments).max())

    def test_statistics_outside_are_counted_and_give_params_that_work(self, rows):
        outside = self.outside(self.family.moments(self.truth))
        assert self.family.project(outside)[1]
        params = self.family.maximize(outside, self.truth)
        assert np.isfinite(flat(params)).all()
        assert np.isfinite(self.family.statistics(params, rows[:5], np.ones(5)).loglik)

    def outside(self, stats):
        return stats._replace(n=-stats.n)

    def test_whitening_can_be_undone(self, rows):
        stats = self.family.statistics(self.truth, rows, np.ones(ROWS)).stats
        back = self.family.unwhiten(self.truth, self.family.whiten(self.truth, stats))
        assert_allclose(flat(back), flat(stats), rtol=1e-9, atol=1e-9 * np.abs(flat(stats)).max())

    def test_params_follow_rows_to_other_units(self, rows):
        d = rows.shape[1]
        shift, unit = self.family.frame(np.linspace(1, 2, d), np.linspace(0.5, 3, d))
        away = self.family.unscale(self.truth, shift, unit)
        here = self.family.statistics(self.truth, rows, np.ones(ROWS)).loglik
        there = self.family.statistics(away, shift + unit * rows, np.ones(ROWS)).loglik
        assert_allclose(there, here - ROWS * np.log(unit[-1:] if self.family.supervised else unit).sum(), rtol=1e-9)

    def test_rows_it_cannot_take_are_found(self, rows):
        assert not self.family.bad_rows(rows).any()
        assert self.family.bad_rows(np.array([self.bad_row], float)).all()

    def test_it_travels_as_a_dict(self):
        assert resolve(describe(self.family, families.FAMILIES), families.FAMILIES, "family") == self.family


def gaussian_truth(shape):
    a = np.array([[[1.0, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 0.8]]])
    means = np.array([[0.0, 0.0], [2.5, 1.0]])
    return GaussianParams(np.array([0.4, 0.6]), means, pack_covs(reshape_covs(a, shape), shape))


class GaussianContract(FamilyContract):
    bad_row = (0.0, np.inf)

    def test_a_row_with_a_gap_counts(self, rows, rng):
        rows = rows.copy()
        rows[::3, 0] = np.nan
        logliks, _ = self.em(self.start(rows, rng), rows)
        assert np.diff(logliks).min() > -1e-9 * abs(logliks[0])


class TestFull(GaussianContract):
    family, truth = families.GaussianMixture(2, "full"), gaussian_truth("full")


class TestTied(GaussianContract):
    family, truth = families.GaussianMixture(2, "tied"), gaussian_truth("tied")


class TestDiag(GaussianContract):
    family, truth = families.GaussianMixture(2, "diag"), gaussian_truth("diag")


class TestSpherical(GaussianContract):
    family, truth = families.GaussianMixture(2, "spherical"), gaussian_truth("spherical")


class TestRidge(FamilyContract):
    """A ridge is part of the map: the likelihood it rises in is another, so only the other laws are inherited."""

    family, truth, bad_row = families.GaussianMixture(2, "full", reg=0.1), gaussian_truth("full"), (0.0, np.inf)
    test_em_never_lowers_the_likelihood = None


class TestCommonKnown(FamilyContract):
    family = families.CommonCovariance(2, "known")
    cov = np.array([[1.0, 0.2], [0.2, 0.6]])
    truth = common.Params(np.array([0.3, 0.7]), np.array([[0.0, 0.0], [3.0, 1.0]]), cov, np.zeros(2), np.eye(2))
    bad_row = (0.0, np.nan)


class TestCommonImplied(FamilyContract):
    family = families.CommonCovariance(2, "implied")
    weights, means = np.array([0.3, 0.7]), np.array([[0.0, 0.0], [3.0, 1.0]])
    centre = weights @ means
    cov = np.array([[1.0, 0.2], [0.2, 0.6]])
    truth = common.Params(weights, means, cov, centre, cov + (weights[:, None] * (means - centre)).T @ (means - centre))
    bad_row = (0.0, np.nan)

    def start(self, x, rng):
        """The covariance of all rows is not learned: it must be theirs."""
        drawn = super().start(x, rng)
        return drawn._replace(centre=x.mean(axis=0), total=np.cov(x.T, bias=True))


class TestPoisson(FamilyContract):
    family = families.PoissonMixture(2)
    truth = poisson.Params(np.array([0.4, 0.6]), np.array([[1.0, 5.0, 2.0], [4.0, 1.0, 2.0]]))
    bad_row = (1.0, -1.0, 2.0)


class TestBernoulli(FamilyContract):
    family = families.BernoulliMixture(2)
    truth = bernoulli.Params(np.array([0.4, 0.6]), np.array([[0.9, 0.2, 0.7, 0.1], [0.1, 0.8, 0.3, 0.6]]))
    bad_row = (0.0, 1.0, 0.5, 1.0)


class TestCategorical(FamilyContract):
    family = families.CategoricalMixture(2, 3)
    truth = categorical.Params(np.array([0.4, 0.6]), np.array([[[0.7, 0.2, 0.1]] * 4, [[0.1, 0.3, 0.6]] * 4]))
    bad_row = (0.0, 1.0, 2.0, 3.0)


class TestRegression(FamilyContract):
    family = families.RegressionMixture(2)
    truth = regression.Params(np.array([0.4, 0.6]), np.array([[1.0, 0.5, 0.0], [-1.0, 0.2, 1.0]]), np.array([0.1, 0.3]))
    bad_row = (0.0, 1.0, np.nan)


class TestFactorAnalysis(FamilyContract):
    family = families.FactorAnalysis(2)
    loadings = np.array([[1.0, 0.0], [0.5, 0.4], [0.0, 1.0], [0.3, -0.6], [0.8, 0.1]])
    truth = factor.Params(np.arange(5.0), loadings, np.array([0.2, 0.3, 0.4, 0.3, 0.2]))
    bad_row = (0.0, 1.0, np.nan, 0.0, 0.0)

    def outside(self, stats):
        return stats._replace(zz=-stats.zz)


class TestProbabilisticPCA(TestFactorAnalysis):
    family = families.FactorAnalysis(2, "one")
    truth = factor.Params(np.arange(5.0), TestFactorAnalysis.loadings, np.full(5, 0.3))

    def test_params_follow_rows_to_other_units(self, rows):
        """One noise for all columns is one in one unit only: what is returned is the factor analysis of the data's units."""
        away = self.family.unscale(self.truth, np.zeros(5), np.linspace(0.5, 3, 5))
        assert_allclose(away.noise, self.truth.noise * np.linspace(0.5, 3, 5) ** 2)


class LowRankContract(FamilyContract):
    rng_ = np.random.default_rng(0)
    truth = lowrank.Params(rng_.normal(size=(8, 2)), rng_.normal(size=(6, 2)))
    bad_row = (8.0, 0.0, 1.0)

    def family_for(self, x):
        """As many visits an observer as the law allows."""
        return self.family._replace(visits=len(x) / np.bincount((x[:, 0] * 6 + x[:, 1]).astype(int)).max())

    def test_em_never_lowers_the_likelihood(self, rows, rng):
        family = self.family_for(rows)
        params, logliks = self.start(rows, rng), []
        for _ in range(25):
            found = family.statistics(params, rows, np.ones(len(rows)))
            logliks.append(found.loglik)
            params = family.maximize(tree.map(lambda s: s / len(rows), found.stats), params)
        assert np.diff(logliks).min() > -1e-9 * abs(logliks[0])
        assert logliks[-1] > logliks[0]

    def outside(self, stats):
        return lowrank.Stats(-1.0 - np.abs(stats.filled))


class TestLowRankGaussian(LowRankContract):
    family = families.LowRank(8, 6, rank=2)

    def test_statistics_outside_are_counted_and_give_params_that_work(self, rows):
        """Nothing is outside: any table is the mean of Gaussian cells."""
        assert not self.family.project(self.outside(self.family.moments(self.truth)))[1]


class TestLowRankPoisson(LowRankContract):
    family = families.LowRank(8, 6, rank=2, cells="poisson")


class TestLowRankBinomial(LowRankContract):
    family = families.LowRank(8, 6, rank=2, cells="binomial", trials=5)


def test_weights_have_a_floor():
    assert_allclose(base.weights(np.array([0.5, -0.2, 0.5]), 0.1).min(), 0.1 / 1.1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("poison", "did you mean 'poisson'"),
        ({"name": "poisson", "k": 3}, "has no number 'k'"),
        (families.PoissonMixture(0), "n_components=0"),
        (families.GaussianMixture(2, "round"), "shape='round'"),
        (families.LowRank(3, 3, rank=4), "rank=4"),
        (families.FactorAnalysis(1, "two"), "noise='two'"),
    ],
)
def test_a_family_that_cannot_be_is_refused_in_one_sentence(given, said):
    with pytest.raises(ValueError, match=said):
        resolve(given, families.FAMILIES, "family")
