"""Whatever a parameter of FedBNR, BayesianRegression or their peers is given, what cannot work is one sentence that names it."""

import inspect

import numpy as np
import pytest
import torch

import unpooled as up
from unpooled.baselines.central_gp import CentralGP
from unpooled.baselines.fedloc import FedLoc
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression, FedProxRegression
from unpooled.errors import BadData, BadParameter, DataWarning

MODELS = (up.FedBNR, up.BayesianRegression, FedAvgRegression, FedProxRegression, PFedGP, FedLoc, CentralGP)
EVERY = [(model, name) for model in MODELS for name in inspect.signature(model).parameters]


@pytest.mark.parametrize("nonsense", ["a", -1, float("nan"), [1, "x"]], ids=repr)
@pytest.mark.parametrize(("model", "name"), EVERY, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_nonsense_is_one_sentence(model, name, nonsense):
    x = np.random.default_rng(0).normal(size=(20, 2))
    together = {"noise": {"prior": 1.0}, "prior": {"noise": 1.0}}.get(name, {})
    with pytest.raises((BadParameter, BadData)) as caught:
        model(**{name: nonsense, **together}).fit(x, x[:, 0] ** 2, by=np.arange(20) % 3)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


ROWS = np.random.default_rng(1).normal(size=(90, 3))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"features": torch.nn.Linear(5, 4)}, "features=Linear cannot take rows of 3 columns"),
        (
            {"features": torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))},
            "must give one row of features per row",
        ),
        (
            {"kernel": "distill", "server_data": (ROWS[:9, :2], ROWS[:9, 0])},
            "server_data has 2 columns but the clients have 3",
        ),
        (
            {"kernel": "distill", "server_data": (ROWS[:9], ROWS[:9, :2])},
            "server_data has 2 targets but the clients have 1",
        ),
        ({"kernel": "distill", "server_data": (ROWS[:9], np.full(9, np.nan))}, "server_data cannot be used"),
    ],
)
def test_what_only_the_rows_can_show_is_refused_before_a_round(options, says):
    with pytest.raises((BadParameter, BadData), match=says):
        up.FedBNR(max_iter=3, n_frequencies=4, random_state=0, **options).fit(
            ROWS, ROWS[:, 0] ** 2, by=np.arange(90) % 3
        )


def test_draws_are_counted():
    model = up.BayesianRegression().fit(ROWS, ROWS[:, 0] + ROWS[:, 1] ** 2)
    with pytest.raises(BadParameter, match="n_samples='a'"):
        model.sample_y(ROWS, "a")


def test_few_rows_of_which_none_is_held_out_are_fitted_with_a_warning():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(212, 2))
    y = x @ [1.0, 0.5] + 0.3 * rng.normal(size=212)
    with pytest.warns(DataWarning, match=r"holds out none of 12 rows.*last round") as seen:
        model = up.FedBNR(random_state=2).fit(x[:12], y[:12], by=np.arange(12) % 3)
    assert len(seen) == 1
    lower, upper = model.interval(x[12:])
    assert np.mean((lower <= y[12:]) & (y[12:] <= upper)) > 0.8
    with pytest.raises(BadData, match="holds out none of 12 rows: raise it"):
        up.FedBNR(features="deep", random_state=2).fit(x[:12], y[:12])
