"""Pooling: one model is the pooled fit, tests are the textbook's, leave-one-out is the refit, advice is right in clear cases."""

import numpy as np
import pytest
import statsmodels.api as sm
from flower_grid import flower
from scipy.stats import chi2
from statsmodels.multivariate.manova import MANOVA

import unpooled as up
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter
from unpooled.layers.folds import Folded
from unpooled.maths.folds import fold_of
from unpooled.models.pooling import homogeneity, small_glm

FAMILIES = {"normal": sm.families.Gaussian(), "binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}
SIZES = (40, 70, 55, 90, 60)


def rows(family, kind="one model", sizes=SIZES, seed=0):
    """Site -> (x, y); sites differ as `kind` says."""
    rng = np.random.default_rng(seed)
    found = {}
    for i, n in enumerate(sizes):
        x = rng.normal(size=(n, 2)) * [1.0, 10.0] + [0.0, 50.0]
        level, slopes = 0.4, np.array([0.8, -0.05])
        if kind == "own intercepts":
            level = level + 1.5 * (i % 3 - 1)
        if kind == "groups":
            slopes = slopes * (1 if i % 2 else -1)
        eta = level + (x - [0.0, 50.0]) @ slopes
        if kind == "own weights":
            eta = np.where(rng.random(n) < (i + 0.5) / len(sizes), 3 * x[:, 0], -3 * x[:, 0])
        y = {
            "normal": lambda e: e + rng.normal(size=len(e)),
            "binomial": lambda e: (rng.random(len(e)) < 1 / (1 + np.exp(-e))).astype(float),
            "poisson": lambda e: rng.poisson(np.exp(np.minimum(e, 2))).astype(float),
        }[family](eta)
        found[f"site {i}"] = (x, y)
    return found


def pooled(data):
    x, y = (np.concatenate([d[j] for d in data.values()]) for j in (0, 1))
    return x, y, np.repeat(np.arange(len(data)), [len(d[1]) for d in data.values()])


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    data = rows(request.param, "own intercepts")
    return request.param, data, up.Pooling(request.param, random_state=0).fit(data)


def test_one_law_is_the_pooled_fit(case):
    family, data, model = case
    x, y, _ = pooled(data)
    theirs = sm.GLM(y, sm.add_constant(x), family=FAMILIES[family]).fit(tol=1e-14)
    np.testing.assert_allclose([model.intercept_, *model.coef_], theirs.params, rtol=1e-8)


def test_without_a_site_it_is_the_refit(case):
    family, data, model = case
    for name in data:
        rest = {other: d for other, d in data.items() if other != name}
        refit = up.GLM(family, tol=1e-12).fit(rest)
        found = model.sites_[name]
        np.testing.assert_allclose(
            [found["intercept_without"], *found["coef_without"]], [refit.intercept_, *refit.coef_], rtol=1e-10
        )


def test_held_out_loss_of_one_law_is_that_of_the_fits_without_each_fold(case):
    family, data, model = case
    fed = federate(data)
    total = n = 0.0
    for f in range(5):
        fit = up.GLM(family).fit(Folded(fed, 5, f))
        for x, y in data.values():
            out = fold_of(x, y, 5) == f
            eta = x[out] @ fit.coef_ + fit.intercept_
            scale = fit.scale_ if family == "normal" else 1.0
            total -= small_glm.log_density(family, eta, y[out], scale).sum()
            n += out.sum()
    assert model.losses_["one model"]["loss"] == pytest.approx(total / n, rel=1e-8)
    by_site = sum(s["losses"]["one model"] * s["rows"] for s in model.sites_.values())
    assert by_site / n == pytest.approx(total / n, rel=1e-8)


def test_information_is_shared_out(case):
    *_, model = case
    assert sum(s["information"] for s in model.sites_.values()) == pytest.approx(1, rel=1e-8)


def test_tests_of_the_law_are_those_of_nested_models(case):
    family, data, model = case
    x, y, site = pooled(data)
    dummies = (site[:, None] == np.arange(len(data))).astype(float)
    designs = {
        "one": sm.add_constant(x),
        "levels": np.column_stack([dummies, x]),
        "all": np.column_stack([dummies, *(dummies * x[:, j : j + 1] for j in range(2))]),
    }
    fits = {name: sm.GLM(y, z, family=FAMILIES[family]).fit(tol=1e-12) for name, z in designs.items()}
    level = model.tests_["intercepts"]["lr"]
    gain = fits["one"].deviance - fits["levels"].deviance
    if family == "normal":
        assert level["statistic"] == pytest.approx(gain / fits["levels"].scale, rel=1e-7)
        whole = (fits["one"].deviance - fits["all"].deviance) / fits["all"].scale
        for kind in ("lr", "score"):
            assert model.tests_["P(y | x)"][kind]["statistic"] == pytest.approx(whole, rel=1e-7)
        ols = {name: sm.OLS(y, z).fit() for name, z in designs.items()}
        assert model.tests_["slopes"]["lr"]["p_value"] == pytest.approx(ols["all"].compare_f_test(ols["levels"])[1])
    else:
        assert level["statistic"] == pytest.approx(gain, rel=1e-7)
        assert level["p_value"] == pytest.approx(chi2.sf(gain, len(data) - 1), rel=1e-6)
        raw = fits["one"].deviance - fits["all"].deviance
        corrected = model.tests_["P(y | x)"]["lr"]
        assert corrected["df"] == (len(data) - 1) * 3
        assert 0.8 * raw < corrected["statistic"] < 1.02 * raw  # divided by its mean over its degrees of freedom


def test_the_score_test_needs_the_pooled_fit_alone():
    data = rows("binomial")
    x, y, site = pooled(data)
    z = sm.add_constant(x)
    mu = sm.GLM(y, z, family=FAMILIES["binomial"]).fit(tol=1e-14).fittedvalues
    statistic = 0.0
    for s in range(len(data)):
        u = z[site == s].T @ (y - mu)[site == s]
        information = (z[site == s].T * (mu * (1 - mu))[site == s]) @ z[site == s]
        statistic += u @ np.linalg.solve(information, u)
    model = up.Pooling("binomial", cv=None, random_state=0).fit(data)
    assert model.tests_["P(y | x)"]["score"]["statistic"] == pytest.approx(statistic, rel=1e-6)


def test_tests_of_equal_means_are_the_multivariate_analysis_of_variance():
    rng = np.random.default_rng(1)
    x, group = rng.normal(size=(150, 3)), np.repeat(np.arange(5), 30)
    x[group == 2] += 0.3
    means = np.array([x[group == g].mean(0) for g in range(5)])
    sums = homogeneity.Moments(150.0, 5.0, x.sum(0), x.T @ x, 30 * means.T @ means)
    found = homogeneity.equal_means(sums)
    design = np.column_stack([np.ones(150), group[:, None] == np.arange(1, 5)]).astype(float)
    contrast = [("groups", np.eye(5)[1:])]
    table = MANOVA(x, design).mv_test(contrast).results["groups"]["stat"]
    for ours, theirs in (("lr", "Wilks' lambda"), ("score", "Pillai's trace")):
        assert found[ours].p_value == pytest.approx(table.loc[theirs, "Pr > F"], rel=1e-8)


def test_features_that_repeat_others_do_not_count():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 2))
    twice = np.column_stack([x, x[:, :1], np.zeros(60)])
    group = np.repeat(np.arange(3), 20)

    def tested(a):
        means = np.array([a[group == g].mean(0) for g in range(3)])
        return homogeneity.equal_means(homogeneity.Moments(60.0, 3.0, a.sum(0), a.T @ a, 20 * means.T @ means))

    assert tested(twice)["lr"].p_value == pytest.approx(tested(x)["lr"].p_value, rel=1e-8)


@pytest.mark.parametrize("kind", ["one model", "own intercepts", "groups", "own weights"])
def test_advice_in_clear_cases(kind):
    model = up.Pooling(random_state=0).fit(rows("normal", kind, (150,) * 8))
    assert model.recommended_ == kind
    assert model.losses_[kind]["difference"] <= 2 * model.losses_[kind]["difference_stderr"]
    assert model.model_
    assert model.reason_ in model.to_text()


def test_groups_are_found():
    model = up.Pooling("binomial", random_state=0).fit(rows("binomial", "groups", (200,) * 6))
    assert model.n_groups_ == 2
    groups = [s["group"] for s in model.sites_.values()]
    assert groups in ([0, 1] * 3, [1, 0] * 3)


def test_shift_of_x_alone_is_no_shift_of_the_law():
    data = rows("normal", sizes=(150,) * 6)
    moved = {}
    for i, (name, (x, y)) in enumerate(data.items()):
        far = np.array([0.5 * (i % 2), 0.0])
        moved[name] = (x + far, y + 0.8 * far[0])
    tests = up.Pooling(cv=None, random_state=0).fit(moved).tests_
    assert tests["P(x)"]["score"]["p_value"] < 1e-6
    assert tests["P(y | x)"]["lr"]["p_value"] > 0.01


def test_over_flower_masked_and_without_sites_only_sums_are_asked():
    data = rows("binomial", "own intercepts")
    here = up.Pooling("binomial", em_rounds=3, random_state=0).fit(data)
    fed = flower([Client(name, *d) for name, d in data.items()])
    there = up.Pooling("binomial", em_rounds=3, sites=False, random_state=0).fit(up.SecureSum(fed))
    assert there.sites_ == {}
    assert {e.kind for e in fed.journal.exchanges} <= {"sum", "keys"}
    assert not [e.question for e in fed.journal.exchanges if e.question.endswith("_by_site")]
    for strategy, found in here.losses_.items():
        assert there.losses_[strategy]["loss"] == pytest.approx(found["loss"], abs=1e-5)
    assert there.recommended_ == here.recommended_


def test_pages_say_what_was_given_and_got(case):
    *_, model = case
    page = model.page("site 1")
    for words in ("What you gave", "70 rows", "What you got", "alone", "What would change without you"):
        assert words in page
    figures = model.report_figures()
    assert "site 4" in figures["A page for each site"]
    with pytest.raises(BadParameter, match="nothing about site 'x'"):
        model.page("x")


def test_a_site_predicts_with_its_own_coefficients(case):
    family, data, model = case
    name, (x, y) = "site 0", data["site 0"]
    own = small_glm.log_density(family, _eta(family, model.predict(x, client=name)), y, 1.0).sum()
    common = small_glm.log_density(family, _eta(family, model.predict(x)), y, 1.0).sum()
    assert own > common
    with pytest.raises(BadParameter, match="no coefficients of client 'x'"):
        model.predict(x, client="x")


def _eta(family, mu):
    links = {"normal": lambda m: m, "binomial": lambda m: np.log(m / (1 - m)), "poisson": np.log}
    return links[family](mu)


def test_a_site_without_any_case_and_one_that_is_separated_take_part():
    data = rows("binomial")
    x, _ = data["site 0"]
    data["none"] = (x, np.zeros(len(x)))
    data["apart"] = (x, (x[:, 0] > 0).astype(float))
    model = up.Pooling("binomial", random_state=0).fit(data)
    assert all(np.isfinite(r["loss"]) for r in model.losses_.values())
    assert all(np.isfinite(t["p_value"]) for kinds in model.tests_.values() for t in kinds.values())


BAD = {
    "constant": (lambda x, y: (np.column_stack([x, np.ones(len(x))]), y), "column '2' has the same value in every row"),
    "twice": (lambda x, y: (np.column_stack([x, x[:, 0]]), y), "column '2' is a combination of the columns before it"),
    "thrice": (
        lambda x, y: (np.column_stack([x, x[:, 0], x[:, 1]]), y),
        "columns '2', '3' are combinations of the columns before them: leave them out",
    ),
    "missing": (
        lambda x, y: (np.where(x > 70, np.nan, x), y),
        "rows have missing values .most in column .*use missing='drop'",
    ),
    "words": (lambda x, y: (x, np.where(y > 1, "a", "b")), "not one number per row"),
    "negative": (lambda x, y: (x, y - 3), r"targets are not counts 0, 1, 2, \.\.\."),
    "no case": (lambda x, y: (x, 0 * y), "all targets are 0: there is nothing to learn"),
}


@pytest.mark.filterwarnings("ignore::unpooled.errors.DataWarning")
@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused_in_one_sentence(name):
    spoil, sentence = BAD[name]
    with pytest.raises(BadData, match=sentence):
        up.Pooling("poisson").fit({s: spoil(*d) for s, d in rows("poisson").items()})


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"family": "gamma"}, "family='gamma'"),
        ({"cv": 3}, "cv=3 must be 2, 5, 10 or None"),
        ({"max_groups": 1}, "max_groups=1"),
        ({"level": 2.0}, "level=2.0"),
    ],
)
def test_bad_parameters_are_refused(parameters, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.Pooling(**parameters).fit(rows("normal"))


def test_one_site_has_nobody_to_compare_with():
    with pytest.raises(BadParameter, match="only one site"):
        up.Pooling().fit({"a": rows("normal")["site 0"]})


def test_missing_rows_can_be_left_out():
    data = rows("normal")
    holes = {n: (np.where(x > 65, np.nan, x), y) for n, (x, y) in data.items()}
    whole = {n: (x[~np.isnan(x.sum(1))], y[~np.isnan(x.sum(1))]) for n, (x, y) in holes.items()}
    a = up.Pooling(missing="drop", cv=None, random_state=0).fit(holes)
    b = up.Pooling(cv=None, random_state=0).fit(whole)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-10)


def test_saved_it_says_the_same(case, tmp_path):
    *_, model = case
    assert up.load(model.save(tmp_path)).to_text() == model.to_text()
