"""GaussianMixture against scikit-learn's on the pooled rows, and what it adds: missing values, personal weights, several K at once."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Pooled
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import unpooled as up
from unpooled.data import synthetic
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter

SHAPES = ("full", "tied", "diag", "spherical")


def table(n=1500, d=4, k=3, seed=0, **options):
    drawn = synthetic.mixture(n, k, d, separation=2.0, clients=1, random_state=seed, **options)
    return next(iter(drawn.clients.values()))


def given(x, shape, k=3, seed=0):
    rng, d = np.random.default_rng(seed), x.shape[1]
    eye = {"full": np.tile(np.eye(d), (k, 1, 1)), "tied": np.eye(d), "diag": np.ones((k, d)), "spherical": np.ones(k)}[
        shape
    ]
    means = x[rng.choice(len(x), k, replace=False)]
    return {"weights_init": np.array([0.2, 0.3, 0.5]), "means_init": means, "precisions_init": eye * 0.7}


def ragged(x, clients, seed=0):
    owner = np.random.default_rng(seed).dirichlet(np.full(clients, 0.8)).cumsum()
    labels = np.searchsorted(owner, np.random.default_rng(seed + 1).random(len(x))).clip(max=clients - 1)
    return {f"c{i}": x[labels == i] for i in np.unique(labels)}


def apart(ours, theirs):
    pairs = (
        (getattr(ours, a), getattr(theirs, a))
        for a in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")
    )
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("clients", [1, 7, 300])
@pytest.mark.parametrize("rounds", [5, 50])
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_to_scikit_learn_from_the_same_start(shape, rounds, clients):
    x = table()
    settings = {"n_components": 3, "covariance_type": shape, "tol": 0.0, "max_iter": rounds, **given(x, shape)}
    ours, theirs = up.GaussianMixture(**settings).fit(ragged(x, clients)), Pooled(**settings).fit(x)
    assert apart(ours, theirs) < 1e-8
    assert ours.n_iter_ == theirs.n_iter_ == rounds
    np.testing.assert_allclose(ours.lower_bound_, theirs.lower_bound_, rtol=1e-10)
    np.testing.assert_allclose(ours.score_samples(x), theirs.score_samples(x), rtol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-8)
    np.testing.assert_allclose(
        [ours.bic(x), ours.aic(x), ours.score(x)], [theirs.bic(x), theirs.aic(x), theirs.score(x)], rtol=1e-10
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_far_from_the_origin_nothing_is_lost(shape):
    x = table()
    start, moved = given(x, shape), given(x, shape)
    moved["means_init"] = start["means_init"] + 1e6
    settings = {"n_components": 3, "covariance_type": shape, "tol": 0.0, "max_iter": 50, "reg_covar": 1e-6}
    here = up.GaussianMixture(**settings, **start).fit(ragged(x, 7))
    there = up.GaussianMixture(**settings, **moved).fit(ragged(x + 1e6, 7))
    np.testing.assert_allclose(there.means_ - 1e6, here.means_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.covariances_, here.covariances_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.weights_, here.weights_, rtol=1e-6)


@parametrize_with_checks([up.GaussianMixture(), up.GaussianMixture(n_components=2, accelerate=True)])
def test_scikit_learns_own_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_in_a_pipeline():
    pipe = make_pipeline(StandardScaler(), up.GaussianMixture(3, random_state=0)).fit(table())
    assert pipe.predict(table()).shape == (1500,)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_of_rows_count_as_repetitions():
    x = table(300)
    w = np.random.default_rng(0).integers(0, 4, len(x))
    settings = {"n_components": 3, "tol": 0.0, "max_iter": 20, **given(x, "full")}
    weighted = up.GaussianMixture(**settings).fit(x, sample_weight=w)
    repeated = up.GaussianMixture(**settings).fit(np.repeat(x, w, axis=0))
    assert apart(weighted, repeated) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_auto_finds_the_number_of_components(missing):
    drawn = synthetic.mixture(3000, 4, 3, separation=6.0, clients=5, missing=missing, random_state=1)
    found = up.GaussianMixture("auto", random_state=0).fit(drawn.clients)
    assert found.n_components_ == 4
    assert min(found.bics_, key=found.bics_.get) == 4
    assert len(found.bics_) == 10


def test_missing_values_recover_the_truth():
    drawn = synthetic.mixture(20_000, 3, 3, separation=6.0, clients=5, missing=0.3, random_state=2)
    found = up.GaussianMixture(3, random_state=0, tol=1e-6).fit(drawn.clients)
    order = [int(np.argmin(((found.means_ - m) ** 2).sum(1))) for m in drawn.means]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(found.weights_[order], drawn.weights, atol=0.02)
    np.testing.assert_allclose(
        found.covariances_[order], drawn.covariances, atol=0.12 * np.abs(drawn.covariances).max()
    )


def test_impute_and_conditional_agree_with_the_textbook():
    drawn = synthetic.mixture(2000, 2, 3, clients=2, random_state=3)
    gm = up.GaussianMixture(2, random_state=0).fit(drawn.clients)
    x = np.concatenate(list(drawn.clients.values()))[:20].copy()
    truth = x.copy()
    x[:, 1] = np.nan
    given_, filled = [0, 2], gm.impute(x)
    np.testing.assert_array_equal(filled[:, given_], x[:, given_])
    r = np.stack(
        [
            w * multivariate_normal(m[given_], c[np.ix_(given_, given_)]).pdf(x[:, given_])
            for w, m, c in zip(gm.weights_, gm.means_, gm.covariances_)
        ],
        1,
    )
    r /= r.sum(1, keepdims=True)
    gains = [c[1, given_] @ np.linalg.inv(c[np.ix_(given_, given_)]) for c in gm.covariances_]
    means = np.stack([m[1] + (x[:, given_] - m[given_]) @ g for m, g in zip(gm.means_, gains)], 1)
    variances = np.array([c[1, 1] - g @ c[given_, 1] for c, g in zip(gm.covariances_, gains)])
    np.testing.assert_allclose(filled[:, 1], (r * means).sum(1), rtol=1e-10)
    told = gm.conditional(truth, [1])
    np.testing.assert_allclose(told.mean[:, 0], filled[:, 1], rtol=1e-10)
    expected = (r * (variances + means**2)).sum(1) - filled[:, 1] ** 2
    np.testing.assert_allclose(told.covariance[:, 0, 0], expected, rtol=1e-8)


def test_personal_weights_fit_each_client_and_stay_there():
    drawn = synthetic.mixture(3000, 3, 2, separation=6.0, clients=6, alpha=0.3, random_state=4)
    gm = up.GaussianMixture(3, personal_weights=True, random_state=0, tol=1e-6).fit(drawn.clients)
    plain = up.GaussianMixture(3, random_state=0, tol=1e-6).fit(drawn.clients)
    assert set(gm.personal_) == set(drawn.clients)
    for name, x in drawn.clients.items():
        np.testing.assert_allclose(gm.personal_[name].weights_.sum(), 1.0)
        np.testing.assert_allclose(gm.personal_[name].weights_, gm.predict_proba(x, client=name).mean(0), atol=2e-3)
        np.testing.assert_allclose(gm.adapt(x).weights_, gm.personal_[name].weights_, atol=2e-3)
        assert gm.personal_[name].score(x) >= plain.score(x) - 1e-6
    with pytest.raises(BadParameter, match="client-7"):
        gm.predict(x, client="client-7")


def test_acceleration_takes_fewer_rounds_to_the_same_likelihood():
    x = synthetic.mixture(5000, 4, 3, separation=1.2, clients=5, random_state=5).clients
    settings = {"n_components": 4, "random_state": 0, "max_iter": 3000}
    plain = up.GaussianMixture(**settings, tol=1e-9).fit(x)
    fast = up.GaussianMixture(**settings, tol=1e-9, accelerate=True).fit(x)
    assert fast.lower_bound_ >= plain.lower_bound_ - 1e-6
    assert fast.n_iter_ < plain.n_iter_ / 2


def test_empty_components_are_reseeded_with_a_warning():
    x = table(500, 2)
    start = {
        "means_init": np.array([[0.0, 0.0], [1.0, 1.0], [1e6, 1e6]]),
        "weights_init": np.full(3, 1 / 3),
        "precisions_init": np.tile(np.eye(2), (3, 1, 1)),
    }
    with pytest.warns(ConvergenceWarning, match="re-seeded"):
        gm = up.GaussianMixture(3, max_iter=200, **start).fit(x)
    assert (gm.weights_ > 1e-3).all()
    assert np.isfinite(gm.means_).all()


def test_not_converged_is_a_warning_with_advice():
    with pytest.warns(ConvergenceWarning, match="increase max_iter.*accelerate=True"):
        up.GaussianMixture(3, max_iter=2, tol=1e-12, random_state=0).fit(table())


def test_warm_start_goes_on_from_where_it_was():
    x = ragged(table(), 5)
    settings = {"n_components": 3, "tol": 0.0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = up.GaussianMixture(**settings, max_iter=10).fit(x)
        halves = up.GaussianMixture(**settings, max_iter=5, warm_start=True).fit(x).fit(x)
    assert apart(halves, whole) < 1e-10


def test_several_starts_are_no_worse_than_one():
    x = table(seed=6)
    one = up.GaussianMixture(3, random_state=1, init_params="random", tol=1e-6, max_iter=1000).fit(x)
    many = up.GaussianMixture(3, random_state=1, init_params="random", n_init=8, tol=1e-6, max_iter=1000).fit(x)
    assert many.lower_bound_ >= one.lower_bound_ - 1e-9


def test_sample_draws_from_the_model():
    gm = up.GaussianMixture(3, random_state=0).fit(table())
    x, y = gm.sample(50_000)
    np.testing.assert_allclose(np.bincount(y) / len(y), gm.weights_, atol=0.01)
    np.testing.assert_allclose(x.mean(0), gm.weights_ @ gm.means_, atol=0.1)


def test_a_start_without_gather_sends_sums_only():
    fed = federate(ragged(table(), 5))
    up.GaussianMixture(3, init_params="random", random_state=0).fit(fed)
    assert {e.kind for e in fed.journal.exchanges} == {"sum"}


def test_small_local_clusters_do_not_leave_for_the_start():
    from unpooled.models.initialization import Frame, local_centres

    x = np.concatenate([np.zeros((20, 2)), np.full((2, 2), 9.0)]) + np.random.default_rng(0).normal(0, 0.01, (22, 2))
    fed = federate({"a": x, "b": x})
    frame = Frame(np.zeros(2), np.ones(2), np.array(44.0))
    for answer in fed.gather(local_centres.using(k=2, min_count=5), frame).values():
        assert answer.n.min() >= 5
        assert np.abs(answer.x).max() < 1


@pytest.mark.parametrize(
    ("parameter", "sentence"),
    [
        ({"covariance_type": "ful"}, "covariance_type='ful' is not known"),
        ({"n_components": 0}, "at least 1"),
        ({"n_components": "many"}, "give a number, a list of numbers or 'auto'"),
        ({"n_components": 10_000}, "more than n_samples=1500"),
        ({"max_iter": -1}, "max_iter=-1 must be at least 0"),
        ({"tol": -1.0}, "tol=-1.0 must be at least 0"),
        ({"fraction": 1.5}, "fraction=1.5"),
        ({"means_init": np.zeros((2, 4)), "n_components": 3}, "means_init"),
        ({"solver": "newton"}, "solver='newton' is not known"),
    ],
)
def test_bad_parameters_are_one_sentence(parameter, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.GaussianMixture(**{"n_components": 2, **parameter}).fit(table())


def test_torch_in_torch_out_and_equal():
    torch = pytest.importorskip("torch")
    x = table()
    settings = {"n_components": 3, "tol": 0.0, "max_iter": 20, **given(x, "full")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = up.GaussianMixture(**settings).fit({k: torch.as_tensor(v) for k, v in ragged(x, 5).items()})
        reference = up.GaussianMixture(**settings).fit(ragged(x, 5))
    assert isinstance(ours.means_, torch.Tensor)
    assert isinstance(ours.predict_proba(torch.as_tensor(x)), torch.Tensor)
    for a in ("weights_", "means_", "covariances_", "precisions_"):
        np.testing.assert_allclose(getattr(ours, a).numpy(), getattr(reference, a), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.score_samples(torch.as_tensor(x)).numpy(), reference.score_samples(x), rtol=1e-8)
    np.testing.assert_array_equal(ours.predict(torch.as_tensor(x)).numpy(), reference.predict(x))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_fedem_with_nothing_left_to_chance_is_plain_em(shape):
    x = table()
    settings = {"n_components": 3, "covariance_type": shape, "tol": 0.0, "max_iter": 20, **given(x, shape)}
    exact = up.GaussianMixture(**settings).fit(ragged(x, 7))
    fedem = up.GaussianMixture(**settings, solver="fedem").fit(ragged(x, 7))
    assert apart(fedem, exact) < 1e-9
    np.testing.assert_allclose(fedem.lower_bound_, exact.lower_bound_, rtol=1e-12)


@pytest.mark.parametrize("solver", ["fedem", "vr-fedem"])
def test_the_stochastic_solvers_send_less_and_come_near(solver):
    x = synthetic.mixture(6000, 3, 4, separation=5.0, clients=10, random_state=8).clients
    exact = up.GaussianMixture(3, random_state=0, tol=1e-6).fit(x)
    options = {"levels": 3} if solver == "fedem" else {"batch_size": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        less = up.GaussianMixture(3, random_state=0, solver=solver, solver_options=options, max_iter=30).fit(x)
    rows = np.concatenate(list(x.values()))
    assert less.score(rows) > exact.score(rows) - 0.02
    if solver == "fedem":
        # the last round also confirms that it has converged
        usual = np.median([row["bytes_up"] for row in less.history_])
        assert usual < exact.history_[-1]["bytes_up"] / 8


def test_an_unknown_option_of_the_solver_suggests_the_right_one():
    with pytest.raises(BadParameter, match="did you mean 'levels'"):
        up.GaussianMixture(2, solver="fedem", solver_options={"level": 3}).fit(table())


def test_clients_are_no_new_rows():
    sites = {"a": np.random.default_rng(0).normal(size=(40, 2)), "b": np.random.default_rng(1).normal(size=(30, 2))}
    message = "GaussianMixture takes new rows as one table and not as clients: call it for each client"
    fitted = up.GaussianMixture(2, random_state=0).fit(sites)
    for wrong in (sites, up.federate(sites)):
        with pytest.raises(BadData, match=message):
            fitted.predict(wrong)
    unfitted = up.GaussianMixture(2, random_state=0)
    with pytest.raises(BadData, match=message):
        unfitted.fit_predict(sites)
    assert not hasattr(unfitted, "means_")  # refused before any work


def test_without_personal_weights_a_client_has_none():
    fitted = up.GaussianMixture(2, random_state=0).fit({"a": np.random.default_rng(0).normal(size=(40, 2))})
    with pytest.raises(BadParameter, match="'a': leave out client=, or fit with personal_weights=True"):
        fitted.predict(np.zeros((1, 2)), client="a")
