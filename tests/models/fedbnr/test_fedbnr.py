"""FedBNR: the split into clients does not matter, the two-SUM gradient is the pooled one, kernels are learned, runs resume."""

import numpy as np
import pytest
import torch
from cut_run import resumed

import unpooled as up
from unpooled import tree
from unpooled.errors import BadData, BadParameter, DataWarning
from unpooled.maths import bayes_linear, calibration, feature_maps
from unpooled.metrics import regression as metrics
from unpooled.models.regression import held_out_rows as held_out

torch.set_num_threads(1)


@pytest.fixture(name="rows", scope="module")
def rows_():
    rng = np.random.default_rng(0)
    x = np.hstack([rng.uniform(-2, 2, size=(500, 2)), 1e3 * rng.normal(size=(500, 1))])
    y = 50 + 20 * np.sin(2 * x[:, 0]) * x[:, 1] + 2 * rng.normal(size=500)
    return x, y, rng.integers(0, 10, 500)


def clients_of(x, y, by):
    return {f"c{c:03d}": (x[by == c], y[by == c]) for c in np.unique(by)}


DEEP = {"features": "residual", "n_frequencies": 20, "hidden": (8, 8), "latent_dim": 3, "frequencies": "free"}


@pytest.mark.parametrize("kernel", [DEEP, {"n_frequencies": 20}], ids=["network and Adam", "length scales and L-BFGS"])
def test_fifty_exact_steps_do_not_depend_on_the_split(rows, kernel):
    x, y, by = rows
    settings = {**kernel, "max_iter": 50, "patience": 100, "random_state": 0}
    one = up.FedBNR("exact", **settings).fit(x, y)
    ten = up.FedBNR("exact", **settings).fit(up.federate(clients_of(x, y, by), mode="one by one"))
    hundred = up.FedBNR("exact", **settings).fit(clients_of(x, y, np.arange(500) % 100))
    assert one.n_iter_ == 50
    for other in (ten, hundred):
        for a, b in zip(one.predict(x, return_std=True), other.predict(x, return_std=True)):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        assert other.log_marginal_likelihood_ == pytest.approx(one.log_marginal_likelihood_, rel=1e-6)
        assert other.best_round_ == one.best_round_


@pytest.mark.parametrize("name", ["rff", "ard", "deep", "residual", "replicated", "exponential", "polynomial"])
def test_the_two_sums_give_the_gradient_of_the_pooled_evidence(rows, name):
    x, y, by = rows
    model = up.FedBNR(
        features=name,
        n_frequencies=6,
        hidden=(5,),
        latent_dim=2,
        frequencies="shifted",
        optimizer="adam",
        random_state=0,
    )
    fed = up.federate(clients_of(x, y, by))
    model.check(fed)
    state = model.init(fed, np.random.default_rng(0))
    after, _ = model.step(fed, state)
    gradient = after.optimiser.first / 0.1  # Adam's first moment after one step
    theta = tree.flatten(state.design.kernel.theta)

    def evidence(at):
        kernel = state.design.kernel._replace(theta=tree.unflatten(at, state.design.kernel.theta))
        stats = fed.sum(up_statistics(model), state.design._replace(kernel=kernel))
        return float(bayes_linear.posterior(stats).log_evidence.sum() / stats.n)

    for i in np.random.default_rng(1).choice(len(theta), 4):
        step = 1e-5 * (np.arange(len(theta)) == i)
        slope = (evidence(theta + step) - evidence(theta - step)) / 2e-5
        np.testing.assert_allclose(-gradient[i], slope, rtol=1e-4, atol=1e-7)


def up_statistics(model):
    from unpooled.models.regression.design import statistics

    return statistics.using(**model._asks())


@pytest.mark.parametrize("split", ["one", "ten", "a hundred", "one row here, 499 there"])
def test_the_last_layer_is_that_of_the_pooled_rows(rows, split):
    x, y, by = rows
    at = np.arange(500)
    by = {"one": 0 * at, "ten": by, "a hundred": at % 100, "one row here, 499 there": (at > 0).astype(int)}[split]
    settings = {"n_frequencies": 40, "max_iter": 0, "validation_fraction": 0.0, "recalibrate": False, "random_state": 1}
    ours = up.FedBNR(**settings).fit(clients_of(x, y, by))
    sx, sy = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    z = feature_maps.features(ours._spec(), ours.design_.kernel, sx)
    pooled = bayes_linear.posterior(bayes_linear.statistics(z, sy[:, None], np.ones(500)))
    mean, variance = bayes_linear.predict(pooled, z)
    ours_mean, ours_std = ours.predict(x, return_std=True)
    np.testing.assert_allclose(ours_mean, y.mean() + y.std() * mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(ours_std, y.std() * np.sqrt(variance[:, 0]), rtol=1e-8)
    assert ours.n_sums_ == 4  # means, scales, histograms of columns, the last layer


@pytest.mark.parametrize("kernel", ["exact", "average", "distill"])
def test_kernels_are_learned(rows, kernel):
    x, y, by = rows
    fit, new = slice(0, 400), slice(400, 500)
    server = {"server_data": (x[350:400], y[350:400])} if kernel == "distill" else {}
    settings = {
        "n_frequencies": 30,
        "random_state": 0,
        "local_rate": 0.03,
        "distill_rate": 0.03,
        "distill_steps": 15,
        **server,
    }
    data = clients_of(x[fit], y[fit], by[fit])
    before = up.FedBNR(kernel, **settings, max_iter=1).fit(data)
    after = up.FedBNR(kernel, **settings, max_iter=12).fit(data)
    errors = [metrics.rmse(y[new], m.predict(x[new])) for m in (before, after)]
    assert errors[1] < 0.7 * errors[0]
    assert after.score(x[new], y[new]) > 0.9


def test_the_round_is_that_of_the_least_absolute_error_on_held_out_rows(rows):
    x, y, by = rows
    model = up.FedBNR(**DEEP, optimizer="adam", learning_rate=0.3, max_iter=15, patience=20, random_state=0).fit(
        x, y, by=by
    )
    errors = [row["val_mae"] for row in model.history_]
    assert model.best_round_ == np.argmin(errors) + 1
    assert all(row["val_mae"] < row["val_rmse"] for row in model.history_)


def test_lbfgs_rounds_never_lower_the_evidence_that_is_kept(rows):
    x, y, by = rows
    model = up.FedBNR(n_frequencies=20, max_iter=25, patience=50, random_state=0).fit(x, y, by=by)
    kept = [row["loglik"] for row in model.history_ if row["sums"] == 2]
    assert (np.diff(kept) > -1e-12).all()
    assert len(kept) > 12


@pytest.mark.parametrize(
    ("kernel", "options"), [("exact", {}), ("exact", {"optimizer": "adam"}), ("average", {"local_epochs": 2})]
)
def test_a_run_cut_in_the_middle_goes_on_to_the_same_bits(rows, kernel, options):
    x, y, by = rows
    make = lambda: up.FedBNR(kernel, n_frequencies=10, max_iter=8, patience=9, random_state=0, **options)  # noqa: E731
    whole = make().fit(x, y, by=by)
    other = resumed(make, lambda: up.federate(x, y, by=by), 4)
    np.testing.assert_array_equal(other.predict(x), whole.predict(x))
    assert other.log_marginal_likelihood_ == whole.log_marginal_likelihood_


def test_intervals_are_honest_after_recalibration():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, size=(3000, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_t(2, size=3000)
    fit, new = slice(0, 2000), slice(2000, 3000)
    model = up.FedBNR(n_frequencies=20, max_iter=6, validation_fraction=0.3, random_state=0).fit(
        x[fit], y[fit], by=np.arange(2000) % 20
    )
    raw = metrics.calibration(y[new], metrics.normal_interval(*model.predict(x[new], return_std=True)))
    honest = metrics.calibration(y[new], lambda level: model.interval(x[new], level))
    assert honest.ece < 0.04
    assert raw.ece > 0.1
    assert model.n_sums_ == 3 + sum(row["sums"] for row in model.history_) + 2  # residual counts, and the refit


def test_the_refit_takes_the_held_out_rows_in_and_leaves_the_kernel_alone(rows):
    x, y, by = rows
    settings = {"n_frequencies": 30, "max_iter": 4, "random_state": 0}
    before = up.FedBNR(**settings, refit=False).fit(x, y, by=by)
    after = up.FedBNR(**settings).fit(x, y, by=by)
    assert before.stats_.n < 500 == after.stats_.n
    assert (
        before.histogram_.sum() == after.histogram_.sum() == 500 - before.stats_.n
    )  # calibrated on held-out rows still
    z = feature_maps.features(after._spec(), before.design_.kernel, (x - scale(before)[0]) / scale(before)[1])
    sy = (y - before.design_.scaling.y_mean) / before.design_.scaling.y_scale
    pooled = bayes_linear.posterior(bayes_linear.statistics(z, sy[:, None], np.ones(500)))
    np.testing.assert_allclose(after.posterior.weights, pooled.weights, rtol=1e-8, atol=1e-8)
    assert after.n_sums_ == before.n_sums_ + 1
    held = held_out.held_out(x, y[:, None], after.validation_fraction, after.seed_)
    mean, variance = bayes_linear.left_out(after.posterior, z[held], sy[held, None])
    expected = calibration.histogram((sy[held, None] - mean) / np.sqrt(variance), np.ones(held.sum()))
    np.testing.assert_array_equal(after.histogram_, expected)
    row = np.flatnonzero(held)[0]
    others = np.arange(500) != row
    post = after.posterior
    alone = bayes_linear.posterior(
        bayes_linear.statistics(z[others], sy[others, None], np.ones(499)),
        noise=post.noise_variance,
        prior=post.prior_variance,
    )
    mean, variance = bayes_linear.predict(alone, z[row : row + 1])
    found = bayes_linear.left_out(post, z[row : row + 1], sy[row : row + 1, None])
    np.testing.assert_allclose((mean, variance), found, rtol=1e-6)


def scale(model):
    return model.design_.scaling.x_mean, model.design_.scaling.x_scale


def test_compressed_columns_do_not_depend_on_the_split_and_survive_an_outlier(rows):
    x, y, by = rows
    x = x.copy()
    x[7, 0] = 1e3  # a slip of the pen
    settings = {"inputs": "robust", "n_frequencies": 30, "max_iter": 8, "random_state": 0}
    one, ten = (up.FedBNR(**settings).fit(data) for data in ({"all": (x, y)}, clients_of(x, y, by)))
    np.testing.assert_allclose(one.predict(x), ten.predict(x), rtol=1e-5)
    tails, rest = one.design_.scaling.tails, np.arange(500) != 7
    plain = up.FedBNR(**settings | {"inputs": "standard"}).fit(x, y)
    assert metrics.rmse(y[rest], one.predict(x[rest])) < 0.5 * metrics.rmse(y[rest], plain.predict(x[rest]))
    assert one.n_sums_ - sum(row["sums"] for row in one.history_) == 5  # means, scales, counts; residuals, refit
    np.testing.assert_allclose((tails.median - np.median(x, 0)) / x[rest].std(0), 0.0, atol=0.15)


def test_forgetting_leaves_no_trace_in_the_last_layer(rows):
    x, y, by = rows
    data = clients_of(x, y, by)
    model = up.FedBNR(n_frequencies=15, max_iter=3, random_state=0).fit(data)
    forgotten = model.predict(x)
    model.forget("c004")
    assert not np.allclose(model.predict(x), forgotten)
    model.partial_fit({"c004": data["c004"]})
    np.testing.assert_allclose(model.predict(x), forgotten, rtol=1e-7)


def test_a_saved_model_predicts_without_torch(rows, tmp_path):
    import subprocess
    import sys

    x, y, by = rows
    model = up.FedBNR(**DEEP, max_iter=3, random_state=0).fit(x, y, by=by)
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", model.predict(x))
    code = (
        "import sys, numpy as np, unpooled as up\n"
        "m = up.load(sys.argv[1] + '/model')\n"
        "same = np.allclose(m.predict(np.load(sys.argv[1] + '/x.npy')), np.load(sys.argv[1] + '/y.npy'), rtol=1e-10)\n"
        "assert same and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


class Bumps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = torch.nn.Parameter(torch.linspace(-2, 2, 12, dtype=torch.float64)[:, None] * torch.ones(3))

    def forward(self, x):
        return torch.exp(-((x[:, None, :] - self.centres) ** 2).sum(-1))


@pytest.mark.parametrize("kernel", ["exact", "average"])
def test_a_module_of_ones_own_is_a_feature_map(rows, kernel):
    x, y, by = rows
    model = up.FedBNR(kernel, features=Bumps(), optimizer="adam", max_iter=5, random_state=0, local_epochs=3).fit(
        x, y, by=by
    )
    assert model.design_.kernel.theta["centres"].shape == (12, 3)
    assert (
        not np.allclose(model.design_.kernel.theta["centres"], Bumps().centres.detach().numpy())
        or model.best_round_ == 1
    )
    assert model.predict(x).shape == (500,)


def test_many_outputs_share_a_kernel(rows):
    x, y, by = rows
    model = up.FedBNR(max_iter=5, n_frequencies=20, random_state=0).fit(x, np.stack([y, -3 * y + 1], 1), by=by)
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean[:, 1], -3 * mean[:, 0] + 1, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std[:, 1], 3 * std[:, 0], rtol=1e-6)


def test_missing_values_are_filled_in_with_a_warning(rows):
    x, y, by = rows
    gaps = x.copy()
    gaps[::9, 1] = np.nan
    with pytest.warns(DataWarning, match="missing values"):
        model = up.FedBNR(max_iter=2, n_frequencies=10, random_state=0).fit(gaps, y, by=by)
    assert np.isfinite(model.predict(gaps)).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kernel": "exakt"}, "did you mean 'exact'"),
        ({"features": "depe"}, "did you mean 'deep'"),
        ({"spectrum": "cauchy"}, "spectrum='cauchy' is not known"),
        ({"kernel": "distill"}, "give server_data"),
        ({"validation_fraction": 1.0}, "must be 0 or more and below 1"),
        ({"validation_fraction": 0.0}, "recalibrate=True needs rows not fitted"),
        ({"features": 3}, "must be a name or a torch module"),
        ({"n_frequencies": 0}, "n_frequencies=0 must be a whole number of at least 1"),
        ({"patience": 2.5}, "patience=2.5 must be a whole number of at least 1"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must be a number of 0 or more"),
        ({"max_iter": "a"}, "max_iter='a' must be a whole number of at least 0"),
        ({"patience": None}, "patience=None must be a whole number of at least 1"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be a number above 0"),
        ({"validation_fraction": "0.1"}, "validation_fraction='0.1' must be 0 or more"),
        ({"hidden": 64}, "hidden=64 must be the widths of the layers"),
        ({"inputs": "log"}, "inputs='log' is not known"),
    ],
)
def test_bad_parameters_are_one_sentence(rows, options, says):
    x, y, _ = rows
    with pytest.raises(BadParameter, match=says):
        up.FedBNR(**options).fit(x, y)


def test_bad_targets_are_one_sentence(rows):
    x, y, _ = rows
    with pytest.raises(BadData, match="constant y"):
        up.FedBNR().fit(x, np.ones(len(y)))
    with pytest.raises(BadData, match="not numbers"):
        up.FedBNR().fit(x, y.astype(str))


def test_weight_decay_shrinks_the_network(rows):
    x, y, by = rows
    settings = {**DEEP, "optimizer": "adam", "max_iter": 6, "patience": 9, "random_state": 0}
    sizes = []
    for decay in (0.0, 20.0):
        model = up.FedBNR(**settings, weight_decay=decay)
        fed = up.federate(x, y, by=by)
        model.check(fed)
        state = model.init(fed, np.random.default_rng(0))
        for _ in range(6):
            state, _ = model.step(fed, state)
        sizes.append(np.linalg.norm(state.optimiser.at))
    assert sizes[1] < 0.9 * sizes[0]
