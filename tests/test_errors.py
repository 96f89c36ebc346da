"""Errors can be caught by their base class or as built-in exceptions, and typos get a suggestion."""

from typing import NamedTuple

import numpy as np
import pytest

import unpooled as up
from unpooled import errors, store
from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter, DataNotFound, TooFewClients
from unpooled.estimator import Estimator


class Total(NamedTuple):
    n: Float[Array, ""]


@pytest.mark.parametrize(
    ("refusal", "builtin"),
    [
        (errors.BadData, ValueError),
        (errors.BadParameter, ValueError),
        (errors.DataNotFound, FileNotFoundError),
        (errors.TooFewClients, RuntimeError),
        (errors.RunError, RuntimeError),
        (errors.MaskingRefused, RuntimeError),
    ],
)
def test_every_error_is_ours_and_a_builtin(refusal, builtin):
    assert issubclass(refusal, errors.UnpooledError)
    assert issubclass(refusal, builtin)
    assert str(refusal("one sentence")) == "one sentence"


def test_suggestions():
    assert errors.suggest("AGE", ["chol", "age"]) == "did you mean 'age'?"
    assert errors.suggest("n_component", ["n_components", "tol"]) == "did you mean 'n_components'?"
    assert errors.suggest("zzz", ["chol", "age"]) == "known: 'chol', 'age'"
    assert errors.suggest("zzz", [f"c{i}" for i in range(12)]).endswith("'c9', ...")
    assert errors.suggest("zzz", []) == "there are none"


# ---- models and questions of one's own ----


def questions_of_ones_own():
    return up.federate({"a": np.arange(6.0).reshape(3, 2), "b": np.arange(8.0).reshape(4, 2)})


def test_a_question_without_annotations_says_what_it_lacks():
    @client("test.unannotated", SUM)
    def unannotated(down, client):
        return None

    with pytest.raises(
        TypeError, match="unannotated does not say what it sends and gets: annotate it as def unannotated"
    ):
        questions_of_ones_own().sum(unannotated, None)


def test_a_mistake_in_a_question_is_told_with_its_kind():
    @client("test.mistaken", SUM)
    def mistaken(down: None, client: Client) -> Total:
        return client.state["never stored"]

    with pytest.raises(TooFewClients, match="last refusal: b, KeyError: 'never stored'"):
        questions_of_ones_own().sum(mistaken, None)


def test_a_step_that_gives_no_info_and_a_model_without_max_iter_say_so():
    class Forgetful(Estimator):
        def __init__(self, random_state=None):
            self.random_state = random_state

        def init(self, fed, rng):
            return ()

        def step(self, fed, state):
            return state

    class Hasty(Forgetful):
        max_iter = 3

    with pytest.raises(BadParameter, match="Forgetful has no max_iter: keep one in __init__, or give the class one"):
        Forgetful().fit(questions_of_ones_own())
    with pytest.raises(TypeError, match=r"Hasty.step should return \(state, info\)"):
        Hasty().fit(questions_of_ones_own())


def test_an_unknown_parameter_of_federate_suggests_the_nearest():
    with pytest.raises(BadParameter, match=r"federate has no parameter 'njobs': did you mean 'n_jobs'\?"):
        up.federate({"a": np.arange(3.0)[:, None]}, njobs=2)


def test_a_saved_model_of_ones_own_says_that_its_module_is_needed(tmp_path):
    folder = up.PCA(n_components=1).fit(questions_of_ones_own()).save(tmp_path / "model")
    saved = store.read(folder / "model.zip")
    store.write(folder / "model.zip", saved | {"model": saved["model"] | {"class": "median:GeometricMedian"}})
    with pytest.raises(DataNotFound, match=r"'median:GeometricMedian' .*: import the module that defines it first"):
        up.load(folder)


@pytest.mark.parametrize("estimator", [up.PCA(), up.MixtureImputer()], ids=lambda model: type(model).__name__)
def test_clients_are_refused_by_fit_transform_before_the_fit(estimator):
    rng = np.random.default_rng(0)
    with pytest.raises(BadData, match="takes new rows as one table and not as clients"):
        estimator.fit_transform({name: rng.normal(size=(20, 2)) for name in "ab"})
    assert not hasattr(estimator, "n_features_in_")
    x = rng.normal(size=(60, 3))
    assert estimator.fit_transform(x).shape[0] == 60
