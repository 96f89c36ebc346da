"""Mixtures over `Compressed`: `GaussianMixture` is fitted by FedEM, others warn of columns in unlike units."""

import numpy as np
import pytest

import unpooled as up
from unpooled.errors import DataWarning
from unpooled.layers.followed import Followed
from unpooled.models.initialization import is_rounded

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0, 0.0], [4.0, 3.0, 0.0], [-3.0, 2.0, 7.0]])
X = np.concatenate([centre + RNG.normal(size=(150, 3)) for centre in CENTRES])
BY_PLACE = np.repeat(np.arange(6), 75)  # rows are in the order of their components: clients are unlike


def plain():
    return up.federate(X, by=BY_PLACE)


@pytest.mark.parametrize("options", [{"levels": 1}, {"levels": 7}, {"quantiser": "cast"}], ids=str)
def test_a_mixture_of_columns_in_any_units_ends_where_the_uncompressed_one_does(options):
    units = 100.0 ** np.arange(X.shape[1])
    rows = up.federate(X * units, by=BY_PLACE)
    exact = up.GaussianMixture(3, random_state=0).fit(rows)
    model = up.GaussianMixture(3, random_state=0).fit(up.Compressed(rows, **options))
    assert model.converged_
    assert model.score(X * units) > exact.score(X * units) - 0.01


@pytest.mark.parametrize("options", [{"n_components": [1, 2]}, {"n_components": 2, "personal_weights": True}], ids=str)
def test_what_cannot_be_fitted_inside_the_layer_is_refused(options):
    with pytest.raises(ValueError, match="that is Compressed is fitted by FedEM, which fits one n_components"):
        up.GaussianMixture(**options).fit(up.Compressed(plain()))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", [up.MixedMixture(2), up.FedGMM(2, max_iter=6)], ids=str)
def test_other_models_warn_of_columns_in_unlike_units(model):
    def fit(units):
        half = len(X) // 2
        x = X / X.std(0) * units
        clients = {"a": x[:half], "b": x[half:]}
        labelled = {name: (own, own[:, 0] > np.median(own[:, 0])) for name, own in clients.items()}
        model.fit(up.Compressed(up.federate(labelled if isinstance(model, up.FedGMM) else clients), levels=7))

    fit(1.0)  # warnings are errors
    with pytest.warns(DataWarning, match="Compressed rounds their sums together"):
        fit(100.0 ** np.arange(X.shape[1]))


def test_nodes_that_follow_a_study_are_asked_the_questions_of_em():
    assert is_rounded(up.Compressed(plain()))
    assert not is_rounded(Followed(up.Compressed(plain())))
    assert not is_rounded(up.Compressed(plain(), quantiser="identity"))


def test_a_resumed_mixture_inside_the_layer_ends_with_the_same_bits():
    settings = {"n_components": 3, "tol": 0, "max_iter": 8, "random_state": 0}
    model, again = up.GaussianMixture(**settings), up.GaussianMixture(**settings)
    moments = list(model.rounds(up.Compressed(plain(), levels=3)))
    list(again.rounds(up.Compressed(plain(), levels=3), saved=moments[4]))
    np.testing.assert_array_equal(again.means_, model.means_)
