"""Adam and L-BFGS as values."""

import numpy as np
from scipy.optimize import rosen, rosen_der

from unpooled import tree
from unpooled.maths import descent


def minimise(state, steps, value=rosen, slope=rosen_der):
    values = []
    for _ in range(steps):
        f = value(state.at)
        if descent.wants_gradient(state, f):
            values.append(f)
            state = descent.keep(state, f, slope(state.at))
        else:
            state = descent.shorten(state)
    return state, values


def test_lbfgs_finds_the_valley_and_never_keeps_a_worse_point():
    state, values = minimise(descent.lbfgs(np.full(6, -1.2)), 150)
    assert state.value < 1e-12
    assert (np.diff(values) <= 0).all()


def test_a_value_that_is_no_number_shortens_the_step():
    def fenced(x):
        return np.nan if x.max() > 0.5 else ((x - 1) ** 2).sum()

    state, values = minimise(descent.lbfgs(np.zeros(3)), 60, fenced, lambda x: 2 * (x - 1))
    assert np.isfinite(values).all()
    assert 0.45 < state.base.max() <= 0.5


def test_lbfgs_can_be_saved_in_the_middle():
    whole, _ = minimise(descent.lbfgs(np.full(4, 2.0)), 40)
    half, _ = minimise(descent.lbfgs(np.full(4, 2.0)), 17)
    again, _ = minimise(tree.unpack(*tree.pack(half)), 23)
    for a, b in zip(whole, again):
        np.testing.assert_array_equal(a, b)


def test_adam_agrees_with_torch():
    import torch

    x = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    peer, state = torch.optim.Adam([x], lr=0.1, betas=(0.9, 0.99)), descent.adam(np.array([1.0, -2.0, 3.0]))
    for _ in range(50):
        peer.zero_grad()
        (x**4).sum().backward()
        peer.step()
        state = descent.adam_step(state, 4 * state.at**3, 0.1)
    np.testing.assert_allclose(state.at, x.detach().numpy(), rtol=1e-9)


def test_the_learning_rate_rises_and_falls():
    shares = [descent.warm_cosine(i, 60) for i in range(60)]
    assert np.argmax(shares) in range(8, 13)
    assert shares[0] < 0.15
    assert shares[-1] < 0.05
