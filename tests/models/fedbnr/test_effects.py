"""What FedBNR's last layer is built from: marginals of columns, rows drawn from them, effects of single columns."""

import numpy as np
import pytest

import unpooled as up
from unpooled import tree
from unpooled.maths.bayes_linear import unpack
from unpooled.models.fedbnr.effects import Bins, curvature, effects, shared_out
from unpooled.models.fedbnr.marginals import MIN_ROWS, bin_edges, drawn_rows, hinge_means, knots, marginals, most_knots
from unpooled.models.regression import histograms, standardise


@pytest.fixture(name="table", scope="module")
def table_():
    rng = np.random.default_rng(0)
    x = np.column_stack(
        [rng.normal(size=900), rng.integers(0, 2, size=900), rng.integers(0, 12, size=900), rng.gamma(2.0, size=900)]
    )
    x[:, 3] += x[:, 0]
    y = np.sin(x[:, 2]) + 0.5 * x[:, 0] + 0.2 * rng.normal(size=900)
    fed = up.federate(x, y, by=np.arange(900) % 3)
    scaling, _ = standardise(fed, 0.0, 0, "impute")
    return (
        fed,
        scaling,
        marginals(histograms(fed, scaling, 0.0, 0), scaling, scaling),
        (x - scaling.x_mean) / scaling.x_scale,
    )


def test_effects_are_those_of_the_pooled_rows(table):
    fed, scaling, known, _ = table
    bins = Bins(scaling, bin_edges(known))
    whole = up.federate(np.concatenate([c.x for c in fed.here()]), np.concatenate([c.y for c in fed.here()]))
    for ours, pooled in zip(tree.leaves(fed.sum(effects, bins)), tree.leaves(whole.sum(effects, bins))):
        np.testing.assert_allclose(ours, pooled, rtol=1e-10, atol=1e-10)


def test_bins_have_enough_rows(table):
    fed, scaling, known, _ = table
    rows = fed.sum(effects, Bins(scaling, bin_edges(known))).rows
    assert (rows[rows > 0] >= MIN_ROWS).all()
    assert [(r > 0).sum() for r in rows][1:3] == [2, 12]


def test_knots_go_where_a_column_bends_y(table):
    fed, scaling, known, _ = table
    seen = fed.sum(effects, Bins(scaling, bin_edges(known)))
    wanted = shared_out(curvature(seen), most_knots(known), 12)
    assert wanted[2] == wanted.max() >= 6
    assert wanted[1] == 0
    assert wanted.sum() == 12
    at = knots(known, wanted)
    assert [len(k) for k in at] == wanted.tolist()


def test_means_of_hinges(table):
    *_, known, x = table
    columns, at = np.array([0, 2, 3]), np.array([0.2, -0.5, 0.7])
    expected = np.maximum(x[:, columns] - at, 0.0).mean(0)
    np.testing.assert_allclose(hinge_means(known, columns, at), expected, atol=0.02)


def test_drawn_rows_have_the_marginals_and_correlations_and_are_nobodys(table):
    fed, scaling, known, x = table
    seen = fed.sum(effects, Bins(scaling, bin_edges(known)))
    rows = drawn_rows(known, unpack(seen.moments, 4) / 900, seed=3)
    np.testing.assert_allclose(
        np.quantile(rows, [0.1, 0.5, 0.9], axis=0)[:, 3], np.quantile(x[:, 3], [0.1, 0.5, 0.9]), atol=0.15
    )
    assert len(np.unique(rows[:, 2])) == 12
    np.testing.assert_allclose(np.corrcoef(rows.T), np.corrcoef(x.T), atol=0.12)
    assert not (rows[:, None] == x[None]).all(-1).any()
