"""Which of FedMissEM's models are averaged, and with which weights, from losses on visits held back."""

import numpy as np
from scipy.optimize import minimize

from unpooled.client import Client
from unpooled.models.fedmissem.averaging import average_weights
from unpooled.models.fedmissem.bilinear import (
    Factors,
    Penalties,
    curves_in_dates,
    level_in_dates,
    newton,
    penalised,
    with_curves,
)
from unpooled.models.fedmissem.bilinear import half as sums_of_one_side
from unpooled.models.fedmissem.questions import Held, Width, Widths, seen
from unpooled.models.fedmissem.selection import Model, best_model
from unpooled.models.fedmissem.stages import supported
from unpooled.models.fedmissem.totals import totals

ONE = Penalties(1.0, 1.0, 1.0)


def held(*means, noise=0.01):
    """Sums over 400 visits of models whose losses differ by their means and by noise."""
    rng = np.random.default_rng(0)
    losses = np.stack(
        [mean + rng.exponential(size=400).cumsum() / 400 + noise * rng.normal(size=400) for mean in means]
    )
    errors = np.sqrt(np.maximum(losses, 0.0))
    return Held(np.asarray(400.0), errors @ errors.T, losses @ losses.T)


def test_weights_are_those_of_the_smallest_squared_error():
    errors = np.random.default_rng(3).normal(size=(4, 50)) + np.array([0.0, 0.2, -0.3, 2.0])[:, None]
    products = errors @ errors.T
    weights = average_weights(products, np.ones(4, bool))
    bounds, whole = [(0, 1)] * 4, {"type": "eq", "fun": lambda w: w.sum() - 1}
    best = minimize(lambda w: w @ products @ w, np.full(4, 0.25), bounds=bounds, constraints=whole, tol=1e-12).fun
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(weights @ products @ weights, best, rtol=1e-3)
    np.testing.assert_allclose(average_weights(1e6 * products, np.ones(4, bool)), weights, atol=1e-10)
    assert average_weights(products, np.array([False, True, False, True]))[[0, 2]].tolist() == [0, 0]


def test_the_total_of_an_average_is_less_certain_where_models_differ():
    """Two sites, the second of which nobody saw on the first date; both models know their coefficients."""
    none, effects = np.zeros((2, 1, 1)), [np.log(9.0), np.log(4.0)]
    models = [
        Width(Factors(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[1.0, b], [1.0, 0.0]])), none, none)
        for b in effects
    ]
    widths = Widths(tuple(models), np.array([0.5, 0.5]), np.asarray(0.0), np.asarray(1.0))
    seen_cells = np.array([[0, 0, 5.0], [0, 1, 1.0], [1, 1, 1.0]])
    visited = seen.using(family="poisson", trials=1)(widths, Client("a", seen_cells))
    total, std = totals(widths, visited, 0.0, "poisson", 1)
    np.testing.assert_allclose(total, [5 + 6, 2.0])  # 6 is the geometric mean of 9 and 4
    np.testing.assert_allclose(std, [np.sqrt((3**2 + 2**2) / 2), 0.0])


def test_the_first_family_is_kept_unless_another_is_clearly_better():
    models = [Model(family, 0, Penalties(p, p, p)) for family in ("poisson", "gaussian") for p in (0.1, 1.0)]
    assert best_model(held(1.0, 0.9, 0.95, 0.899, noise=0.3), models) == 1
    assert best_model(held(1.0, 0.9, 0.5, 0.3), models) == 3
    assert best_model(held(1.0, 0.9, 0.5, 0.3), models[:1] * 4) == 3  # within a family the smallest loss


def test_an_average_is_left_as_far_as_visits_support_another():
    assert supported(held(0.5, 1.0)) == 0.0  # the other is worse
    assert supported(held(1.0, 0.5)) > 0.99
    assert 0.0 < supported(held(1.0, 0.9, noise=0.7)) < 0.95  # better, perhaps by chance


def test_curves_of_sites_are_learned_and_those_of_dates_stay():
    n_sites, n_dates = 3, 8
    effects = Factors(np.tile([0.0, 1.0], (n_sites, 1)), np.tile([1.0, 0.0], (n_dates, 1)))
    start = with_curves(effects, 2)
    curves = start.right[:, 2:]
    np.testing.assert_allclose(curves.T @ curves, np.diag([n_dates, n_dates / 4]), atol=1e-12)
    cells = np.argwhere(np.ones((n_sites, n_dates)))
    truth = np.array([[0.5, -1.0], [0.0, 2.0], [1.0, 0.0]])
    visits = np.column_stack([cells, (truth @ curves.T).ravel()])
    tiny = Penalties(1e-9, 1e-9, 1e-9)
    for side in ("right", "left"):
        found = sums_of_one_side(start, side, visits, np.ones(len(visits)), "gaussian", 1)
        moved, covariance = newton(start, side, found, 1.0, tiny, curves=True)
        if side == "right":
            np.testing.assert_array_equal(moved.right[:, 2:], curves)
            assert not covariance[:, 1:].any()
    np.testing.assert_allclose(moved.left[:, 2:], truth, atol=1e-6)
    shared = curves_in_dates(moved, ONE)
    np.testing.assert_allclose(shared.left @ shared.right.T, moved.left @ moved.right.T, atol=1e-12)
    assert penalised(shared, ONE) < penalised(moved, ONE)
    np.testing.assert_allclose(curves_in_dates(shared, ONE).left, shared.left, atol=1e-12)


def test_the_level_of_all_sites_moves_to_the_dates():
    rng = np.random.default_rng(2)
    left = np.column_stack([1 + rng.normal(size=6), np.ones(6), rng.normal(size=6)])
    right = np.column_stack([np.ones(4), rng.normal(size=4), rng.normal(size=4)])
    moved = level_in_dates(Factors(left, right))
    np.testing.assert_allclose(moved.left @ moved.right.T, left @ right.T, atol=1e-12)
    penalties = Penalties(2.0, 0.5, 1.0)
    assert penalised(moved, penalties) < penalised(Factors(left, right), penalties)
