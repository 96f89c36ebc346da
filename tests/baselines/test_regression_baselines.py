"""The peers of FedBNR against oracles: one client is the central process, formulas are those of NumPy and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import unpooled as up
from unpooled import tree
from unpooled.baselines.central_gp import CentralGP
from unpooled.baselines.fedloc import FedLoc, minus_evidence_slope
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression, FedProxRegression
from unpooled.errors import BadData, BadParameter
from unpooled.maths import fitc


@pytest.fixture(name="rows", scope="module")
def rows_():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(150, 2))
    return x, 10 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=150), rng.integers(0, 3, 150)


def clients_of(x, y, by):
    return {f"c{c}": (x[by == c], y[by == c]) for c in np.unique(by)}


def peer_of(leaves, x, y):
    """scikit-learn's exact process with these hyper-parameters, on standardised rows."""
    kernel = ConstantKernel(np.exp(leaves["log_signal"])) * RBF(np.exp(leaves["log_scale"])) + WhiteKernel(
        np.exp(leaves["log_noise"])
    )
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0).fit(x, y)


def standardised(x, y):
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def test_fitc_on_all_rows_is_the_exact_process(rows):
    x, y = standardised(*rows[:2])
    leaves = {"log_signal": np.array(0.3), "log_noise": np.array(-2.0), "log_scale": np.zeros(2)}
    peer = peer_of(leaves, x, y)
    signal, noise = torch.tensor(0.3), torch.tensor(-2.0)
    xt, yt = torch.tensor(x), torch.tensor(y)[:, None]
    known = fitc.fit(xt, yt, torch.ones(150), xt, signal, noise)
    mean, variance = fitc.predict(known, xt[:20] + 0.1, xt, signal, noise)
    expected, std = peer.predict(x[:20] + 0.1, return_std=True)
    np.testing.assert_allclose(float(known.evidence), peer.log_marginal_likelihood_value_, rtol=1e-5)
    np.testing.assert_allclose(mean.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(variance.sqrt().numpy(), std, rtol=1e-5)


def test_padding_and_stacking_do_not_change_fitc(rows):
    x, y = (torch.tensor(a) for a in standardised(*rows[:2]))
    z, signal, noise = x[:20], *torch.tensor([0.0, -1.0], dtype=torch.float64)
    alone = fitc.fit(x[:90], y[:90, None], torch.ones(90).double(), z, signal, noise).evidence
    w = (torch.arange(150) < 90).double()
    stacked = fitc.fit(torch.stack([x, x]), torch.stack([y, y])[..., None], torch.stack([w, 1 - w]), z, signal, noise)
    np.testing.assert_allclose(float(stacked.evidence[0]), float(alone), rtol=1e-10)


def test_fedloc_of_one_client_is_its_exact_process(rows):
    x, y, _ = rows
    model = FedLoc(rho=50.0, n_inducing=150, max_iter=40).fit(x, y)
    sx, sy = standardised(x, y)
    peer = peer_of(model.consensus_.leaves, sx, sy)
    mean, std = model.predict(x[:30] + 0.05, return_std=True)
    expected, spread = peer.predict((x[:30] + 0.05 - x.mean(0)) / x.std(0), return_std=True)
    np.testing.assert_allclose(mean, y.mean() + y.std() * expected, rtol=1e-5)
    np.testing.assert_allclose(std, y.std() * spread, rtol=1e-4)
    losses = [row["loss"] for row in model.history_]
    assert losses[-1] < losses[0]


def test_fedlocs_slope_is_that_of_its_loss(rows):
    x, y = standardised(*rows[:2])
    leaves = {"log_scale": np.array([0.1, 0.4]), "log_signal": np.array(0.2), "log_noise": np.array(-1.0)}
    slope, _ = minus_evidence_slope(leaves, x, y[:, None], np.ones(150), 30)
    flat, step = tree.flatten(leaves), 1e-5
    for i in range(4):
        ends = [tree.unflatten(flat + s * step * (np.arange(4) == i), leaves) for s in (1, -1)]
        up_, down = (minus_evidence_slope(e, x, y[:, None], np.ones(150), 30)[1] for e in ends)
        np.testing.assert_allclose(tree.flatten(slope)[i], (up_ - down) / (2 * step), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("combine", ["gpoe", "rbcm"])
def test_fedloc_combines_its_experts_by_the_formula(rows, combine):
    x, y, by = rows
    model = FedLoc(rho=100.0, n_inducing=150, combine=combine, max_iter=3).fit(clients_of(x, y, by))
    leaves, sx, sy = model.consensus_.leaves, *standardised(x, y)
    new = sx[:10] + 0.1
    mean, std = model.predict(x.mean(0) + x.std(0) * new, return_std=True)
    signal, noise = np.exp(leaves["log_signal"]), np.exp(leaves["log_noise"])
    precision, pull, beta = 0.0, 0.0, 0.0
    for c in range(3):
        m, s = peer_of(leaves, sx[by == c], sy[by == c]).predict(new, return_std=True)
        v = s**2 - noise
        b = 0.5 * (np.log(signal) - np.log(v)) if combine == "rbcm" else np.full(10, 1 / 3)
        precision, pull, beta = precision + b / v, pull + b * m / v, beta + b
    precision = precision + (1 - beta) / signal if combine == "rbcm" else precision
    np.testing.assert_allclose(mean, y.mean() + y.std() * pull / precision, rtol=1e-4)
    np.testing.assert_allclose(std, y.std() * np.sqrt(1 / precision + noise), rtol=1e-3)


def test_fedloc_of_clients_that_agree_is_that_of_one(rows):
    x, y, _ = rows
    twins = FedLoc(rho=100.0, max_iter=5).fit({"a": (x, y), "b": (x, y)})
    alone = FedLoc(rho=100.0, max_iter=5).fit(x, y)
    np.testing.assert_allclose(tree.flatten(twins.consensus_.leaves), tree.flatten(alone.consensus_.leaves), rtol=1e-8)


def test_pfedgp_learns_and_predicts_at_each_client(rows):
    x, y, by = rows
    model = PFedGP(hidden=(8,), latent_dim=2, n_inducing=15, max_iter=12, local_rate=0.04, random_state=0).fit(
        clients_of(x, y, by)
    )
    each = model.predict_each(x)
    assert sorted(each) == ["c0", "c1", "c2"]
    errors = [np.sqrt(np.mean((y[by == c] - each[f"c{c}"][0][by == c]) ** 2)) for c in range(3)]
    assert max(errors) < 0.5 * y.std()
    scores = [row["val_mse"] for row in model.history_]
    assert min(scores) < 0.5 * scores[0]
    np.testing.assert_allclose(model.predict(x[:5], client="c1"), each["c1"][0][:5])


def test_pfedgp_of_one_client_is_the_sparse_central_process(rows):
    x, y, _ = rows
    model = PFedGP(hidden=(4,), latent_dim=2, n_inducing=10, max_iter=2, validation_fraction=0.0, random_state=0).fit(
        x, y
    )
    from unpooled.maths.torch_training import sparse_fit, sparse_predict

    sx, sy = standardised(x, y)
    spec, leaves = model._spec(), model.network_.leaves
    mean, variance = sparse_predict(spec, leaves, sparse_fit(spec, leaves, (sx, sy[:, None], np.ones(150))), sx)
    ours, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(ours, y.mean() + y.std() * mean, rtol=1e-8)
    np.testing.assert_allclose(std, y.std() * np.sqrt(variance), rtol=1e-8)


def test_averaging_one_client_is_training_it_alone(rows):
    x, y, _ = rows
    settings = {
        "hidden": (8,),
        "latent_dim": 8,
        "local_rate": 0.01,
        "validation_fraction": 0.0,
        "random_state": 0,
        "activation": "tanh",
    }
    rounds = FedAvgRegression(local_epochs=30, max_iter=2, **settings).fit(x, y)
    from unpooled.maths.torch_training import descend

    start = FedAvgRegression(local_epochs=30, max_iter=1, **settings)
    state = start.init(up.federate(x, y), np.random.default_rng(0))
    sx, sy = standardised(x, y)
    alone = descend(
        start._spec(), state.network.leaves, {}, (sx, sy[:, None], np.ones(150)), loss="squared", epochs=30, rate=0.01
    )
    for key, leaf in alone.items():
        np.testing.assert_allclose(rounds.network_.leaves[key], leaf, rtol=1e-7, atol=1e-9)


def test_averaged_networks_learn_and_a_strong_pull_keeps_them_home(rows):
    x, y, by = rows
    settings = {
        "hidden": (16,),
        "latent_dim": 16,
        "local_epochs": 15,
        "local_rate": 0.02,
        "max_iter": 30,
        "random_state": 0,
    }
    free = FedAvgRegression(**settings).fit(clients_of(x, y, by))
    assert free.score(x, y) > 0.9
    held = FedProxRegression(proximal=1e6, **(settings | {"max_iter": 1})).fit(clients_of(x, y, by))
    loose = FedProxRegression(proximal=0.0, **(settings | {"max_iter": 1})).fit(clients_of(x, y, by))
    assert loose.get_params()["proximal"] == 0.0
    start = held.init(up.federate(x, y), np.random.default_rng(0)).network.leaves
    first = held.step(up.federate(x, y), held.init(up.federate(x, y), np.random.default_rng(0)))[0].network.leaves
    other = loose.step(up.federate(x, y), loose.init(up.federate(x, y), np.random.default_rng(0)))[0].network.leaves
    away = [np.linalg.norm(tree.flatten(a) - tree.flatten(start)) for a in (first, other)]
    assert away[0] < 0.5 * away[1]


def test_the_central_process_is_scikit_learns_and_fedbnrs(rows):
    x, y, by = rows
    exact = CentralGP(max_iter=0).fit(clients_of(x, y, by))
    order = np.argsort(by, kind="stable")
    sx, sy = standardised(x[order], y[order])
    kernel = ConstantKernel() * RBF(np.full(2, np.sqrt(2))) + WhiteKernel(0.1)
    peer = GaussianProcessRegressor(kernel, optimizer=None).fit(sx, sy)
    mean, std = exact.predict(x[order], return_std=True)
    expected, spread = peer.predict(sx, return_std=True)
    np.testing.assert_allclose(mean, y.mean() + y.std() * expected, rtol=1e-8)
    np.testing.assert_allclose(std, y.std() * spread, rtol=1e-6)
    np.testing.assert_allclose(exact.model_.evidence, peer.log_marginal_likelihood_value_, rtol=1e-8)
    settings = {"n_frequencies": 20, "max_iter": 5}
    features = CentralGP("random features", settings=settings, random_state=3).fit(clients_of(x, y, by))
    spread = up.FedBNR("exact", random_state=3, **settings).fit(clients_of(x, y, by))
    np.testing.assert_allclose(features.predict(x), spread.predict(x), rtol=1e-6)


def test_the_central_process_learns_what_scikit_learn_learns(rows):
    x, y = standardised(*rows[:2])
    kernel = ConstantKernel() * RBF(np.full(2, np.sqrt(2))) + WhiteKernel(0.1)
    peer = GaussianProcessRegressor(kernel).fit(x, y)
    model = CentralGP().fit(x, y)
    np.testing.assert_allclose(model.model_.evidence, peer.log_marginal_likelihood_value_, rtol=1e-4)
    np.testing.assert_allclose(model.model_.shape.log_scale.exp().numpy(), peer.kernel_.k1.k2.length_scale, rtol=1e-2)
    some = CentralGP(learn_on=60, random_state=0).fit(x, y)
    assert some.model_.evidence < model.model_.evidence < 1.5 * some.model_.evidence


@pytest.mark.parametrize("make", [FedLoc, PFedGP])
def test_one_output_only(rows, make):
    x, y, _ = rows
    with pytest.raises(BadData, match="has 2 outputs"):
        make().fit(x, np.stack([y, y], 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedLoc(rho=100.0, n_inducing=20, max_iter=3),
        lambda: FedLoc(rho=100.0, n_inducing=20, max_iter=3, combine="rbcm"),
        lambda: PFedGP(hidden=(8,), latent_dim=2, n_inducing=15, max_iter=3, random_state=0),
        lambda: FedProxRegression(hidden=(8,), latent_dim=4, max_iter=3, random_state=0),
    ],
    ids=["FedLoc", "FedLoc rbcm", "PFedGP", "FedProxRegression"],
)
def test_a_saved_baseline_predicts_the_same_without_its_clients(rows, make, tmp_path):
    x, y, by = rows
    model = make().fit(clients_of(x, y, by))
    loaded = up.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(x[:20]), model.predict(x[:20]))
    if hasattr(model, "predict_each"):
        for name, (mean, std) in model.predict_each(x[:20]).items():
            np.testing.assert_array_equal(loaded.predict_each(x[:20])[name], (mean, std))


def test_pfedgp_names_the_client_it_does_not_know(rows):
    x, y, by = rows
    model = PFedGP(hidden=(8,), latent_dim=2, n_inducing=5, max_iter=1, random_state=0).fit(clients_of(x, y, by))
    with pytest.raises(BadParameter, match="there is no client 'c9'"):
        model.predict(x, client="c9")
