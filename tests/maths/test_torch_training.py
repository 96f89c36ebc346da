"""Training of many clients at once: a step written in place is Adam's, and either form of the evidence is that of the posterior."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from unpooled.maths import bayes_linear
from unpooled.maths.descent import adam, adam_step
from unpooled.maths.torch_training import minus_evidence, moved, writable_copies


@pytest.mark.parametrize(
    "rate", [0.1, torch.tensor([[0.1], [0.02]], dtype=torch.float64)], ids=["one", "of each stack"]
)
def test_a_step_in_place_is_adams(rate):
    rng = np.random.default_rng(0)
    start = {"w": torch.tensor(rng.normal(size=(2, 3, 4))), "b": torch.tensor(rng.normal(size=(2, 3)))}
    states, expected = writable_copies({k: adam(v) for k, v in start.items()}), {k: adam(v) for k, v in start.items()}
    for _ in range(5):
        slopes = {k: torch.tensor(rng.normal(size=v.shape)) for k, v in start.items()}
        states = moved(states, list(slopes.values()), rate)
        for k, v in start.items():
            wide = rate if isinstance(rate, float) else rate.reshape(2, 1, *(1,) * (v.ndim - 2))
            expected[k] = adam_step(expected[k], slopes[k], wide)
    for k in start:
        assert_allclose(states[k].at.numpy(), expected[k].at.numpy(), rtol=1e-12)
        assert not np.allclose(states[k].at.numpy(), start[k].numpy())  # and the start is left alone


def test_what_is_not_a_number_moves_nothing():
    states = writable_copies({"w": adam(torch.ones(3, dtype=torch.float64))})
    found = moved(states, [torch.tensor([np.nan, 1.0, np.inf], dtype=torch.float64)], 0.5)["w"].at
    assert_allclose(found.numpy(), [1.0, 0.5, 1.0])


@pytest.mark.parametrize("features", [5, 40])
def test_the_evidence_is_that_of_the_posterior_for_few_rows_and_for_many(features):
    rng = np.random.default_rng(1)
    z, y, w = rng.normal(size=(20, features)), rng.normal(size=(20, 2)), (rng.random(20) < 0.8).astype(float)
    noise, prior = 0.3, 2.0
    leaves = {"log_noise": torch.tensor(np.log(noise)), "log_prior": torch.tensor(np.log(prior))}
    found = minus_evidence(torch.tensor(z), torch.tensor(y), torch.tensor(w), leaves)
    post = bayes_linear.posterior(bayes_linear.statistics(z, y, w), noise=noise, prior=prior)
    assert_allclose(float(found), -post.log_evidence.sum() / w.sum(), rtol=1e-10)
