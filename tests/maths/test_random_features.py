"""The inner products of random features tend to kernels in closed form."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from unpooled.maths import random_features as rf

M = 200_000


@pytest.fixture(name="rows")
def rows_():
    return np.random.default_rng(0).normal(size=(5, 3)) * 0.5


@pytest.mark.parametrize(
    ("spectrum", "oracle"),
    [
        ("rbf", RBF(1.0)),
        ("matern12", Matern(1.0, nu=0.5)),
        ("matern32", Matern(1.0, nu=1.5)),
        ("matern52", Matern(1.0, nu=2.5)),
    ],
)
def test_waves_tend_to_the_stationary_kernel(rows, spectrum, oracle):
    z = rf.waves(rows @ rf.frequencies(spectrum, M, 3, np.random.default_rng(1)))
    np.testing.assert_allclose(z @ z.T, oracle(rows), atol=0.012)


def test_exponentials_tend_to_their_kernel(rows):
    z = rf.exponentials(0.5 * rows @ rf.frequencies("rbf", M, 3, np.random.default_rng(1)))
    kernel = np.exp(0.5 * ((0.5 * rows[:, None] + 0.5 * rows) ** 2).sum(-1))
    np.testing.assert_allclose(z @ z.T, kernel, rtol=0.03)


@pytest.mark.parametrize(("degree", "constant"), [(1, 0.5), (2, 1.0), (3, 2.0)])
def test_products_tend_to_the_polynomial_kernel(rows, degree, constant):
    drawn = rf.powers(degree, M, 3, np.random.default_rng(1))
    assert (drawn.sum(1) == degree).all()
    z = rf.products(rows, drawn, constant)
    assert (rows < 0).any()  # powers of negative numbers are real
    np.testing.assert_allclose(z @ z.T, (rows @ rows.T + constant) ** degree, rtol=0.04, atol=0.04)
