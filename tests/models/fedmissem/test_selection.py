"""Which of FedMissEM's models are averaged, and with which weights, from losses on visits held back."""

import numpy as np
from scipy.optimize import minimize

from unpooled.models.fedmissem.averaging import average_weights
from unpooled.models.fedmissem.bilinear import Factors, Penalties, level_in_dates, penalised
from unpooled.models.fedmissem.questions import Held, Losses
from unpooled.models.fedmissem.selection import Model, best_family, best_model, may_be_averaged
from unpooled.models.fedmissem.totals import average_totals

ONE = Penalties(1.0, 1.0, 1.0)


def held(squares, deviances):
    """The sums of losses (models, visits)."""
    made = [Losses(losses.sum(1), losses @ losses.T) for losses in map(np.asarray, (squares, deviances))]
    errors = np.sqrt(np.maximum(squares, 0.0))
    return Held(np.asarray(float(len(squares[0]))), made[0], errors @ errors.T, made[1])


def losses(*means, seed=0):
    """Losses of as many models at 400 visits, which differ by their means and by little noise."""
    rng = np.random.default_rng(seed)
    common = rng.exponential(size=400)
    return np.stack([mean + common + 0.01 * rng.normal(size=400) for mean in means])


def test_factors_are_averaged_only_if_they_beat_effects_in_both_losses():
    models, better = [Model("poisson", rank, ONE) for rank in (0, 1)], losses(1.0, 0.5)
    allowed = lambda squares, deviances: may_be_averaged(held(squares, deviances), models, "poisson").tolist()  # noqa: E731
    assert allowed(better, better) == [True, True]
    assert allowed(losses(1.0, 1.2), better) == [True, False]  # far off in the largest cells
    assert allowed(better, losses(1.0, 1.0)) == [True, False]  # no better by deviance


def test_models_of_the_chosen_family_are_averaged():
    models = [Model(family, 0, ONE) for family in ("poisson", "gaussian", "tweedie", "poisson")]
    same = losses(1.0, 1.0, 1.0, 1.0)
    assert may_be_averaged(held(same, same), models, "poisson").tolist() == [True, False, False, True]


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
    total, std = average_totals(
        np.array([0.5, 0.5]), [(np.array([9.0, 5.0]), np.ones(2)), (np.array([11.0, 5.0]), np.ones(2))]
    )
    np.testing.assert_allclose(total, [10.0, 5.0])
    np.testing.assert_allclose(std, [np.sqrt(2.0), 1.0])


def test_squared_error_decides_where_deviance_does_not():
    noisy = np.random.default_rng(1).permuted(
        np.tile(np.linspace(0.1, 2.0, 400), (3, 1)), axis=1
    )  # the same on average
    models = [Model(family, 0, ONE) for family in ("poisson", "tweedie", "poisson")]
    assert best_model(held(losses(1.0, 0.2, 0.6), noisy), models) == 1
    assert best_model(held(losses(1.0, 0.2, 0.6), losses(0.1, 1.0, 1.0)), models) == 0
    assert best_model(held(losses(1.0, 0.2, 0.6), noisy), models, "poisson") == 2


def test_the_first_family_is_kept_unless_another_is_clearly_better():
    models = [Model(family, 0, Penalties(p, p, p)) for family in ("poisson", "gaussian") for p in (0.1, 1.0)]
    deviances = losses(1.0, 0.5, 30.0, 20.0)  # of two kinds: not compared between families
    assert best_family(held(losses(1.0, 0.9, 0.95, 0.9), deviances), models) == 1
    assert best_family(held(losses(1.0, 0.9, 0.5, 0.3), deviances), models) == 3


def test_the_level_of_all_sites_moves_to_the_dates():
    rng = np.random.default_rng(2)
    left = np.column_stack([1 + rng.normal(size=6), np.ones(6), rng.normal(size=6)])
    right = np.column_stack([np.ones(4), rng.normal(size=4), rng.normal(size=4)])
    moved = level_in_dates(Factors(left, right))
    np.testing.assert_allclose(moved.left @ moved.right.T, left @ right.T, atol=1e-12)
    penalties = Penalties(2.0, 0.5, 1.0)
    assert penalised(moved, penalties) < penalised(Factors(left, right), penalties)
