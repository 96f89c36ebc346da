"""Which of FedMissEM's models is kept, from losses on visits held back."""

import numpy as np

from unpooled.models.fedmissem.bilinear import Factors, Penalties, level_in_dates, penalised
from unpooled.models.fedmissem.questions import Held, Losses
from unpooled.models.fedmissem.selection import Model, best_family, best_model, simplest


def held(squares, deviances):
    """The sums of losses (models, visits)."""
    made = [Losses(losses.sum(1), losses @ losses.T) for losses in map(np.asarray, (squares, deviances))]
    return Held(np.asarray(float(len(squares[0]))), *made)


def losses(*means, seed=0):
    """Losses of as many models at 400 visits, which differ by their means and by little noise."""
    rng = np.random.default_rng(seed)
    common = rng.exponential(size=400)
    return np.stack([mean + common + 0.01 * rng.normal(size=400) for mean in means])


def test_factors_must_beat_effects_in_both_losses():
    better = losses(1.0, 0.5)
    assert simplest(held(better, better)) == 1
    assert simplest(held(losses(1.0, 1.2), better)) == 0  # far off in the largest cells
    assert simplest(held(better, losses(1.0, 1.0))) == 0  # no better by deviance: the simplest is kept


def test_squared_error_decides_where_deviance_does_not():
    noisy = np.random.default_rng(1).permuted(
        np.tile(np.linspace(0.1, 2.0, 400), (3, 1)), axis=1
    )  # the same on average
    assert best_model(held(losses(1.0, 0.2, 0.6), noisy), [0, 1, 2]) == 1
    assert best_model(held(losses(1.0, 0.2, 0.6), losses(0.1, 1.0, 1.0)), [0, 1, 2]) == 0
    assert best_model(held(losses(1.0, 0.2, 0.6), noisy), [0, 2]) == 2


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
