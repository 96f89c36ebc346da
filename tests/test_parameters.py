"""Parameters of the wrong type are refused in one sentence."""

import numpy as np
import pytest
from sklearn.base import RegressorMixin

import unpooled as up
from unpooled import parameters
from unpooled.errors import BadParameter

X = {"a": np.arange(8.0).reshape(4, 2), "b": np.arange(6.0).reshape(3, 2)}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"tol": "abc"}, "tol='abc' should be a number"),
        ({"max_iter": 2.5}, "max_iter=2.5 should be a whole number"),
        ({"max_iter": True}, "max_iter=True should be a whole number"),
        ({"personal_weights": "maybe"}, "personal_weights='maybe' should be true or false"),
        ({"n_components": 2.5}, "n_components=2.5 should be a whole number or a list or a string"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(parameters, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.GaussianMixture(**parameters).fit(X)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.int64(3), "int"),
        (np.float32(3), "float"),
        (3, "float"),
        (None, "float | None"),
        (np.bool_(True), "bool"),
        ((3, 4), "Sequence[int]"),
        (np.arange(2), "int | Sequence[int]"),
        ({"a": 1}, "int | Mapping[str, int] | str"),
        ("anything", "Any"),
        (object(), "int | SomethingElse"),
    ],
)
def test_numpy_values_and_unknown_annotations_pass(value, kind):
    parameters.check_types({"p": value}, {"p": kind})


def test_parameters_passed_on_to_a_base_class_are_checked():
    found = parameters.annotations_of(up.FedGMM)
    assert (found["n_learners"], found["lr"]) == ("int | str", "float | str")


LABELLED = {name: (x, np.arange(len(x)) % 2) for name, x in X.items()}
ESTIMATORS = {
    up.GaussianMixture: X,
    up.FedEM: X,
    up.VRFedEM: X,
    up.FedGEM: X,
    up.OpenMixture: X,
    up.MixedMixture: X,
    up.MixtureImputer: X,
    up.FedGMM: LABELLED,
    up.FedConceptEM: LABELLED,
    up.FedBNR: LABELLED,
    up.LogisticRegression: LABELLED,
}
for name in up.baselines.__all__:
    cls = getattr(up.baselines, name)
    ESTIMATORS[cls] = LABELLED if "learner" in cls().get_params() or issubclass(cls, RegressorMixin) else X


def numbers(estimator):
    """Names of the parameters whose defaults are numbers, and of those that may be one in place of "auto"."""
    of_class = parameters.annotations_of(estimator)
    return [
        name
        for name, default in estimator().get_params(deep=False).items()
        if parameters.is_number(default) or (default == "auto" and "float" in of_class.get(name, ""))
    ]


@pytest.mark.parametrize(
    ("estimator", "name"),
    [(e, name) for e in ESTIMATORS for name in numbers(e)],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_nan_is_refused_before_a_fit_begins(estimator, name):
    with pytest.raises(BadParameter, match=name):
        estimator(**{name: float("nan")}).fit(ESTIMATORS[estimator])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_numbers_below_the_least_that_means_something_are_refused(estimator):
    least = {**parameters.LEAST, **getattr(estimator, "minima", {})}
    for name in set(least) & set(estimator().get_params(deep=False)):
        with pytest.raises(BadParameter, match=f"{name}={least[name] - 1}"):
            estimator(**{name: least[name] - 1}).fit(ESTIMATORS[estimator])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"norm": "batch"}, "norm='batch' is not known: use one of 'group', 'average', 'local'"),
        ({"schedule": "cosin"}, "schedule='cosin' is not known: did you mean 'cosine'"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 must be a number of 0 or more"),
        ({"fraction": 2}, "fraction=2 must be above 0 and at most 1"),
    ],
)
def test_learners_refuse_what_no_training_can_use(given, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.baselines.FedAvg(**given).fit(LABELLED)
