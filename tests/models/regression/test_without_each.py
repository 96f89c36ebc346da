"""Leave one site out by subtraction is the refit without it."""

import numpy as np
import pytest
from flower_grid import flower

import unpooled as up
from unpooled.client import Client
from unpooled.errors import BadParameter

RNG = np.random.default_rng(0)
SITES = {}
for i, n in enumerate((30, 50, 40, 25)):
    x = RNG.normal(size=(n, 3)) * [1.0, 5.0, 100.0] + [0.0, 20.0, 1000.0]
    SITES[f"site {i}"] = (x, 5 + x @ [1.0, -0.3, 0.01] + (1 + 0.2 * i) * RNG.normal(size=n))


def close(found, refit):
    np.testing.assert_allclose(found["coef"], refit.coef_, rtol=1e-10, atol=1e-10 * np.abs(refit.coef_).max())
    np.testing.assert_allclose(found["intercept"], refit.intercept_, rtol=1e-10)


@pytest.mark.parametrize(
    "options", [{}, {"noise": 1.0, "prior": 10.0}, {"standardize": False, "noise": 2.0, "prior": 1.0}], ids=str
)
def test_it_is_the_refit(options):
    found = up.BayesianRegression(**options).fit(SITES).leave_one_site_out()
    for name in SITES:
        rest = {other: d for other, d in SITES.items() if other != name}
        close(found[name], up.BayesianRegression(**options).fit(rest))


def test_of_a_polynomial_it_is_what_forgetting_gives():
    model = up.BayesianRegression(degree=2).fit(SITES)
    found = model.leave_one_site_out()["site 1"]
    forgotten = model.forget("site 1")
    np.testing.assert_allclose(found["coef"], forgotten.coef_, rtol=1e-8)


def test_two_targets_have_two_rows_of_coefficients():
    double = {name: (x, np.column_stack([y, -2 * y])) for name, (x, y) in SITES.items()}
    found = up.BayesianRegression(noise=1.0, prior=10.0).fit(double).leave_one_site_out()
    rest = {other: d for other, d in double.items() if other != "site 2"}
    close(found["site 2"], up.BayesianRegression(noise=1.0, prior=10.0).fit(rest))


def test_over_flower_it_is_one_sum(tmp_path):
    model = up.BayesianRegression().fit(SITES)
    fed = flower([Client(name, *d) for name, d in SITES.items()])
    there = up.BayesianRegression().fit(fed)
    before = len(fed.journal.exchanges)
    found = there.leave_one_site_out()
    assert [e.kind for e in fed.journal.exchanges[before:]] == ["sum"]
    for name, one in model.leave_one_site_out().items():
        np.testing.assert_allclose(found[name]["coef"], one["coef"], rtol=1e-10)
    with pytest.raises(BadParameter, match="give the data= that it was fitted to"):
        up.load(there.save(tmp_path)).leave_one_site_out()
