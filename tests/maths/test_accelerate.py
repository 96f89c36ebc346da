"""Acceleration: accepted likelihoods never fall, the end is plain EM's, fewer rounds are needed, and the memory survives a file."""

import numpy as np
import pytest

from unpooled import store, tree
from unpooled.data import synthetic
from unpooled.maths import accelerate, gaussian, mixture, whitened
from unpooled.maths.mixture import Params

REG = 1e-6


def problem(shape, n=4000, k=3, d=3, separation=1.8, seed=0):
    made = synthetic.mixture(n, k, d, separation=separation, conditioning=4, covariance_type=shape, random_state=seed)
    x = next(iter(made.clients.values()))
    rng = np.random.default_rng(seed)
    covs = gaussian.reshape_covs(np.tile(np.cov(x.T, bias=True), (k, 1, 1)), shape)
    return x, Params(np.full(k, 1 / k), x[rng.choice(n, k, replace=False)], gaussian.pack_covs(covs, shape))


def plain(x, params, shape, rounds, gain=1e-10):
    found = []
    for _ in range(rounds):
        stats = mixture.e_step(params, x, np.ones(len(x)), shape)
        found.append(float(stats.loglik / stats.rows))
        if len(found) > 1 and found[-1] - found[-2] < gain:
            break
        params = mixture.m_step(params, stats, shape, REG)
    return np.array(found), params


def run(x, params, shape, rounds, through_file=False):
    memory, infos, asked = accelerate.start(params, shape), [], [params]
    for _ in range(rounds):
        stats = mixture.e_step(params, x, np.ones(len(x)), shape)
        if through_file:
            memory = store.loads(store.dumps(memory))
        memory, params, info = accelerate.advance(memory, params, stats, shape, REG)
        infos.append(info)
        asked.append(params)
        if info.gain < 1e-12:
            break
    return infos, asked


@pytest.mark.parametrize("shape", gaussian.SHAPES)
def test_accepted_likelihoods_never_fall_and_end_where_plain_em_does(shape):
    x, params = problem(shape)
    slow, _ = plain(x, params, shape, 3000)
    infos, _ = run(x, params, shape, len(slow))
    loglik = np.array([i.loglik for i in infos])
    assert (np.diff(loglik) > -1e-9).all()
    assert loglik[-1] > slow[-1] - 1e-7


def test_fewer_rounds_are_needed_on_a_hard_problem():
    x, params = problem("full", separation=1.2, seed=3)
    slow, _ = plain(x, params, "full", 3000)
    infos, _ = run(x, params, "full", len(slow))
    target = slow[-1] - 1e-6
    rounds = next(i for i, info in enumerate(infos, 1) if info.loglik >= target)
    assert len(slow) > 200
    assert rounds < np.argmax(slow >= target) / 2


def test_while_a_round_gains_much_it_is_plain_em():
    x, params = problem("full")
    _, asked = run(x, params, "full", 4)
    for told in asked[1:4]:
        params = mixture.m_step(params, mixture.e_step(params, x, np.ones(len(x)), "full"), "full", REG)
        np.testing.assert_allclose(told.means, params.means, rtol=1e-12)


@pytest.mark.parametrize("shape", gaussian.SHAPES)
def test_the_whitened_gradient_is_that_of_the_likelihood(shape):
    x, params = problem(shape, n=500)
    _, params = plain(x, params, shape, 3)
    frame = whitened.around(params, shape)
    w = np.ones(len(x))
    gradient = whitened.gradient(frame, mixture.e_step(params, x, w, shape), 0.0)
    rng = np.random.default_rng(1)
    for _ in range(3):
        step = 1e-5 * rng.normal(size=gradient.shape)
        ends = [mixture.log_density(whitened.move(frame, s * step), x, shape).mean() for s in (-1, 1)]
        np.testing.assert_allclose((ends[1] - ends[0]) / 2, gradient @ step, rtol=1e-4, atol=1e-12)


def test_the_memory_goes_through_a_file_without_a_trace():
    x, params = problem("diag")
    kept, _ = run(x, params, "diag", 40)
    saved, _ = run(x, params, "diag", 40, through_file=True)
    assert [i.loglik for i in kept] == [i.loglik for i in saved]
    assert all(
        np.array_equal(a, b) for a, b in zip(tree.leaves(kept[-1].best), tree.leaves(saved[-1].best), strict=True)
    )


def test_an_empty_component_does_not_stop_it():
    x, params = problem("full")
    far = params._replace(means=np.vstack([params.means[:2], np.full((1, 3), 1e4)]))
    infos, _ = run(x, far, "full", 30)
    assert np.isfinite([i.loglik for i in infos]).all()
    assert infos[-1].loglik > infos[0].loglik
