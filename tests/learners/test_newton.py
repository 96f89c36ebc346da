"""Pooled Newton against autograd's second derivatives and scikit-learn's optimum."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from unpooled.learners import newton
from unpooled.learners.trainer import Trainer
from unpooled.maths import gaussian


def problem(n=60, d=3, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    how = Trainer("linear", d, list(range(classes)))
    x = rng.normal(size=(n, d))
    y = (x @ rng.normal(size=(d, classes)) + rng.gumbel(size=(n, classes))).argmax(-1)
    theta = how.start(rng, 2).reshape(2, classes, d + 1)
    return how, (theta - theta[:, :1]).reshape(2, -1), x, y, rng.random((n, 2))


def test_gradient_and_curvature_are_autograds():
    how, theta, x, y, s = problem()
    g, h = newton.curvature(how.log_proba(theta, x), x, y, s)
    for k in range(2):

        def loglik(free, k=k):
            full = torch.cat([torch.zeros(1, 4, dtype=torch.float64), free.reshape(2, 4)])
            scores = torch.tensor(x) @ full[:, :-1].T + full[:, -1]
            return -(F.cross_entropy(scores, torch.tensor(y), reduction="none") * torch.tensor(s[:, k])).sum()

        free = torch.tensor(theta[k].reshape(3, 4)[1:].ravel())
        np.testing.assert_allclose(g[k], torch.autograd.functional.jacobian(loglik, free), atol=1e-10)
        np.testing.assert_allclose(
            gaussian.unpack_triangle(h[k]), -torch.autograd.functional.hessian(loglik, free), atol=1e-10
        )


def test_stacked_clients_add_up_to_the_pooled():
    how, theta, x, y, s = problem()
    whole = newton.curvature(how.log_proba(theta, x), x, y, s)
    parts = [a.reshape(4, 15, *a.shape[1:]) for a in (x, y, s)]
    each = newton.curvature(how.log_proba(theta, parts[0]), *parts)
    for a, b in zip(whole, each):
        np.testing.assert_allclose(b.sum(0), a, atol=1e-10)


def test_steps_reach_the_regularised_optimum():
    how, theta, x, y, _ = problem(n=300, classes=2)
    s, prior = np.ones((300, 2)), np.array([2.0, 2.0, 2.0, 1e-9])
    seen = np.repeat((np.c_[x, np.ones(300)].T @ np.c_[x, np.ones(300)] / 300)[None], 2, axis=0)
    for _ in range(15):
        theta = newton.step(theta, *newton.curvature(how.log_proba(theta, x), x, y, s), prior, seen, np.zeros(3))
    wanted = LogisticRegression(C=0.5, tol=1e-10).fit(x, y)
    for one in theta.reshape(2, 2, 4):
        np.testing.assert_allclose(one[1] - one[0], [*wanted.coef_[0], wanted.intercept_[0]], atol=1e-5)


def test_a_step_is_never_longer_than_allowed():
    theta = problem(classes=2)[1]
    seen = np.repeat(np.eye(4)[None], 2, axis=0)
    far = newton.step(theta, 1e6 * np.ones((2, 4)), np.zeros((2, 10)), np.full(4, 1e-3), seen, np.zeros(3))
    assert (
        np.linalg.norm(far.reshape(2, 2, 4)[:, 1] - theta.reshape(2, 2, 4)[:, 1], axis=-1).max()
        <= newton.MAX_STEP + 1e-9
    )


def test_a_step_about_a_centre_is_the_step_of_rows_moved_there():
    how, theta, x, y, s = problem(classes=2)
    prior, seen, centre = np.array([0.1, 0.2, 0.3, 0.4]), np.repeat(np.eye(4)[None], 2, axis=0), np.array([5.0, -3, 2])
    near = newton.step(theta, *newton.curvature(how.log_proba(theta, x), x, y, s), prior, seen, np.zeros(3))
    moved = theta.reshape(2, 2, 4).copy()
    moved[..., 3] -= moved[..., :3] @ centre  # the same learner for rows x + centre
    moved = moved.reshape(2, -1)
    log_p = how.log_proba(moved, x + centre)
    far = newton.step(moved, *newton.curvature(log_p, x, y, s), prior, seen, centre)
    np.testing.assert_allclose(how.log_proba(far, x + centre), how.log_proba(near, x), atol=1e-10)


def test_long_tables_are_read_in_pieces_and_tensors_at_once():
    how, theta, x, y, s = problem(n=5000)
    log_p = how.log_proba(theta, x)
    there = newton.curvature(*(torch.tensor(a) for a in (log_p, x, y, s)))
    for ours, wanted in zip(newton.curvature(log_p, x, y, s), there, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-10, atol=1e-10)


def test_about_a_centre_is_as_if_rows_lay_there():
    how, theta, x, y, s = problem()
    log_p, centre = how.log_proba(theta, x), np.array([1.0, -2.0, 300.0])
    for far, near in zip(newton.curvature(log_p, x + centre, y, s, centre), newton.curvature(log_p, x, y, s)):
        np.testing.assert_allclose(far, near, atol=1e-10)
