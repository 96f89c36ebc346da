"""Offsets of sites: found where clients are moved, none where they are not, and clusters are seen through them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.errors import DataWarning
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.candidates import GAUSSIANS
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import GOLDEN_RATIO
from unpooled.models.open_mixture.descriptions import describe
from unpooled.models.open_mixture.initial import gaussian_candidate, split_along
from unpooled.models.open_mixture.questions import FACTOR
from unpooled.models.open_mixture.site_offsets import find_offsets
from unpooled.models.open_mixture.site_questions import Reference, _first_move, align, check_offsets

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


@pytest.mark.parametrize("skewed", [pytest.param(False, marks=pytest.mark.slow), True])
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


def test_clusters_are_seen_through_offsets_of_correlated_columns():
    """Offsets are long beside the narrow directions of the clusters, and clients differ in weights along a wide one."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(2, 12))
    centres = np.array([[-1.6, 0.0], [1.6, 0.5]]) @ loadings
    classes = {name: (rng.random(60) < share).astype(int) for name, share in zip(NAMES, rng.beta(0.5, 0.5, 10))}
    data = {
        name: centres[y]
        + rng.normal(size=(60, 2)) @ loadings
        + 0.3 * rng.normal(size=(60, 12))
        + 0.5 * rng.normal(size=12)
        for name, y in classes.items()
    }
    with pytest.warns(DataWarning, match="sites differ as instruments do"):
        model = up.OpenMixture(random_state=0).fit(data)
    assert index(model, classes) > 0.6


def test_where_clients_have_their_own_weights_differences_along_the_means_are_no_offsets():
    params = Params(
        np.array([0.5, 0.5]), np.array([[-3.0, 0.0], [3.0, 0.0]]), gaussian.pack_triangle(np.stack([np.eye(2)] * 2))
    )
    variance = np.full(2, 0.09)
    own = Reference(Proposal(params, np.zeros((0, 2))), variance, np.zeros(2), np.zeros(2))
    x = np.array([[1.0, 0.4], [3.0, 0.6]])
    first = _first_move(own, x, np.ones(2), None).offset
    assert_allclose(first, [2.0 * 0.09 / (0.09 + 9.0), 0.5], rtol=1e-10)
    common = own._replace(proposal=own.proposal._replace(topics=params.weights[None]))
    assert_allclose(_first_move(common, x, np.ones(2), None).offset, [2.0, 0.5], rtol=1e-12)


def test_a_gaussian_is_split_along_its_own_axes():
    c = gaussian_candidate("full-1", GAUSSIANS, "full", np.ones(1), np.zeros((1, 2)), np.diag([4.0, 1.0])[None])
    for axis, variance in enumerate((4.0, 1.0)):
        params = split_along(c, 0, axis).proposal.params
        spread = np.abs(params.means).max(0)
        assert_allclose(spread, np.eye(2)[axis] * np.sqrt(2 / np.pi * variance), atol=1e-12)
        assert_allclose(gaussian.full_covs(params, "full")[0] + np.diag(spread**2), np.diag([4.0, 1.0]), rtol=1e-4)


@pytest.mark.slow
def test_where_sites_are_not_moved_there_are_no_offsets():
    data, classes = moved(0.0, skewed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = up.OpenMixture(random_state=0).fit(data)
    assert not model.site_offset_scale_.any()
    assert not model.site_log_scale_.any()
    assert model.client_offsets_ == model.client_factors_ == {}
    assert index(model, classes) > 0.95
    without = up.OpenMixture(random_state=0, site_offsets=False).fit(data)
    assert without.n_components_ == 4
    np.testing.assert_array_equal(model.means_, without.means_)  # the same fit, to the bit


@pytest.mark.slow
def test_offsets_are_the_same_however_clients_are_asked():
    data, _ = moved(0.5, n=40)
    found = []
    for mode in ("stacked", "one by one"):
        fed = up.federate(data, mode=mode)
        ask = describe.using(max_local=6, max_centres=0, min_count=5)
        found.append(find_offsets(fed, fed.gather(ask, None)))
    assert_allclose(found[0].scale, found[1].scale, rtol=1e-8)
    assert_allclose(found[0].by_offsets, found[1].by_offsets, rtol=1e-8)
    assert_allclose(found[0].by_scales, found[1].by_scales, rtol=1e-6, atol=1e-10)
    assert found[0].by_offsets > 3.0


@pytest.mark.slow
def test_scales_of_sites_are_found():
    """Of a table whose sites differ in the scale of all columns; offsets alone do not explain it."""
    data, _ = moved(0.0, n=120)
    factors = {name: np.exp(0.3 * np.random.default_rng(i).normal(size=3)) for i, name in enumerate(NAMES)}
    fed = up.federate({name: data[name] * factors[name] for name in NAMES})
    ask = describe.using(max_local=20, max_centres=0, min_count=5)
    found = find_offsets(fed, fed.gather(ask, None))
    assert found.by_scales > 3.0
    assert found.log_scale.max() > 0.2
    kept = np.log([c.state[FACTOR] for c in fed.here()])[:, 2]
    truth = -np.log([factors[c.name] for c in fed.here()])[:, 2]
    assert np.corrcoef(kept, truth)[0, 1] > 0.9


def test_a_newton_step_finds_offset_and_scale_of_one_cluster():
    """With one Gaussian and a wide prior the most probable offset and scale are those of the client's own mean and spread."""
    rng = np.random.default_rng(0)
    x = 3.0 + rng.normal(size=(400, 2)) * [1.5, 0.7]
    params = Params(np.ones(1), np.zeros((1, 2)), gaussian.pack_triangle(np.eye(2)[None]))
    wide = np.full(2, 1e6)
    reference = Reference(Proposal(params, np.zeros((0, 1))), wide, wide, np.zeros(2))
    fed = up.federate({"a": x})
    for _ in range(20):
        fed.sum(align.using(ids=["r"], parents=[""], shape="full"), (reference,))
    offset, log_scale = fed.here()[0].state["align-r"][1]
    assert_allclose(offset, x.mean(0), rtol=1e-4)
    spread = np.sqrt(np.linalg.inv(np.cov(x.T, bias=True)).diagonal())  # columns are scaled, not rotated
    assert_allclose(np.exp(log_scale) * spread, 1.0, rtol=0.05)


def test_the_evidence_of_an_offset_is_the_marginal_likelihood():
    """With one Gaussian a client's values in a column are normal with a common part; Laplace's approximation is exact there."""
    x = np.random.default_rng(0).normal(loc=[0.5, -0.2], size=(30, 2))
    params = Params(np.ones(1), np.zeros((1, 2)), gaussian.pack_triangle(np.diag([1.0, 2.0])[None]))
    reference = Reference(Proposal(params, np.zeros((0, 1))), np.array([0.09, 0.2]), np.zeros(2), np.zeros(2))
    fed = up.federate({"a": x})
    for _ in range(3):
        (found,) = fed.sum(align.using(ids=["r"], parents=[""], shape="full"), (reference,))
    exact = sum(
        multivariate_normal(np.zeros(30), np.eye(30) * own + common).logpdf(column)
        for column, own, common in zip(x.T, [1.0, 2.0], [0.09, 0.2])
    )
    assert_allclose(found.stats.loglik - found.penalty / 2, exact, rtol=1e-10)


def test_rows_held_out_are_scored_under_the_offset_that_the_others_give():
    """With one Gaussian the offset is the mean of the other rows, drawn to 0 by the prior."""
    x = np.random.default_rng(0).normal(loc=0.5, size=(30, 1))
    params = Params(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)))
    variance = np.array([0.09])
    moved = Reference(Proposal(params, np.zeros((0, 1))), variance, np.zeros(1), np.zeros(1))
    plain = moved._replace(variance=np.zeros(1))
    fed = up.federate({"a": x})
    fed.sum(align.using(ids=["plain", "moved"], parents=["", ""], shape="full"), (plain, moved))
    found = fed.sum(check_offsets.using(ids=["plain", "moved"], shape="full"), (plain, moved)).loglik
    fold = (np.arange(1, 31) * GOLDEN_RATIO % 1 * 5).astype(int)
    others = [x[fold != f, 0] for f in fold]
    offsets = np.array([own.sum() / (len(own) + 1 / variance[0]) for own in others])
    assert_allclose(found, [norm.logpdf(x[:, 0]).sum(), norm.logpdf(x[:, 0] - offsets).sum()], rtol=1e-10)


def test_heavy_tails_are_not_taken_for_scales_of_sites():
    """Chance moves the spread of lognormal rows more than a Gaussian allows; rows held out do not confirm it."""
    rng = np.random.default_rng(3)
    loadings = 0.5 * rng.normal(size=(2, 8))
    noise = 0.3 * rng.normal(size=(len(NAMES), 40, 8))
    fed = up.federate(dict(zip(NAMES, np.exp(rng.normal(size=(len(NAMES), 40, 2)) @ loadings + noise))))
    found = find_offsets(fed, fed.gather(describe.using(max_local=1, max_centres=0, min_count=5), None))
    assert not found.scale.any()
    assert not found.log_scale.any()


@pytest.mark.slow
def test_certainty_never_contradicts_the_number_of_clusters():
    for offset, skewed in ((0.0, False), (0.0, True), (0.6, True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            model = up.OpenMixture(random_state=1).fit(moved(offset, 5, skewed)[0])
        assert max(model.certainty_, key=model.certainty_.get) == str(model.n_components_)
        assert sum(model.certainty_.values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_saved_model_keeps_the_offsets(tmp_path):
    data, _ = moved(0.6)
    with pytest.warns(DataWarning, match="sites differ"):
        model = up.OpenMixture(random_state=0).fit(data)
    model.save(tmp_path)
    again = up.load(tmp_path)
    for name in NAMES:
        np.testing.assert_array_equal(again.predict(data[name], client=name), model.labels_[name])
