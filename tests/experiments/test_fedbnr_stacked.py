"""The experiments' runs of many splits at once are the library's runs, one by one."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.baselines.fedloc import FedLoc
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression, FedProxRegression
from unpooled.maths import bayes_linear, calibration
from unpooled.maths.feature_maps import Kernel, features
from unpooled.metrics.regression import rmse

FOLDER = Path(__file__).parents[2] / "experiments" / "fedbnr"
LOCAL = ("_ablation", "_stacked", "_trainings", "_stack", "_runs", "_protocol")
SEEDS, EPOCHS, ROUNDS, RATE, MU, ALPHA, RHO = [3, 4], 3, 3, 0.01, 0.5, 2.0, 50.0


@pytest.fixture(name="stacked", scope="module")
def stacked_():
    """The experiment's module with small networks, which leaves no trace: other experiments have files of the same names."""
    sys.path.insert(0, str(FOLDER))
    for name in LOCAL:
        sys.modules.pop(name, None)
    module = import_module("_stacked")
    module.trainings.EPOCHS, module.trainings.WIDTH, module.trainings.LATENT = EPOCHS, 10, 3
    yield module
    sys.path.remove(str(FOLDER))
    for name in LOCAL:
        sys.modules.pop(name, None)


@pytest.fixture(name="ablated")
def ablated_(stacked):
    """FedBNR with a local kernel or last layer, one federation at a time."""
    return import_module("_ablation").AblatedBNR


def split_of(stacked, seed):
    """Four clients of different sizes, 40 validation and 50 test rows."""
    rng = np.random.default_rng(seed)
    x = 5 + rng.normal(size=(240, 3)) * [1, 10, 0.1]
    y = 100 + 7 * np.sin(x[:, 0]) + x[:, 1] + rng.normal(size=240)
    owner = np.searchsorted([0.1, 0.3, 0.6], rng.random(190))
    return stacked.protocol.Split(x[:190], y[:190], np.arange(190) >= 150, owner, x[190:], y[190:])


@pytest.fixture(name="splits", scope="module")
def splits_(stacked):
    return [split_of(stacked, seed) for seed in SEEDS]


def followed(stacked, splits, training, rounds=ROUNDS, setting=RATE):
    """What the experiment makes of both splits at once."""
    rows = stacked.stack(splits, 1, "cpu", training == "distill")
    each = torch.full((len(SEEDS), 1), setting, dtype=torch.float64)
    made = stacked.TRAININGS[training](rows, each, SEEDS, {"mu": MU, "alpha": ALPHA})
    return rows, made, stacked.follow(rows, made, rounds)


def fed_of(split):
    return up.federate(split.clients(~split.held))


def published(stacked, split, **options):
    server = (split.x[split.held], split.y[split.held])
    how = {"max_iter": ROUNDS, "local_epochs": EPOCHS, "local_rate": RATE, "server_data": server, "server_noise": False,
           "recalibrate": False, "hidden": (10, 10), "latent_dim": 3, **options}  # fmt: skip
    return stacked.trainings.published(**how)


@pytest.mark.parametrize(("training", "kernel", "method"), [("average", "average", "FedBNR as printed"),
                                                      ("distill", "distill", "FedBNR-KD as printed")])  # fmt: skip
def test_the_printed_algorithm(stacked, splits, training, kernel, method):
    rows, made, watches = followed(stacked, splits, training)
    for i, (seed, split) in enumerate(zip(SEEDS, splits)):
        options = {"distill_weight": ALPHA, "distill_rate": RATE, "distill_steps": stacked.trainings.DISTILL_STEPS}
        model = up.FedBNR(kernel, random_state=seed, **published(stacked, split, **options)).fit(fed_of(split))
        mean, std = model.predict(split.x_test, return_std=True)
        assert model.best_round_ == watches[method].round[i]
        found = stacked.judged(rows, i, watches[method].best, made.omega, made.methods[method])
        expected = stacked.runs.judge_one(split.y_test, mean, std)
        assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-6)


def test_with_noise_from_the_server_and_honest_intervals(stacked, splits):
    rows, made, watches = followed(stacked, splits, "average")
    best = watches["FedBNR as printed"]
    options = published(stacked, splits[0], server_noise=True, recalibrate=True, max_iter=int(best.round[0]))
    model = up.FedBNR("average", random_state=SEEDS[0], **options).fit(fed_of(splits[0]))
    assert model.best_round_ == best.round[0]
    found = stacked.with_server_noise(rows, 0, best.best, made.omega)
    mean, std = model.predict(splits[0].x_test, return_std=True)

    def interval(level):
        low, high = calibration.quantile(model.histogram_, np.array([0.5 - level / 2, 0.5 + level / 2]))[0]
        return mean + low * std, mean + high * std

    expected = stacked.runs.judge_one(splits[0].y_test, mean, std, interval)
    assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "model"), [("FedAvg", FedAvgRegression), ("FedProx", FedProxRegression), ("pFedGP", PFedGP)]
)
def test_averaged_networks(stacked, splits, name, model):
    _, _, watches = followed(stacked, splits, name)
    options = {"proximal": MU} if name == "FedProx" else {}
    hidden, latent = ((200, 200), 8) if name == "pFedGP" else ((200,), 200)
    for i, (seed, split) in enumerate(zip(SEEDS, splits)):
        peer = model(hidden, latent_dim=latent, local_epochs=EPOCHS, local_rate=RATE, max_iter=ROUNDS, validation_fraction=0.0,
                     random_state=seed, **options).fit(fed_of(split))  # fmt: skip
        each = (
            [m for m, _ in peer.predict_each(split.x_test).values()]
            if name == "pFedGP"
            else [peer.predict(split.x_test)]
        )
        assert_allclose(watches[name].errors[i][-1], np.mean([rmse(split.y_test, m) for m in each]), rtol=1e-6)


def test_fedloc(stacked, splits):
    _, _, watches = followed(stacked, splits, "FedLoc", rounds=6, setting=RHO)
    smallest = min(len(y) for split in splits for _, y in split.clients(~split.held).values())
    for i, split in enumerate(splits):
        peer = FedLoc(rho=RHO, n_inducing=min(50, smallest), max_iter=5, tol=0.0).fit(fed_of(split))
        assert_allclose(watches["FedLoc"].errors[i][-1], rmse(split.y_test, peer.predict(split.x_test)), rtol=1e-6)


def test_kernels_of_clients_alone(stacked, splits, ablated):
    rows, made, _ = followed(stacked, splits, "local", rounds=1)
    leaves, both = made.leaves, torch.arange(2)
    for _ in range(2):
        leaves = made.advance(rows, both, leaves, made.omega)
    for i, (seed, split) in enumerate(zip(SEEDS, splits)):
        settings = published(stacked, split, max_iter=2)
        peer = ablated("local", "local", settings=settings, random_state=None)
        whole = peer._whole(seed)
        fed = fed_of(split)
        state = whole.init(fed, np.random.default_rng(seed))
        for c, design in enumerate(peer._alone(fed, whole, state.design).values()):
            for key, value in design.kernel.theta.items():
                assert_allclose(leaves[key][i, c].numpy(), value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("method", "everybody"), [("local+local", False), ("local+global", True)])
def test_last_layers_of_clients_alone(stacked, splits, method, everybody):
    rows, made, watches = followed(stacked, splits, "local", rounds=2)
    best, spec, i = watches[method].best, stacked.trainings.printed_spec(), 1
    mean, variance = made.methods[method](rows, i, best, made.omega, rows.x_test[i], True)
    for c in range(4):
        theta = {k: v[i, c].numpy() for k, v in best.items() if not k.startswith("log_")}
        kernel = Kernel(theta, {k: v[i, 0].numpy() for k, v in made.omega.items()})
        some = slice(None) if everybody else slice(c, c + 1)
        x, y, w = (a[i, some].flatten(0, 1).numpy() for a in (rows.x, rows.y, rows.w))
        noise, prior = (float(best[k][i, c].exp()) for k in ("log_noise", "log_prior"))
        post = bayes_linear.posterior(
            bayes_linear.statistics(features(spec, kernel, x), y, w), noise=noise, prior=prior
        )
        expected = bayes_linear.predict(post, features(spec, kernel, rows.x_test[i].numpy()))
        assert_allclose(mean[c].numpy(), expected[0][:, 0], rtol=1e-6, atol=1e-8)
        assert_allclose(variance[c].numpy(), expected[1][:, 0], rtol=1e-6)


def test_a_run_ends_when_it_no_longer_gains_and_the_others_go_on(stacked, splits, monkeypatch):
    monkeypatch.setattr(stacked, "PATIENCE", 1)
    _, _, short = followed(stacked, splits, "FedAvg", rounds=40, setting=0.002)
    monkeypatch.setattr(stacked, "PATIENCE", 50)
    _, _, full = followed(stacked, splits, "FedAvg", rounds=40, setting=0.002)
    counts = [len(e) for e in short["FedAvg"].errors]
    assert counts[0] != counts[1]
    assert max(counts) < 40
    for some, all_ in zip(short["FedAvg"].errors, full["FedAvg"].errors):
        assert_allclose(some, all_[: len(some)], rtol=1e-8)
