"""Calibration by sums of held-out losses: it finds what was done to probabilities, and the sum does not depend on the split."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from unpooled.baselines import FedAvg
from unpooled.learners import calibration
from unpooled.learners.calibration import NONE, Calibration


def drawn(rng, n, c=4, spread=2.0):
    """Log-probabilities (n, c), and labels drawn from them."""
    log_p = calibration.tempered(spread * rng.normal(size=(n, c)), 1.0)
    return log_p, (rng.random((n, 1)) > np.exp(log_p).cumsum(1)).sum(1).clip(max=c - 1)


@pytest.mark.parametrize("temperature", [0.6, 1.5, 3.0])
def test_the_temperature_is_found(temperature):
    log_p, y = drawn(np.random.default_rng(0), 20_000)
    spoilt = calibration.tempered(log_p, 1 / temperature)
    (found,) = calibration.best(calibration.losses(spoilt[None], y, np.ones(len(y))))
    assert found.temperature == pytest.approx(temperature, rel=0.15)
    np.testing.assert_allclose(np.exp(calibration.calibrated(spoilt, found)).sum(1), 1.0)


def test_a_floor_is_found_where_labels_are_sometimes_arbitrary():
    rng = np.random.default_rng(1)
    log_p, y = drawn(rng, 20_000, spread=6.0)
    arbitrary = rng.random(len(y)) < 0.03
    y[arbitrary] = rng.integers(0, 4, arbitrary.sum())
    (found,) = calibration.best(calibration.losses(log_p[None], y, np.ones(len(y))))
    assert found == pytest.approx(Calibration(1.0, 0.03), rel=0.05)


def test_what_is_calibrated_stays_as_it_is():
    log_p, y = drawn(np.random.default_rng(2), 3000)
    assert calibration.best(calibration.losses(log_p[None], y, np.ones(len(y)))) == [NONE]
    assert calibration.calibrated(log_p, NONE) is log_p


def test_with_few_rows_the_temperature_is_held_near_one():
    log_p, y = drawn(np.random.default_rng(5), 60)
    sharp = np.exp(calibration.tempered(log_p, 0.5)).argmax(1)  # labels that are all as expected
    losses = calibration.losses(log_p[None], sharp, np.ones(len(y)))
    (found,) = calibration.best(losses)
    smallest = calibration.TEMPERATURES[losses.loss[0].min(1).argmin()]
    assert smallest < found.temperature < 0.8


def test_each_base_has_its_own_calibration():
    rng = np.random.default_rng(6)
    log_bases = np.stack([drawn(rng, 10)[0] for _ in range(3)])
    how = np.array([[2.0, 0.1], [0.5, 0.0]])
    found = calibration.calibrated_bases(log_bases, how)
    for base, own in zip((0, 1, 2), (0, 0, 1)):
        np.testing.assert_allclose(found[base], calibration.calibrated(log_bases[base], Calibration(*how[own])))


def test_losses_add_over_clients_and_are_the_log_loss():
    log_p, y = drawn(np.random.default_rng(3), 200)
    w = np.ones(200)
    whole = calibration.losses(log_p[None], y, w)
    parts = [calibration.losses(log_p[None, i::2], y[i::2], w[i::2]) for i in (0, 1)]
    np.testing.assert_allclose(parts[0].loss + parts[1].loss, whole.loss, rtol=1e-6)
    one = np.flatnonzero(calibration.TEMPERATURES == 1.0)[0]
    assert whole.loss[0, one, 0] == pytest.approx(200 * log_loss(y, np.exp(log_p)), rel=1e-6)  # logs have 32 bits


def test_a_strong_penalty_is_made_up_for_by_the_temperature():
    rng = np.random.default_rng(4)

    def rows(n):
        x = rng.normal(size=(n, 3))
        return x, (x @ [4.0, 4.0, 0.0] + rng.logistic(size=n) > 0).astype(int)

    data = {name: rows(150) for name in "abcd"}
    model = FedAvg(C=0.01, random_state=0).fit(data)
    plain = FedAvg(C=0.01, personalize="none", random_state=0).fit(data)
    assert model.calibration_.temperature < 0.8
    x, y = rows(4000)
    assert log_loss(y, model.predict_proba(x)) < 0.85 * log_loss(y, plain.predict_proba(x))
    np.testing.assert_array_equal(model.predict(x), plain.predict(x))
