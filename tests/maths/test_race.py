"""Acceleration: accepted likelihoods never fall, the end is plain EM's, fewer rounds are needed, and the memory survives a file."""

import numpy as np
import pytest

from unpooled import store, tree
from unpooled.data import synthetic
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models.mixture import race
from unpooled.models.mixture import whitening as whitened

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


def run(x, params, shape, rounds, through_file=False, alone=False, tol=1e-12):
    """The race after each round."""
    paths, found = race.start(params, shape, alone), []
    while len(found) < rounds and not race.settled(paths):
        if through_file:
            paths = store.loads(store.dumps(paths))
        answers = [mixture.e_step(asked, x, np.ones(len(x)), shape) for asked in race.asked(paths)]
        paths = race.advance(paths, answers, shape, REG, tol)
        found.append(paths)
    return found


def logliks(found):
    return np.array([race.leader(paths).loglik for paths in found])


@pytest.mark.parametrize("shape", gaussian.SHAPES)
def test_accepted_likelihoods_never_fall_and_end_where_plain_em_does(shape):
    x, params = problem(shape)
    slow, _ = plain(x, params, shape, 3000)
    loglik = logliks(run(x, params, shape, len(slow)))
    assert (np.diff(loglik) > -1e-9).all()
    assert loglik[-1] > slow[-1] - 1e-7


def test_fewer_rounds_are_needed_on_a_hard_problem():
    x, params = problem("full", separation=1.2, seed=3)
    slow, _ = plain(x, params, "full", 3000)
    target = slow[-1] - 1e-6
    rounds = 1 + int(np.argmax(logliks(run(x, params, "full", len(slow))) >= target))
    assert len(slow) > 200
    assert rounds < np.argmax(slow >= target) / 2


def test_while_a_round_gains_much_it_is_plain_em():
    x, params = problem("full")
    for paths in run(x, params, "full", 4)[:3]:
        params = mixture.m_step(params, mixture.e_step(params, x, np.ones(len(x)), "full"), "full", REG)
        (told,) = race.asked(paths)
        np.testing.assert_allclose(told.means, params.means, rtol=1e-12)


def test_plain_em_goes_on_beside_one_path():
    x, params = problem("full", separation=1.2, seed=3)
    slow, _ = plain(x, params, "full", 3000)
    found = run(x, params, "full", len(slow))
    trunk = np.array([paths.paths[0].loglik for paths in found])
    np.testing.assert_allclose(trunk, slow[: len(trunk)], rtol=1e-12)
    first = next(i for i, paths in enumerate(found) if len(paths.paths) > 1)
    assert first == 1 + np.argmax(np.abs(np.diff(slow)) <= race.DEPARTURES[0])
    assert max(len(race.asked(paths)) for paths in found) == 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
def test_it_stops_no_later_and_no_lower_than_plain_em(seed, tol):
    x, params = problem("full", n=1500, separation=1.2, seed=seed)
    slow, _ = plain(x, params, "full", 5000, tol)
    found = run(x, params, "full", 5000, tol=tol)
    assert race.settled(found[-1])
    assert len(found) <= len(slow)
    assert logliks(found)[-1] > slow[-1] - 1e-6


def test_what_plain_em_has_ahead_is_the_rest_of_a_geometric_series():
    _, params = problem("diag", n=100)
    trunk = race.start(params, "diag").paths[0]._replace(gain=1e-3, before=2e-3)
    np.testing.assert_allclose(race._ahead(trunk, 0.0), 1e-3)
    assert race._ahead(trunk._replace(gain=1e-9), 1e-6) == 0
    assert np.isfinite(race._ahead(trunk._replace(before=1e-4), 0.0))


def test_alone_is_one_path():
    x, params = problem("diag")
    found = run(x, params, "diag", 60, alone=True)
    assert {len(paths.paths) for paths in found} == {1}
    assert not found[-1].paths[0].memory.plain


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


def test_the_paths_go_through_a_file_without_a_trace():
    x, params = problem("diag")
    kept, saved = run(x, params, "diag", 40), run(x, params, "diag", 40, through_file=True)
    assert logliks(kept).tolist() == logliks(saved).tolist()
    best = [tree.leaves(race.leader(found[-1]).best) for found in (kept, saved)]
    assert all(np.array_equal(a, b) for a, b in zip(*best, strict=True))


def test_an_empty_component_does_not_stop_it():
    x, params = problem("full")
    far = params._replace(means=np.vstack([params.means[:2], np.full((1, 3), 1e4)]))
    loglik = logliks(run(x, far, "full", 30))
    assert np.isfinite(loglik).all()
    assert loglik[-1] > loglik[0]
