"""Cross-validation by sums equals the same sums by hand; who wins is told with its standard error."""

import numpy as np
import pytest
from flower_grid import flower
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression as Pooled

import unpooled as up
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter
from unpooled.layers.folds import Folded
from unpooled.maths.folds import fold_of

RNG = np.random.default_rng(0)
N = 240
X = RNG.normal(size=(N, 3))
SITE = np.repeat(np.arange(6), [20, 30, 40, 40, 50, 60])
NUMBERS = X @ [1.0, -0.5, 0.0] + 0.2 * SITE + RNG.normal(size=N)
COUNTS = RNG.negative_binomial(1, 1 / (1 + np.exp(1 + 0.5 * X[:, 0])))
WORDS = np.where(X[:, 0] + RNG.logistic(size=N) > 0, "yes", "no")


def by_hand(cv):
    """(squared errors of all rows under scikit-learn's fits to the rows outside of their folds, folds)."""
    fold = SITE.copy()
    if cv != "site":
        for s in range(6):
            fold[s == SITE] = fold_of(X[s == SITE], NUMBERS[s == SITE], cv)
    loss = np.empty(N)
    for f in np.unique(fold):
        model = Pooled().fit(X[fold != f], NUMBERS[fold != f])
        loss[fold == f] = (NUMBERS[fold == f] - model.predict(X[fold == f])) ** 2
    return loss, fold


@pytest.mark.parametrize("cv", [2, 5, 10, "site"])
def test_scores_are_those_by_hand(cv):
    loss, fold = by_hand(cv)
    score = up.cross_validate(up.LinearRegression(), X, NUMBERS, by=SITE, cv=cv)
    assert score.mean["squared_error"] == pytest.approx(loss.mean(), rel=1e-10)
    each = [loss[fold == f].mean() for f in np.unique(fold)]
    np.testing.assert_allclose(score.folds["squared_error"], each, rtol=1e-10)
    off = np.array([(loss[s == SITE] - loss.mean()).sum() for s in range(6)])
    assert score.stderr["squared_error"] == pytest.approx(np.sqrt(6 / 5 * (off**2).sum()) / N, rel=1e-8)
    assert score.n_rows == N
    assert "standard error by site" in str(score)


@pytest.mark.parametrize("cv", [5, "site"])
def test_over_flower_it_is_the_same_and_only_sums_are_asked(cv):
    clients = [Client(str(s), X[s == SITE], NUMBERS[s == SITE]) for s in range(6)]
    fed = flower(clients)
    there = up.cross_validate(up.LinearRegression(), fed, cv=cv)
    here = up.cross_validate(up.LinearRegression(), X, NUMBERS, by=SITE, cv=cv)
    assert there.mean == pytest.approx(here.mean, rel=1e-10)
    assert there.stderr == pytest.approx(here.stderr, rel=1e-8)
    assert {e.kind for e in fed.journal.exchanges} == {"sum"}


def test_any_estimator_is_scored_in_process_and_alike():
    by_sum = up.cross_validate(up.LogisticRegression(), X, WORDS, by=SITE)

    class Plain(BaseEstimator):
        """The same model without its own question."""

        def fit(self, data):
            self.model = up.LogisticRegression().fit(data)
            self.classes_ = self.model.classes_
            return self

        def predict(self, X):
            return self.model.predict(X)

        def predict_proba(self, X):
            return self.model.predict_proba(X)

    alone = up.cross_validate(Plain(), X, WORDS, by=SITE)
    assert alone.mean == pytest.approx(by_sum.mean, rel=1e-10)
    assert alone.stderr == pytest.approx(by_sum.stderr, rel=1e-8)
    density = up.cross_validate(up.GaussianMixture(1, random_state=0), X, by=SITE)
    assert 3 < density.mean["log_loss"] < 5
    assert up.cross_validate(up.BayesianRegression(), X, NUMBERS, by=SITE).mean["squared_error"] < 3


def test_the_right_law_wins():
    models = {"poisson": up.GLM("poisson"), "nb": up.GLM("negative_binomial"), "nothing": up.GLM("poisson", alpha=1e3)}
    found = up.compare(models, X, COUNTS, by=SITE)
    assert found.best == "nb"
    assert next(iter(found.scores)) == "nb"
    assert found.difference["nb"] == found.difference_stderr["nb"] == 0
    assert found.difference["poisson"] > 2 * found.difference_stderr["poisson"] > 0
    lines = str(found).splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("nb")


def test_standard_errors_of_differences_are_by_site():
    """The same model twice differs by nothing, with certainty, though each is uncertain."""
    found = up.compare([up.LinearRegression(), up.LinearRegression()], X, NUMBERS, by=SITE)
    assert set(found.scores) == {"LinearRegression 1", "LinearRegression 2"}
    assert max(found.difference_stderr.values()) < 1e-6
    assert min(s.stderr["log_loss"] for s in found.scores.values()) > 0.01


def test_weights_are_weights_of_losses():
    weights = (np.arange(N) % 3 > 0).astype(float)
    score = up.cross_validate(up.LinearRegression(), X, NUMBERS, by=SITE, sample_weight=weights)
    assert score.n_rows == weights.sum()


@pytest.mark.parametrize(
    ("cv", "sentence"),
    [(3, "cv=3 must be 2, 5, 10 or 'site'"), (True, "cv=True must be"), ("sites", "cv='sites' must be")],
)
def test_other_folds_are_refused(cv, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.cross_validate(up.LinearRegression(), X, NUMBERS, by=SITE, cv=cv)


def test_what_cannot_be_compared_is_said():
    with pytest.raises(BadParameter, match="there is no model to validate"):
        up.compare([], X, NUMBERS)
    with pytest.raises(BadParameter, match="there is only one: use cv=5"):
        up.cross_validate(up.LinearRegression(), X, NUMBERS, cv="site")
    with pytest.raises(BadParameter, match="no metric in common"):
        up.compare([up.BayesianRegression(), up.LogisticRegression()], X, (NUMBERS > 0).astype(float), by=SITE)
    fed = flower([Client("a", X, NUMBERS)])
    with pytest.raises(BadParameter, match="BayesianRegression cannot be scored over a network"):
        up.compare([up.BayesianRegression()], fed)
    assert fed.journal.exchanges == []


def test_masked_sums_validate_by_rows_but_not_by_site():
    masked = up.SecureSum(federate(X, NUMBERS, by=SITE), min_cohort=3)
    plain = up.cross_validate(up.LinearRegression(), X, NUMBERS, by=SITE)
    assert up.cross_validate(up.LinearRegression(), masked).mean == pytest.approx(plain.mean, rel=1e-9)
    with pytest.raises(BadParameter, match="whose own sums follow from the difference: use cv=5"):
        up.cross_validate(up.LinearRegression(), masked, cv="site")


def test_the_model_given_is_not_fitted():
    model = up.LinearRegression()
    score = up.cross_validate(model, federate(X, NUMBERS, by=SITE), cv=2)
    assert not hasattr(model, "coef_")
    assert len(score.models) == 2


def test_a_grid_shares_rounds_and_fits_what_it_would_alone():
    grid = {f"{a:g}": up.GLM("poisson", alpha=a) for a in (0.001, 0.01, 0.1)}
    fed = flower([Client(str(s), X[s == SITE], COUNTS[s == SITE].astype(float)) for s in range(6)])
    found = up.compare(grid, fed, cv=5)
    asked = [e.question for e in fed.journal.exchanges]
    alone = federate(X, COUNTS.astype(float), by=SITE)
    longest = 0
    for name, model in grid.items():
        for fold, shared in enumerate(found.scores[name].models):
            single = up.GLM("poisson", alpha=model.alpha).fit(Folded(alone, 5, fold))
            np.testing.assert_allclose(shared.coef_, single.coef_, rtol=1e-9)
            longest = max(longest, len(alone.journal.exchanges))
    assert len(asked) <= longest + 1, "15 fits take as many rounds as the longest of them, and one more for scores"
    assert set(asked) == {"glm.look_grid", "glm.start_grid", "glm.newton_grid", "glm.final_grid", "glm.held_out"}


def test_classifiers_and_masked_sums_share_rounds_too():
    grid = [up.LogisticRegression(C=c, classes=["no", "yes"]) for c in (0.1, 1.0)]
    masked = up.SecureSum(federate(X, WORDS, by=SITE), min_cohort=3)
    found = up.compare(grid, masked, cv=2)
    for i, c in enumerate((0.1, 1.0)):
        alone = up.cross_validate(up.LogisticRegression(C=c), X, WORDS, by=SITE, cv=2)
        assert found.scores[f"LogisticRegression {i + 1}"].mean == pytest.approx(alone.mean, rel=1e-8)
    assert "glm.class_curvature_grid" in {e.question for e in masked.journal.exchanges}


def test_one_fit_that_fails_ends_all():
    models = [up.GLM("poisson"), up.GLM("gamma")]
    with pytest.raises(BadData, match="targets are not numbers above 0"):
        up.compare(models, X, COUNTS.astype(float), by=SITE)


def test_folds_of_few_rows_are_counted_for_the_nodes_policy():
    from unpooled.models.glm.grid import look_grid

    one = {"options": {"family": "normal", "offset": -1}, "folds": 10, "fold": 0}
    up_ = look_grid.using(asks=[one, one]).answer((None, None), Client("a", X[:30], NUMBERS[:30]), asks=[one, one])
    assert up_.held.tolist() == [3.0]
    assert len(up_.parts) == 2


@pytest.mark.parametrize("strata", [None, "site"])
def test_cox_is_scored_by_the_partial_likelihood_that_held_out_patients_add(strata):
    from unpooled.models.survival import partial_likelihood as likelihood

    rng = np.random.default_rng(3)
    time, event = np.ceil(50 * rng.exponential(np.exp(-X[:, 0]))), (rng.random(N) < 0.7).astype(float)
    y = np.column_stack([time, event])

    def loglik(eta, which):
        """Efron's, of some rows, within strata if there are any."""
        total = 0.0
        for s in range(6) if strata else [None]:
            mine = which & (s == SITE if strata else True)
            t, died, e = time[mine], event[mine] == 1, eta[mine]
            starts = np.unique(t[died])
            step = likelihood.last_step(starts, t)
            deaths = likelihood.Deaths(*2 * [np.bincount(step[died], minlength=len(starts)).astype(float)])
            sums = likelihood.sums(e[:, None], np.exp(e), step, died, likelihood.tied(deaths, "efron"), len(starts))
            total += e[died].sum() + likelihood.terms(deaths, sums, "efron").loglik
        return total

    grid = {f"{p:g}": up.Cox(penalizer=p, strata=strata, concordance=False) for p in (0.01, 1.0)}
    found = up.compare(grid, flower([Client(str(s), X[s == SITE], y[s == SITE]) for s in range(6)]), cv=2)
    fold = np.empty(N, int)
    for s in range(6):
        fold[s == SITE] = fold_of(X[s == SITE], y[s == SITE], 2)
    for name, score in found.scores.items():
        added = 0.0
        for f, model in enumerate(score.models):
            eta = X @ model.coef_
            added += loglik(eta, np.ones(N, bool)) - loglik(eta, fold != f)
        assert score.mean["partial_likelihood"] == pytest.approx(-added / event.sum(), rel=1e-8), name
    assert found.best == "0.01"
