"""Parameters of the wrong type are refused in one sentence."""

import numpy as np
import pytest

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
