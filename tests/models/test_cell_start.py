"""The start from sums over cells: the same whatever the split, bounded in what it sends, sane on awkward tables."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris

from unpooled import tree
from unpooled.data.federate import federate
from unpooled.federation import Layer
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models import initialization
from unpooled.models.initialization import cell_mixture, cell_search, cells, kernels, together
from unpooled.models.initialization.covariance_kinds import kind_of
from unpooled.models.mixture import GaussianMixture

SHAPES = ("full", "tied", "diag", "spherical")
X, Y = load_iris(return_X_y=True)


def five_splits(x, y):
    half = len(x) // 2
    return {
        "one client": {"all": x},
        "by class": {f"class {k}": x[y == k] for k in np.unique(y)},
        "by rows": {f"part {i}": x[i::7] for i in range(7)},
        "by halves": {"first": x[:half], "second": x[half:]},
        "one row per client": {f"row {i:03d}": x[i : i + 1] for i in range(len(x))},
    }


def begin(clients, sizes=(3,), n_init=1, shape="full", seed=0):
    fed = federate(clients)
    frame = initialization.frame(fed)
    return cells.cells_start(fed, frame, sizes, n_init, shape, np.random.default_rng(seed)), fed


def flat(found):
    return np.concatenate([tree.flatten(params) for params in found])


def clusters(n=1200, d=3, k=4, seed=0, away=8.0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=away, size=(k, d))
    labels = rng.integers(k, size=n)
    return centres[labels] + rng.normal(size=(n, d)), labels, centres


def farthest(means, centres):
    """The largest distance from a centre to the nearest mean."""
    return np.sqrt(((centres[:, None] - means) ** 2).sum(-1)).min(1).max()


# ---- laws ----


@pytest.mark.parametrize("shape", [pytest.param(s, marks=pytest.mark.slow) if s == "full" else s for s in SHAPES])
def test_the_split_of_rows_does_not_matter(shape):
    sizes, n_init = ((2, 5), 2) if shape == "full" else ((3,), 1)
    found = {name: flat(begin(c, sizes, n_init, shape)[0]) for name, c in five_splits(X, Y).items()}
    for name, numbers in found.items():
        np.testing.assert_allclose(numbers, found["one client"], rtol=0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_nor_with_missing_values(shape):
    rng = np.random.default_rng(1)
    gone = rng.random(X.shape) < 0.2
    gone[np.arange(len(X)), rng.integers(4, size=len(X))] = False
    x = np.where(gone, np.nan, X)
    found = {name: flat(begin(c, (3,), 1, shape)[0]) for name, c in five_splits(x, Y).items()}
    for name, numbers in found.items():
        np.testing.assert_allclose(numbers, found["one client"], rtol=0, atol=1e-8, err_msg=name)


def test_same_seed_same_bits_another_seed_other_cells():
    clients = {"a": X[::2], "b": X[1::2]}
    first, again, other = (flat(begin(clients, (6,), seed=seed)[0]) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-6


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(flat(begin({"a": X})[0]), flat(begin({"a": X[order]})[0]), rtol=0, atol=1e-8)


def test_units_do_not_matter():
    factor = np.array([1e-2, 1.0, 1e3, 7.0])
    (plain,), (scaled,) = begin({"a": X})[0], begin({"a": X * factor})[0]
    np.testing.assert_allclose(scaled.means, plain.means * factor, rtol=1e-6)
    np.testing.assert_allclose(scaled.weights, plain.weights, atol=1e-6)


# ---- what is sent ----


def test_sums_and_nothing_else():
    _, fed = begin(five_splits(X, Y)["by class"])
    asked = [(e.question, e.kind) for e in fed.journal.exchanges]
    frame = [("initialization.look", "sum"), ("initialization.spread", "sum")]
    counted = [("initialization.cell_counts", "sum"), ("initialization.cells", "sum")]
    rounds = [("initialization.cells", "sum")] * 4
    assert asked == [*frame, *counted * 4, *[*counted[:1], *rounds] * 4]
    assert len(asked) == 2 + cells.CELL_SUMS


def test_one_component_alone_asks_for_the_frame_only():
    (params,), fed = begin({"a": X}, (1,))
    assert len(fed.journal.exchanges) == 2
    np.testing.assert_allclose(params.means[0], X.mean(0))


@pytest.mark.parametrize(("k", "d", "rows"), [(1, 1, 1), (3, 4, 150), (20, 30, 1e6), (10, 500, 1e6), (50, 2, 60)])
@pytest.mark.parametrize("shape", ["full", "tied", "diag"])
def test_the_numbers_sent_are_bounded(k, d, rows, shape):
    m = kernels.n_cells(kernels.POINTS_PER_COMPONENT * k, k, rows, d, shape)
    numbers = 1 + d + (d * (d + 1) // 2 if shape == "full" else d)
    assert k <= m <= max(k, rows / kernels.ROWS_PER_CELL)
    assert m == k or m * numbers <= kernels.MAX_NUMBERS


def test_as_many_numbers_whatever_the_clients():
    def sizes(clients):
        _, fed = begin(clients)
        return [e.bytes_up / e.answered for e in fed.journal.exchanges[2:]]

    splits = five_splits(X, Y)
    assert sizes(splits["by class"]) == sizes(splits["by rows"])


class Recorded(Layer):
    """Keeps every total, as a curious coordinator would."""

    def __init__(self, inner):
        super().__init__(inner)
        self.totals = []

    def sum(self, ask, down):
        total = self.inner.sum(ask, down)
        self.totals.append((ask, down, total))
        return total


@pytest.mark.parametrize("how", ["cells", "kmeans", "k-means++", "random_from_data"])
def test_no_total_over_a_cell_tells_of_fewer_rows_than_the_floor(how):
    """A lonely row far away once had a cell to itself: count 1, and its values as the mean."""
    x = np.concatenate([clusters(600)[0], [[40.0, -30.0, 35.0]]])
    fed = Recorded(federate({"a": x[::2], "b": x[1::2]}))
    GaussianMixture(4, init_params=how, n_init=2, random_state=0, max_iter=0).fit(fed)
    counts = [up.n for ask, _, some in fed.totals if ask.name == "initialization.cell_counts" for up in some]
    assert min(n.min() for n in counts) < 5, "or the floor is not tested"
    for ask, down, some in fed.totals:
        if ask.name == "initialization.cells":
            for kernels, up, shape in zip(down, some, ask.options["shapes"]):
                assert rows_behind(kernels, x, shape).min() >= 4
                away = np.abs(kernels.means + up.x / up.n[:, None] - x[:, None]) / x.std(0)
                assert away.max(-1).min() > 1e-3, "a cell's mean is a row"


def rows_behind(kernels, x, shape):
    """The effective number of rows that each component's sums are made of, (k,)."""
    joint = mixture.log_joint(kernels, x, shape)
    r = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    return r.sum(0) ** 2 / (r**2).sum(0)


def test_no_row_alone_is_enough_for_the_floor_whatever_its_weight():
    x = np.concatenate([np.random.default_rng(0).normal(size=(40, 2)), [[60.0, -60.0]]])
    kernels = Params(np.full(2, 0.5), np.array([[0.0, 0.0], [60.0, -60.0]]), np.ones((2, 2)))
    found = together.count_rows(kernels, x, np.append(np.ones(40), 1000.0), "diag")
    assert found.n.tolist() == [40, 4]
    found = together.count_rows(kernels, x, np.append(np.full(40, 1e-6), 0.0), "diag")
    assert found.n.tolist() == [40, 0]


def test_counts_do_not_tell_where_a_lonely_row_lies():
    """Shares of one row among points are log-linear in its values: they once gave the row away to ten digits."""
    rng = np.random.default_rng(0)
    kernels = Params(np.full(9, 1 / 9), rng.normal(size=(9, 3)), np.ones((9, 3)))
    rows = kernels.means[4] + 0.01 * rng.normal(size=(20, 1, 3))
    near = [together.count_rows(kernels, row, np.ones(1), "diag").n for row in rows]
    assert all(np.array_equal(n, near[0]) for n in near)
    assert near[0].sum() == 1


# ---- what is found ----


@pytest.mark.parametrize("shape", SHAPES)
def test_clusters_far_apart_are_found(shape):
    x, labels, centres = clusters()
    (params,), _ = begin({f"c{k}": x[labels == k] for k in range(4)}, (4,), 1, shape)
    assert farthest(params.means, centres) < 0.5
    np.testing.assert_allclose(np.sort(params.weights), np.sort(np.bincount(labels) / len(labels)), atol=0.02)


def test_clusters_are_found_with_a_third_of_the_values_missing():
    x, _, centres = clusters(d=5, seed=2)
    rng = np.random.default_rng(0)
    gone = rng.random(x.shape) < 0.33
    gone[np.arange(len(x)), rng.integers(5, size=len(x))] = False
    (params,), _ = begin({"a": np.where(gone, np.nan, x)}, (4,))
    between = np.sqrt(((centres[:, None] - centres) ** 2).sum(-1))[np.triu_indices(4, 1)].min()
    assert farthest(params.means, centres) < between / 4


def test_starts_differ_and_the_likeliest_comes_first():
    x, _, _ = clusters(k=7, away=2.0)
    found, _ = begin({"a": x}, (5,), 3)
    logliks = [_loglik(params, x) for params in found]
    assert (np.diff(logliks) < 1e-3).all()
    assert logliks[0] > logliks[2] + 1e-6


def test_components_that_overlap_in_many_columns_are_found():
    rng = np.random.default_rng(4)
    d, n = 24, 3000
    centres = np.zeros((3, d))
    centres[:, :2] = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    x = (centres[rng.integers(3, size=n)] + rng.normal(size=(n, d))) @ turn
    (params,), _ = begin({"a": x}, (3,))
    assert farthest(params.means, centres @ turn) < 1.0
    assert params.weights.min() > 0.2


def _loglik(params, x):
    covs = gaussian.unpack_triangle(params.covs)
    densities = [w * multivariate_normal(m, c).pdf(x) for w, m, c in zip(params.weights, params.means, covs)]
    return np.log(np.sum(densities, axis=0)).mean()


# ---- awkward tables ----

RNG = np.random.default_rng(5)
AWKWARD = {
    "a constant column": (np.column_stack([X, np.full(150, 3.0)]), 3),
    "all columns constant": (np.ones((30, 2)), 2),
    "duplicated rows": (np.repeat(RNG.normal(size=(6, 2)), 20, axis=0), 4),
    "more components than distinct rows": (np.repeat(RNG.normal(size=(3, 2)), 10, axis=0), 8),
    "few rows": (RNG.normal(size=(5, 3)), 3),
    "one row per component": (RNG.normal(size=(4, 2)), 4),
    "one row": (RNG.normal(size=(1, 2)), 1),
    "one column": (np.concatenate([RNG.normal(size=(50, 1)), RNG.normal(9, 1, size=(50, 1))]), 2),
    "a hundred columns": (RNG.normal(size=(80, 100)), 3),
    "more columns than rows, many alike": (np.repeat(RNG.normal(size=(15, 3)), 10, axis=1), 2),
    "two equal columns": (np.repeat(RNG.normal(size=(60, 1)), 2, axis=1), 2),
    "one far outlier": (np.concatenate([RNG.normal(size=(99, 2)), [[1e7, -1e7]]]), 3),
}


@pytest.mark.filterwarnings("ignore::unpooled.errors.DataWarning")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", AWKWARD)
def test_a_start_is_always_a_mixture(name, shape):
    x, k = AWKWARD[name]
    (params,), _ = begin({"a": x[::2], "b": x[1::2]} if len(x) > 1 else {"a": x}, (k,), 1, shape)
    assert all(np.isfinite(a).all() for a in params)
    assert params.means.shape == (k, x.shape[1])
    np.testing.assert_allclose(params.weights.sum(), 1)
    assert (params.weights > 0).all()
    assert (np.linalg.eigvalsh(gaussian.full_covs(params, shape)) > 0).all()


@pytest.mark.parametrize("name", ["duplicated rows", "few rows", "one column", "two equal columns"])
def test_awkward_tables_start_alike_in_any_split(name):
    x, k = AWKWARD[name]
    whole, parts = begin({"a": x}, (k,))[0], begin({f"{i:03d}": x[i : i + 1] for i in range(len(x))}, (k,))[0]
    np.testing.assert_allclose(flat(parts), flat(whole), rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_far_from_the_origin(shape):
    x, labels, _ = clusters()
    far = 1e6 * np.array([1.0, -1.0, 2.0])
    (near,), (moved,) = begin({"a": x}, (4,), 1, shape)[0], begin({"a": x + far}, (4,), 1, shape)[0]
    np.testing.assert_allclose(moved.means - far, near.means, atol=1e-5)
    parts = {f"c{k}": x[labels == k] + far for k in range(4)}
    np.testing.assert_allclose(begin(parts, (4,), 1, shape)[0][0].means, moved.means, rtol=1e-8)


# ---- EM on cells ----


def some_cells(shape, m=30, d=3, seed=0):
    rng = np.random.default_rng(seed)
    kind = kind_of(shape)
    spread = rng.normal(size=(m, d, d)) / 3
    covs = spread @ spread.swapaxes(1, 2) + 0.1 * np.eye(d)
    covs = covs if shape in ("full", "tied") else np.einsum("kii->ki", covs)
    return cell_mixture.Cells(rng.uniform(5, 50, m), rng.normal(scale=2, size=(m, d)), covs), kind


@pytest.mark.parametrize("shape", ["full", "diag"])
def test_em_on_cells_never_loses(shape):
    found, kind = some_cells(shape)
    seen = cell_mixture.moments(found, kind)
    shares = np.random.default_rng(0).dirichlet(np.ones(4), size=30)
    scores = []
    for _ in range(30):
        fit = cell_mixture.update(seen, shares, kind)
        shares = fit.shares
        scores.append(fit.score)
    assert (np.diff(scores) > -1e-12).all()
    assert scores[-1] > scores[0] + 0.01


@pytest.mark.parametrize("shape", SHAPES)
def test_one_component_has_the_moments_of_all_cells(shape):
    found, kind = some_cells(shape)
    (fit,) = cell_search.search(found, 1, shape, np.random.default_rng(0))
    np.testing.assert_allclose(fit.means[0], cell_mixture.centre_of(found))
    nu, n = cell_mixture.prior_rows(3), found.n.sum()
    wanted = (n * cell_mixture.total(found, kind) + nu * cell_mixture.within(found)) / (n + nu)
    if shape != "spherical":
        np.testing.assert_allclose(fit.covs[0], wanted, rtol=1e-6)


def test_swaps_repair_a_fit_with_two_components_in_one_place():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0]])
    means = np.concatenate([c + rng.normal(size=(10, 2)) for c in centres])
    found = cell_mixture.Cells(np.full(40, 10.0), means, np.tile(0.5 * np.eye(2), (40, 1, 1)))
    kind = kind_of("full")
    seen = cell_mixture.moments(found, kind)
    labels = np.repeat([0, 2, 3, 3], 10)
    labels[:5] = 1  # the first place has two components, the last two places share one
    stuck = cell_mixture.fit(seen, np.eye(4)[labels], kind)
    better = cell_search.improved(seen, stuck, kind)
    assert better.score > stuck.score + 0.1
    assert farthest(better.means, centres) < 1.0


def test_agglomeration_keeps_groups_that_lie_together():
    rng = np.random.default_rng(0)
    means = np.concatenate([rng.normal(size=(8, 2)), rng.normal(size=(8, 2)) + 30])
    found = cell_mixture.Cells(np.full(16, 9.0), means, np.tile(np.eye(2), (16, 1, 1)))
    labels = cell_search.merged(found, 2, kind_of("full"))
    assert len(set(labels[:8])) == len(set(labels[8:])) == 1
    assert labels[0] != labels[8]
