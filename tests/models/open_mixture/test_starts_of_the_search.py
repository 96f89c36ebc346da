"""Where OpenMixture's candidates start: a single Gaussian is split where rows are spread, and what the search found is not lost."""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.models.open_mixture.candidates import GAUSSIANS, SHARED, gaussian_candidate
from unpooled.models.open_mixture.initial import split_widest
from unpooled.models.open_mixture.phases import Shared


def test_a_single_gaussian_is_split_across_its_own_longest_axes():
    """Over the covariance within clusters, which is its own, it is as wide in all directions."""
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    cov = axes @ np.diag([100.0, 9.0, 1.0, 0.01]) @ axes.T
    one = gaussian_candidate("full-1", GAUSSIANS, "full", np.array([200.0]), np.zeros((1, 4)), cov[None])
    first, second = split_widest(one, 2)
    assert [first.id, second.id] == ["full-1+0", "full-1+1"]
    for split, axis in ((first, axes[:, 0]), (second, axes[:, 1])):
        away = np.subtract(*split.proposal.params.means)
        assert_allclose(abs(away @ axis), np.linalg.norm(away), rtol=1e-6)


def test_what_the_search_found_goes_on_with_common_weights(monkeypatch):
    """Two clusters in six columns that one factor explains, at clients that are alike."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    factor = rng.normal(size=(400, 1)) + 6.0 * y[:, None]
    x = factor * rng.normal(size=6) + 0.2 * rng.normal(size=(400, 6))
    began = []
    first = Shared.next

    def watched(self, state, fed):
        began.append([c.id for c in self.candidates if c.id.startswith("search-") and c.structure == SHARED])
        return first(self, state, fed)

    monkeypatch.setattr(Shared, "next", watched)
    by = rng.integers(6, size=400)
    model = up.OpenMixture(random_state=0).fit({str(c): x[by == c] for c in range(6)})
    assert began[0], "the best Gaussians of the search are among the first candidates"
    labels = np.concatenate([model.labels_[str(c)] for c in range(6)])
    truth = np.concatenate([y[by == c] for c in range(6)])
    assert adjusted_rand_score(truth, labels) > 0.9
