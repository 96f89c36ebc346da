"""The default start of mixtures: the same model however rows are split, and no collapsed component wins by BIC."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import unpooled as up
from unpooled.data.federate import federate
from unpooled.errors import BadParameter
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.mixture.em import collapsed, narrow

X, Y = load_iris(return_X_y=True)
SPLITS = {
    "one client": {"all": X},
    "by class": {f"class {k}": X[k == Y] for k in range(3)},
    "by rows": {f"part {i}": X[i::7] for i in range(7)},
    "by halves": {"first": X[:75], "second": X[75:]},
    "one row per client": {f"row {i:03d}": X[i : i + 1] for i in range(len(X))},
}


def numbers(model):
    return np.concatenate([np.ravel(a) for a in (model.weights_, model.means_, model.covariances_)])


def largest_difference(fits):
    first = numbers(fits[0])
    return max(np.abs(numbers(fit) - first).max() for fit in fits[1:])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_components", [3, [1, 2, 3]])
def test_iris_in_five_splits_is_one_model(n_components):
    fits = [up.GaussianMixture(n_components, random_state=0).fit(clients) for clients in SPLITS.values()]
    assert len({fit.n_components_ for fit in fits}) == 1
    assert largest_difference(fits) < 1e-8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_missing_values_in_five_splits_are_one_model():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(150, 3)) @ np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]]) + 4.0 * rng.integers(
        2, size=(150, 1)
    )
    x[rng.random(x.shape) < 0.1] = np.nan
    fits = [
        up.GaussianMixture(2, max_iter=30, random_state=0).fit(x, by=np.arange(150) // rows)
        for rows in (150, 75, 50, 30, 10)
    ]
    assert largest_difference(fits) < 1e-8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shape", ["tied", "diag", "spherical"])
def test_every_shape_is_one_model(shape):
    settings = {"covariance_type": shape, "n_init": 2, "random_state": 1}
    fits = [up.GaussianMixture(4, **settings).fit(clients) for clients in SPLITS.values()]
    assert largest_difference(fits) < 1e-8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_imputer_is_one_model_with_gaps():
    gone = np.random.default_rng(0).random(X.shape) < 0.15
    gone[:, 0] = False
    table = np.where(gone, np.nan, X)
    splits = ({"all": table}, {f"c{i}": table[i::5] for i in range(5)}, {f"class {k}": table[k == Y] for k in range(3)})
    fits = [up.MixtureImputer(3, prior=4.0).fit(clients) for clients in splits]
    assert largest_difference(fits) < 1e-8


def test_no_default_start_gathers():
    models = (up.GaussianMixture(3, random_state=0, tol=1e-2), up.MixtureImputer(2, prior=1.0))
    for model in models:
        fed = federate(SPLITS["by class"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(fed)
        assert {e.kind for e in fed.journal.exchanges} == {"sum"}


def test_the_gathered_start_stays_by_choice():
    fed = federate(SPLITS["by rows"])
    up.GaussianMixture(2, init_params="gather", random_state=0).fit(fed)
    assert "gather" in {e.kind for e in fed.journal.exchanges}


@pytest.mark.parametrize(
    "model", [up.GaussianMixture(2), up.FedEM({"name": "gaussian"}), up.MixtureImputer(2), up.FedGMM(2, 2)]
)
def test_an_unknown_start_is_refused(model):
    data = {"a": (X, Y)} if isinstance(model, up.FedGMM) else {"a": X}
    with pytest.raises(BadParameter, match="init_params='kmean'"):
        model.set_params(init_params="kmean").fit(data)


# ---- collapsed components ----


def mixture_of(covs):
    return Params(np.array([0.5, 0.5]), np.array([[0.0, 0.0], [3.0, 1.0]]), gaussian.pack_covs(np.array(covs), "full"))


def test_a_component_without_variance_of_its_own_has_collapsed():
    reg, eye = 1e-6, np.eye(2)
    flat = np.diag([1.0, 0.0]) + reg * eye
    np.testing.assert_array_equal(collapsed(mixture_of([eye, flat]), "full", reg), [False, True])
    np.testing.assert_array_equal(collapsed(mixture_of([eye, eye / 100]), "full", reg), [False, False])


def test_a_column_that_is_constant_for_all_is_no_collapse():
    reg = 1e-6
    both = np.diag([1.0, 0.0]) + reg * np.eye(2)
    params = Params(
        np.array([0.5, 0.5]), np.array([[0.0, 7.0], [3.0, 7.0]]), gaussian.pack_covs(np.array([both] * 2), "full")
    )
    assert not collapsed(params, "full", reg).any()


def test_units_do_not_make_a_collapse():
    factor = np.array([1e-4, 1e4])
    square = np.outer(factor, factor)
    params = mixture_of([np.eye(2), 0.01 * np.eye(2)])
    scaled = params._replace(
        means=params.means * factor, covs=gaussian.pack_covs(gaussian.unpack_covs(params.covs, "full") * square, "full")
    )
    assert not collapsed(scaled, "full", 0.0).any()


def repeated_values():
    """One cluster, and a tenth of the rows with one column at exactly the same value."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    x[:60, 1] = 0.5
    return x


def test_a_collapsed_candidate_does_not_win_by_bic_and_the_warning_says_so():
    x = repeated_values()
    with pytest.warns(
        ConvergenceWarning, match="no variance beyond reg_covar, so that its BIC means nothing: 1 were chosen"
    ):
        model = up.GaussianMixture([1, 2], tol=1e-6, max_iter=300, n_init=3, random_state=0).fit({"a": x})
    assert model.n_components_ == 1
    assert model.bics_[2] < model.bics_[1]


def test_a_single_collapsed_fit_warns():
    with pytest.warns(ConvergenceWarning, match="no variance beyond reg_covar in some direction: lower n_components"):
        up.GaussianMixture(2, tol=1e-6, max_iter=300, n_init=3, random_state=0).fit({"a": repeated_values()})


def test_the_warning_names_the_columns_without_variance():
    x = repeated_values()
    frame = pd.DataFrame({"bill": x[:, 0], "year": x[:, 1]})
    with pytest.warns(ConvergenceWarning, match=r"no variance beyond .* \(in column 'year'\)"):
        up.GaussianMixture(2, tol=1e-6, max_iter=300, n_init=3, random_state=0).fit({"a": frame})
    with pytest.warns(ConvergenceWarning, match=r"no variance beyond .* \(in column 'year'\)"):
        up.MixedMixture(2, tol=1e-6, max_iter=300, n_init=3, random_state=0).fit({"a": frame})
    flat = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) + 1e-6 * np.eye(3)
    plane = Params(np.array([0.5, 0.5]), np.zeros((2, 3)), gaussian.pack_triangle(np.stack([np.eye(3), flat])))
    assert narrow(plane, "full", 1e-6, ["a", "b", "c"]) == "in a combination of columns 'a', 'b'"
