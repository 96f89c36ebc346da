"""What scikit-learn's users expect of every public estimator, whatever it fits."""

import inspect
import pickle
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import unpooled as up
from unpooled.errors import BadData
from unpooled.estimator import Estimator

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::unpooled.errors.DataWarning"
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3)) * [1, 2, 3] + RNG.integers(0, 2, size=(90, 1)) * [4, 8, 12]
WORDS, TARGETS = np.where(X[:, 0] > 2, "high", "low"), X @ [1.0, -1.0, 0.5]
VISITS = np.column_stack([np.repeat(np.arange(8), 5), np.tile(np.arange(5), 8), RNG.poisson(4, 40)]).astype(float)
LIFE = np.column_stack([np.ceil(10 * np.exp(RNG.normal(size=90) - X[:, 0] / 4)), RNG.random(90) < 0.7])  # time, event
FAMILY = {"name": "gaussian", "n_components": 2}


class Case(NamedTuple):
    model: Estimator
    x: np.ndarray = X
    y: np.ndarray | None = None


CASES = {
    "GaussianMixture": Case(up.GaussianMixture(2, random_state=0)),
    "MixedMixture": Case(up.MixedMixture(2, random_state=0)),
    "FedEM": Case(up.FedEM(FAMILY, random_state=0, max_iter=3)),
    "VRFedEM": Case(up.VRFedEM(FAMILY, random_state=0, max_iter=3)),
    "FedMissEM": Case(up.FedMissEM(rank=1, family="poisson", max_iter=3), VISITS),
    "MixtureImputer": Case(up.MixtureImputer(1), np.where(RNG.random(X.shape) < 0.1, np.nan, X)),
    "FedGMM": Case(up.FedGMM(2, 2, max_iter=8, random_state=0), y=WORDS),
    "FedGEM": Case(up.FedGEM(2, random_state=0, max_iter=3)),
    "OpenMixture": Case(up.OpenMixture(max_local=3, random_state=0)),
    "BayesianRegression": Case(up.BayesianRegression(), y=TARGETS),
    "FedBNR": Case(up.FedBNR(n_frequencies=8, max_iter=3, random_state=0), y=TARGETS),
    "FedConceptEM": Case(up.FedConceptEM(2, max_iter=3, random_state=0), y=WORDS),
    "GLM": Case(up.GLM("gamma", link="log"), y=np.exp(0.1 * TARGETS)),
    "LinearRegression": Case(up.LinearRegression(), y=TARGETS),
    "LogisticRegression": Case(up.LogisticRegression(), y=WORDS),
    "Describe": Case(up.Describe()),
    "Cox": Case(up.Cox(), y=LIFE),
    "KaplanMeier": Case(up.KaplanMeier(), y=LIFE),
    "PCA": Case(up.PCA(2)),
    "Pooling": Case(up.Pooling(random_state=0, em_rounds=3), y=TARGETS + RNG.normal(size=90)),
}
METHODS = ("predict", "predict_proba", "score_samples", "transform", "impute", "novelty", "interval", "score", "adapt")
SPEAK = [name for name, case in CASES.items() if hasattr(case.model, "predict") or hasattr(case.model, "transform")]


def clients(case, kind=np.asarray):
    """The rows as three clients."""
    parts = {name: slice(i, None, 3) for i, name in enumerate("abc")}
    return {n: kind(case.x[s]) if case.y is None else (kind(case.x[s]), case.y[s]) for n, s in parts.items()}


def frame(x, order="uvw"):
    return pd.DataFrame(x, columns=list("uvw"))[list(order)]


def speak(model):
    return model.predict if hasattr(model, "predict") else model.transform


def test_every_public_estimator_is_here():
    assert set(CASES) == set(up.MODELS)


@pytest.fixture(params=CASES, name="case")
def case_(request):
    return CASES[request.param]


def test_what_is_not_fitted_says_so(case):
    asked = {m: getattr(clone(case.model), m) for m in METHODS if hasattr(case.model, m)}
    for method, ask in asked.items():
        with pytest.raises(NotFittedError):
            ask(case.x, case.y) if method == "score" and case.y is not None else ask(case.x)
    if hasattr(case.model, "conditional"):
        with pytest.raises(NotFittedError):
            clone(case.model).conditional(case.x, [0])


def test_what_is_said_of_a_model_is_what_was_changed(case):
    """Also where a class passes parameters on: help() shows all of them, repr() those that differ from the default."""
    kind = type(case.model)
    assert repr(kind()) == f"{kind.__name__}()"
    assert set(inspect.signature(kind).parameters) == set(kind().get_params())
    assert repr(kind(random_state=7)) == f"{kind.__name__}(random_state=7)"


def test_a_notebook_can_list_what_a_model_has(case):
    assert "fit" in dir(type(case.model)())


@pytest.mark.parametrize("name", SPEAK)
def test_pickled_saved_and_read_only_it_says_the_same(name, tmp_path):
    case = CASES[name]
    model = clone(case.model).fit(clients(case))
    x = case.x.copy()
    x.flags.writeable = False
    said = speak(model)(x)
    for other in (pickle.loads(pickle.dumps(model)), up.load(model.save(tmp_path / "model"))):
        np.testing.assert_array_equal(speak(other)(x), said)


def by_name(said):
    """An answer that is a frame like the one given, in the order of the fit; any other as it is."""
    return said[["u", "v", "w"]].to_numpy() if hasattr(said, "columns") else said


@pytest.mark.parametrize("name", [n for n in SPEAK if n != "FedMissEM"])
def test_columns_of_a_frame_are_taken_by_name(name):
    case = CASES[name]
    model = clone(case.model).fit(clients(case, frame))
    said = by_name(speak(model)(frame(case.x)))
    np.testing.assert_array_equal(by_name(speak(model)(frame(case.x, "wuv"))), said)
    np.testing.assert_array_equal(by_name(speak(model)(frame(case.x).assign(more="text"))), said)
    np.testing.assert_array_equal(speak(model)(case.x), said)
    with pytest.raises(BadData, match=r"no column 'w', which the model was fitted with"):
        speak(model)(frame(case.x, "uv"))


@pytest.mark.parametrize("name", SPEAK)
def test_rows_of_another_make_are_refused(name):
    case = CASES[name]
    model = clone(case.model).fit(clients(case))
    for bad in (case.x[:, :1], case.x[0], sparse.csr_matrix(np.nan_to_num(case.x)), np.full(case.x.shape, "a")):
        with pytest.raises((ValueError, TypeError)):
            speak(model)(bad)


def test_sparse_rows_are_refused_before_a_round(case):
    with pytest.raises(BadData, match=r"client 'a' is a sparse matrix: call .toarray\(\) on it first"):
        clone(case.model).fit(clients(case, lambda x: sparse.csr_matrix(np.nan_to_num(x))))


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [([[0.5, 1]], "row 0 is"), ([[0, 1], [8, 0]], "row 1 is"), ([[0, np.nan]], "row 0 is"), ([0, 1], "two columns")],
)
def test_cells_that_a_table_has_not_are_refused(cells, sentence):
    model = clone(CASES["FedMissEM"].model).fit(VISITS)
    with pytest.raises(BadData, match=sentence):
        model.predict(cells)
