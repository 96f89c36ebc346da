"""Principal components over clients: scikit-learn's of the pooled rows, whatever the split."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA as Pooled

import unpooled as up
from unpooled.errors import BadData, BadParameter, DataWarning

RNG = np.random.default_rng(0)
X = RNG.normal(size=(900, 500)) @ RNG.normal(size=(500, 500)) / 20 + 1e3  # far from the origin
BY = RNG.integers(0, 7, 900)
ATTRIBUTES = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "mean_",
    "noise_variance_",
)


@pytest.mark.parametrize("options", [{"n_components": 20}, {"n_components": 0.8}, {"n_components": 5, "whiten": True}])
def test_it_is_scikit_learns_of_the_pooled_rows(options):
    ours, peer = up.PCA(**options).fit(X, by=BY), Pooled(svd_solver="full", **options).fit(X)
    for name in ATTRIBUTES:
        np.testing.assert_allclose(getattr(ours, name), getattr(peer, name), rtol=1e-8, atol=1e-8, err_msg=name)
    assert ours.n_components_ == peer.n_components_
    scores = ours.transform(X)
    np.testing.assert_allclose(scores, peer.transform(X), atol=1e-7)
    np.testing.assert_allclose(ours.inverse_transform(scores), peer.inverse_transform(scores), rtol=1e-8)
    if not ours.whiten:
        np.testing.assert_allclose(ours.get_covariance(), peer.get_covariance(), rtol=1e-6, atol=1e-8)
    assert list(ours.get_feature_names_out()) == list(peer.get_feature_names_out())


def test_all_components_span_all_variance():
    ours, peer = up.PCA().fit(X[:, :30], by=BY), Pooled().fit(X[:, :30])
    np.testing.assert_allclose(ours.explained_variance_, peer.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X[:, :30])), X[:, :30], rtol=1e-10)
    assert ours.explained_variance_ratio_.sum() == pytest.approx(1.0)


def test_fewer_rows_than_columns():
    ours, peer = up.PCA().fit(X[:20], by=BY[:20] % 2), Pooled().fit(X[:20])
    assert ours.components_.shape == peer.components_.shape
    np.testing.assert_allclose(ours.explained_variance_[:19], peer.explained_variance_[:19], rtol=1e-8)


def wide(n=250, d=3000):
    rng = np.random.default_rng(1)
    return (rng.normal(size=(n, 30)) * np.linspace(8, 1, 30)) @ rng.normal(size=(30, d)) + 3 * rng.normal(size=(n, d))


def test_wide_data_take_thin_rounds_and_lose_next_to_nothing():
    x = wide()
    fed = up.federate(x, by=np.arange(len(x)) % 5)
    ours = up.PCA(10, random_state=0).fit(fed)
    best = (np.linalg.svd(x - x.mean(0), compute_uv=False)[:10] ** 2).sum() / (len(x) - 1)
    captured = ours.transform(x).var(0, ddof=1).sum()
    assert 0.99 * best <= captured <= best * (1 + 1e-9)
    assert ours.explained_variance_.sum() == pytest.approx(captured, rel=0.01)
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(10), atol=1e-10)
    assert max(e.bytes_up for e in fed.journal.exchanges) <= 5 * 8 * (3000 * 20 + 1)


def test_what_is_captured_rises_every_round():
    x = wide(120, 1500)
    captured = [row["captured"] for row in up.PCA(5, tol=0, max_iter=8, random_state=0).fit(x).history_]
    assert (np.diff(captured) >= -1e-9 * captured[-1]).all()


def test_constant_and_duplicated_columns_are_welcome():
    x = np.column_stack([X[:, :3], X[:, 0], np.full(900, 7.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        ours = up.PCA(3).fit(x, by=BY)
    peer = Pooled(3).fit(x)
    np.testing.assert_allclose(ours.components_, peer.components_, atol=1e-8)


def test_weights_count_rows():
    w = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    twice = np.concatenate([X[:60, :4], X[:60:3, :4]])
    np.testing.assert_allclose(
        up.PCA(2).fit(X[:60, :4], sample_weight=w).components_, up.PCA(2).fit(twice).components_, atol=1e-9
    )


@pytest.mark.parametrize(
    ("x", "options", "says"),
    [
        (np.eye(3), {"n_components": 4}, "n_components=4 is more than the 3"),
        (np.eye(3), {"n_components": 0}, "n_components=0 must be"),
        (np.eye(3), {"n_components": 1.5}, "n_components=1.5 must be"),
        (np.eye(3), {"n_components": "all"}, "n_components='all' must be"),
        (np.eye(3), {"solver": "randomized"}, "give a whole number"),
        (np.eye(3), {"solver": "svd"}, "use one of 'auto', 'full', 'randomized'"),
        (np.eye(1), {}, "1 rows: principal components need at least 2"),
        (np.array([[1.0, np.nan], [2, 3], [4, 4]]), {}, "1 values are missing, most in column '1': fill them in first"),
    ],
)
def test_bad_input_is_one_sentence(x, options, says):
    with pytest.raises((BadData, BadParameter), match=says):
        up.PCA(**options).fit(x)


def test_fedgmms_embedding_is_these_components_of_weighted_rows():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(120, 4)) * [4.0, 2.0, 1.0, 0.5]
    y, weight = (x[:, 0] > 0).astype(int), rng.integers(1, 4, 120).astype(float)
    fed = up.federate(x, y, by=np.arange(120) % 3, sample_weight=weight)
    model = up.FedGMM(2, embedding=2, random_state=0, max_iter=5).fit(fed)
    found = up.PCA(2).fit(fed)
    np.testing.assert_allclose(np.abs(model.embedding_axes_.T), np.abs(found.components_), rtol=1e-7, atol=1e-9)
    assert "pca.moments" in {e.question for e in fed.journal.exchanges}
