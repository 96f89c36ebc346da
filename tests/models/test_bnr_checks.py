"""Whatever a parameter of FedBNR, BayesianRegression or their peers is given, what cannot work is one sentence that names it."""

import inspect

import numpy as np
import pytest

import unpooled as up
from unpooled.baselines.ablation import AblatedBNR
from unpooled.baselines.central_gp import CentralGP
from unpooled.baselines.fedloc import FedLoc
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression, FedProxRegression
from unpooled.errors import BadData, BadParameter

MODELS = (up.FedBNR, up.BayesianRegression, FedAvgRegression, FedProxRegression, PFedGP, FedLoc, AblatedBNR, CentralGP)
EVERY = [(model, name) for model in MODELS for name in inspect.signature(model).parameters]
OWN_WORDS = {(CentralGP, "random_state")}  # scikit-learn's


@pytest.mark.parametrize("nonsense", ["a", -1, float("nan"), [1, "x"]], ids=repr)
@pytest.mark.parametrize(("model", "name"), EVERY, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_nonsense_is_one_sentence(model, name, nonsense):
    x = np.random.default_rng(0).normal(size=(20, 2))
    together = {"noise": {"prior": 1.0}, "prior": {"noise": 1.0}}.get(name, {})
    with pytest.raises(
        (BadParameter, BadData, ValueError) if (model, name) in OWN_WORDS else (BadParameter, BadData)
    ) as caught:
        model(**{name: nonsense, **together}).fit(x, x[:, 0] ** 2, by=np.arange(20) % 3)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
