"""Offsets of sites: found where clients are moved, none where they are not, and clusters are seen through them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.errors import DataWarning
from unpooled.models.open_mixture.questions import describe
from unpooled.models.open_mixture.site_offsets import find_offsets

CENTRES = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 1.0], [0.0, 5.0, -1.0], [5.0, 5.0, 0.0]])
NAMES = [f"c{i}" for i in range(10)]
OFFSETS = np.random.default_rng(1).normal(size=(10, 3))


def moved(offset, seed=0, skewed=False, n=100):
    """(data, classes): clients whose rows are moved in the first two columns."""
    rng = np.random.default_rng(seed)
    data, classes = {}, {}
    for name, own in zip(NAMES, OFFSETS * [1.0, 1.0, 0.0]):
        held = rng.choice(4, 2, replace=False) if skewed else np.arange(4)
        classes[name] = rng.choice(held, n)
        data[name] = CENTRES[classes[name]] + rng.normal(size=(n, 3)) + offset * own
    return data, classes


def index(model, classes):
    return adjusted_rand_score(*(np.concatenate([of[name] for name in NAMES]) for of in (classes, model.labels_)))


@pytest.mark.parametrize("skewed", [False, True])
def test_clusters_are_seen_through_offsets(skewed):
    data, classes = moved(0.6, skewed=skewed)
    with pytest.warns(DataWarning, match="sites differ as instruments do, in columns"):
        model = up.OpenMixture(random_state=0).fit(data)
    assert model.n_components_ == 4
    assert index(model, classes) > 0.93
    assert (model.site_offset_scale_[:2] > 0.3).all()
    assert model.site_offset_scale_[2] < 0.2
    found = np.stack([model.client_offsets_[name] for name in NAMES])
    truth = 0.6 * OFFSETS * [1.0, 1.0, 0.0]
    assert np.corrcoef((found - found.mean(0))[:, :2].ravel(), (truth - truth.mean(0))[:, :2].ravel())[0, 1] > 0.9


def test_where_sites_are_not_moved_there_are_no_offsets():
    data, classes = moved(0.0, skewed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = up.OpenMixture(random_state=0).fit(data)
    assert not model.site_offset_scale_.any()
    assert model.client_offsets_ == {}
    assert index(model, classes) > 0.95
    without = up.OpenMixture(random_state=0, site_offsets=False).fit(data)
    assert without.n_components_ == model.n_components_ == 4


def test_offsets_are_the_same_however_clients_are_asked():
    data, _ = moved(0.5, n=40)
    found = []
    for mode in ("stacked", "one by one"):
        fed = up.federate(data, mode=mode)
        ask = describe.using(max_local=6, max_centres=0, min_count=5)
        found.append(find_offsets(fed, fed.gather(ask, None), ask))
    assert_allclose(found[0].scale, found[1].scale, rtol=1e-8)
    assert_allclose(found[0].gain, found[1].gain, rtol=1e-8)
    assert found[0].gain > found[0].stderr


@pytest.mark.slow
def test_certainty_never_contradicts_the_number_of_clusters():
    for offset, skewed in ((0.0, False), (0.0, True), (0.6, True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            model = up.OpenMixture(random_state=1).fit(moved(offset, 5, skewed)[0])
        assert max(model.certainty_, key=model.certainty_.get) == str(model.n_components_)
        assert sum(model.certainty_.values()) == pytest.approx(1.0)


def test_a_saved_model_keeps_the_offsets(tmp_path):
    data, _ = moved(0.6)
    with pytest.warns(DataWarning, match="sites differ"):
        model = up.OpenMixture(random_state=0).fit(data)
    model.save(tmp_path)
    again = up.load(tmp_path)
    for name in NAMES:
        np.testing.assert_array_equal(again.predict(data[name], client=name), model.labels_[name])
