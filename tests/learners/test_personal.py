"""What clients keep: never much worse than the shared model or than alone, close to the shared one with few rows, and private."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import unpooled as up
from unpooled.baselines import IFCA, FedAvg, LocalOnly
from unpooled.learners import calibration, candidates, corrections, judging, own_nets, stacking


def site(rng, n, flip=False, d=4):
    x = rng.normal(size=(n, d))
    y = (x @ np.linspace(1, 2, d) + rng.logistic(size=n) > 0).astype(int)
    return x, 1 - y if flip else y


@pytest.fixture(scope="module", name="fitted")
def fitted_():
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 150) for i in range(5)} | {"other": site(rng, 150, flip=True), "tiny": site(rng, 12)}
    return FedAvg(random_state=0).fit(data)


def test_a_client_that_labels_otherwise_keeps_a_model_of_its_own(fitted):
    x, y = site(np.random.default_rng(1), 2000, flip=True)
    assert log_loss(y, fitted.predict_proba(x, client="other")) < 0.5 * log_loss(y, fitted.predict_proba(x))
    assert fitted.comparison_["other"]["kept"] < fitted.comparison_["other"]["shared"] - 0.3


def test_clients_that_label_alike_gain_from_the_others(fitted):
    x, y = site(np.random.default_rng(2), 4000)
    for name in ("c0", "c1", "c2", "c3", "c4"):
        alone = LogisticRegression().fit(*fitted_rows()[name])
        assert log_loss(y, fitted.predict_proba(x, client=name)) < 1.05 * log_loss(y, alone.predict_proba(x))


def fitted_rows():
    rng = np.random.default_rng(0)
    return {f"c{i}": site(rng, 150) for i in range(5)}


def test_a_client_of_few_rows_stays_near_the_shared_model(fitted):
    x, _ = site(np.random.default_rng(3), 500)
    shared = fitted.predict_proba(x)
    assert np.abs(fitted.predict_proba(x, client="tiny") - shared).mean() < 0.1


def test_gain_is_what_the_comparison_says(fitted):
    assert set(fitted.gain_) == set(fitted.comparison_)
    for name, row in fitted.comparison_.items():
        assert fitted.gain_[name] == pytest.approx(row["alone"] - row["kept"])


def test_the_report_shows_each_clients_gain(fitted):
    (table,) = fitted.report_figures().values()
    assert "<td>other</td>" in table
    assert f"{fitted.gain_['other']:+.3f}" in table


def test_probabilities_are_probabilities(fitted):
    proba = fitted.predict_proba(np.array([[1e6, -1e6, 1e6, 1e6], [0, 0, 0, 0]]), client="other")
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)


def test_only_sums_of_losses_leave_a_client():
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 60) for i in range(3)}
    exchanges = []
    for how in ("none", "auto"):
        fed = up.federate(data)
        FedAvg(personalize=how, random_state=0).fit(fed)
        exchanges.append([(e.question, e.kind, e.bytes_up) for e in fed.journal.exchanges])
    more = exchanges[1][len(exchanges[0]) :]
    assert exchanges[1][: len(exchanges[0])] == exchanges[0]
    assert [(question, kind) for question, kind, _ in more] == [
        ("learners.calibration_losses", "sum"),
        ("learners.judge_candidates", "sum"),
        ("learners.personalise", "tell"),
    ]
    grid = 1 + calibration.TEMPERATURES.size * calibration.FLOORS.size
    listed = len(candidates.candidates(1, 0, True).kind)
    assert [sent for _, _, sent in more] == [3 * 8 * numbers for numbers in (grid, 1 + 2 * listed, 0)]


def test_the_choice_is_off_when_it_is_not_wanted():
    rng = np.random.default_rng(0)
    model = FedAvg(personalize="none", random_state=0).fit({"a": site(rng, 60), "b": site(rng, 60, flip=True)})
    x, _ = site(rng, 50)
    np.testing.assert_array_equal(model.predict_proba(x, client="b"), model.predict_proba(x))
    assert model.gain_ == {}


def test_what_is_kept_survives_saving(fitted, tmp_path):
    x, _ = site(np.random.default_rng(5), 20)
    again = up.load(fitted.save(tmp_path))
    np.testing.assert_array_equal(again.predict_proba(x, client="other"), fitted.predict_proba(x, client="other"))


@pytest.mark.parametrize(
    "make", [lambda: IFCA(2, lr=0.3, max_iter=10, random_state=0), lambda: up.FedGMM(2, max_iter=20)]
)
def test_models_of_several_parts_let_clients_choose_too(make):
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 120, flip=i == 0) for i in range(4)}
    model = make()
    model.random_state = 0
    model.fit(data)
    x, y = site(np.random.default_rng(6), 1000, flip=True)
    assert log_loss(y, model.predict_proba(x, client="c0")) < 0.5
    assert set(model.gain_) == set(data)


def test_alone_is_a_regression_whose_penalty_was_cross_validated():
    rng = np.random.default_rng(0)
    x, y = site(rng, 300)
    model = LocalOnly(random_state=0).fit({"a": (x, y), "b": site(rng, 40)})
    new = site(np.random.default_rng(8), 3000)
    peer = LogisticRegression().fit(x, y)
    assert log_loss(new[1], model.predict_proba(new[0], client="a")) < 1.02 * log_loss(
        new[1], peer.predict_proba(new[0])
    )


def regression(n=200, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = (x @ rng.normal(size=(3, classes)) + rng.gumbel(size=(n, classes))).argmax(1)
    return x, y


def ridge_of(*slopes):
    """Penalties of one path: of the intercept alone, then of these slopes."""
    return np.array([[[slope, slope, slope, 1e-9]] for slope in (0.0, *slopes)])


def fit_one(columns, y, offsets, ridge, part=1, **options):
    """The corrections of a single client."""
    problem = corrections.Paths(columns[None], y[None], np.ones((1, len(y))), offsets[None], ridge, part)
    found = corrections.fit(problem, **options)
    return corrections.Fitted(found.maps[0], found.losses[0])


def fitted_alone(x, y, classes, ridge):
    columns = np.c_[x, np.ones(len(y))]
    return fit_one(columns, y, np.zeros((1, len(y), classes)), ridge, dtype=np.float64, steps=30)


@pytest.mark.parametrize("classes", [2, 3])
def test_corrections_of_nothing_are_ridge_regressions(classes):
    x, y = regression(classes=classes)
    found = fitted_alone(x, y, classes, ridge_of(500.0, 5.0)).maps[-1, 0]
    C = 2 / 5 if classes == 2 else 1 / 5  # two scores of opposite sign share the penalty
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=5000).fit(x, y)
    ours = found[:-1].T - found[:-1].mean(1)
    theirs = peer.coef_ if classes == 3 else np.vstack([-peer.coef_, peer.coef_]) / 2
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_few_steps_a_penalty_are_nearly_the_whole_fit(classes):
    x, y = regression(150, classes)
    columns, offsets = np.c_[x, np.ones(150)], np.zeros((1, 150, classes))
    few, many = (fit_one(columns, y, offsets, candidates.penalties(0, 3), **steps) for steps in ({}, {"steps": 30}))
    np.testing.assert_allclose(few.losses.mean(-1), many.losses.mean(-1), rtol=5e-3)


def test_arrays_side_by_side_have_zeros_after_the_short_ones():
    short, long = np.ones((2, 3, 4)), np.ones((2, 5, 4))
    found = judging.side_by_side([short, long], 1)
    assert found.shape == (2, 2, 5, 4)
    np.testing.assert_array_equal(found.sum((1, 3)), [[8, 8, 8, 0, 0], [8, 8, 8, 8, 8]])


@pytest.mark.parametrize(("classes", "closeness"), [(2, 0.02), (3, 0.3)])
def test_rows_are_left_out_as_if_the_fit_had_not_seen_them(classes, closeness):
    x, y = regression(60, classes)
    found = fitted_alone(x, y, classes, ridge_of(5.0, 2.0))
    every = np.arange(60)
    loss_of_all = -corrections.log_softmax(np.c_[x, np.ones(60)] @ found.maps[-1, 0])[every, y]
    loss_left_out = found.losses[-1, 0]
    refitted = np.empty(60)
    for i in every:
        others = every != i
        peer = LogisticRegression(C=1.0 if classes == 2 else 0.5, tol=1e-8, max_iter=5000).fit(x[others], y[others])
        refitted[i] = -peer.predict_log_proba(x[i : i + 1])[0, y[i]]
    optimism = refitted.mean() - loss_of_all.mean()
    assert optimism > 0.03
    assert loss_left_out.mean() - loss_of_all.mean() == pytest.approx(optimism, rel=closeness)


@pytest.mark.parametrize("counts", [(5, 100, 2, 2, 2, 2, 2), (130, 0, 0, 1, 0), (50, 1), (100, 20, 5, 1, 1, 3, 0)])
def test_label_shares_are_found_however_unequal_they_are(counts):
    y = np.repeat(np.arange(len(counts)), counts)
    ridge = np.full((2, 1, 2), 0.1)
    found = fit_one(np.ones((len(y), 2)), y, np.zeros((1, len(y), len(counts))), ridge).maps[0, 0, -1]
    found = corrections.log_softmax(found)
    shares = (np.array(counts) + 0.5) / (len(y) + 0.5 * len(counts))
    assert -found @ np.array(counts) / len(y) < 1.02 * -np.log(shares) @ np.array(counts) / len(y)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_only_row_of_a_class_is_left_out_as_if_the_class_were_unknown(classes):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 2)), np.arange(80) % (classes - 1)
    y[0] = classes - 1
    ridge = candidates.penalties(0, 2)
    columns, offsets = np.c_[x, np.ones(80)], np.zeros((1, 80, classes))
    left_out = fit_one(columns, y, offsets, ridge).losses[1:, 0, 0]
    refitted = fit_one(columns[1:], y[1:], offsets[:, 1:], ridge, dtype=np.float64, steps=40).maps[1:, 0]
    true = -corrections.log_softmax(columns[0] @ refitted)[:, classes - 1]
    np.testing.assert_allclose(left_out, true, atol=0.8)
    assert (left_out > 4).all()


def test_a_column_that_hardly_varies_at_a_client_is_scaled_by_all_clients():
    x = np.random.default_rng(0).normal(size=(50, 2)) * [1.0, 1e-3]
    own, all_clients = candidates.axes_of(x, np.ones(50)), candidates.axes_of(x, np.ones(50), np.ones(2))
    new = np.array([[0.0, 1.0]])  # a value that other clients have
    assert abs(own.columns(new)[0, 1]) > 500
    assert abs(all_clients.columns(new)[0, 1]) < 1.1


def test_what_a_client_keeps_does_not_depend_on_units():
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 60) for i in range(4)}
    units = np.array([1e-2, 1.0, 50.0, 300.0])
    spread = np.concatenate([x for x, _ in data.values()]).std(0)
    models = [
        FedAvg(random_state=0).fit({name: (x * scale, y) for name, (x, y) in data.items()})
        for scale in (1 / spread, units / spread)
    ]
    new = site(np.random.default_rng(1), 200)[0] / spread
    np.testing.assert_allclose(
        models[0].predict_proba(new, client="c1"), models[1].predict_proba(new * units, client="c1"), atol=2e-4
    )
    again = LogisticRegression(tol=1e-12, max_iter=20_000).fit(
        np.concatenate([x * units / spread for x, _ in data.values()]), np.concatenate([y for _, y in data.values()])
    )
    np.testing.assert_allclose(models[1].coef_, again.coef_, atol=1e-5)  # the shared model is scikit-learn's


@pytest.mark.parametrize("classes", [2, 3])
def test_clients_fitted_together_are_as_fitted_alone(classes):
    """Rows of padding, of weight 0, change nothing."""
    sizes, ridge = (60, 45), ridge_of(5.0, 2.0)
    rows = [regression(n, classes, seed=n) for n in sizes]
    columns, y, w = np.zeros((2, 60, 4)), np.zeros((2, 60), int), np.zeros((2, 60))
    for i, (x, labels) in enumerate(rows):
        columns[i, : sizes[i]], y[i, : sizes[i]], w[i, : sizes[i]] = np.c_[x, np.ones(len(x))], labels, 1.0
    both = corrections.fit(corrections.Paths(columns, y, w, np.zeros((2, 1, 60, classes)), ridge), dtype=np.float64)
    for i, n in enumerate(sizes):
        alone = fit_one(columns[i, :n], y[i, :n], np.zeros((1, n, classes)), ridge, dtype=np.float64)
        np.testing.assert_allclose(both.maps[i], alone.maps, atol=1e-9)
        np.testing.assert_allclose(both.losses[i, ..., :n], alone.losses, atol=1e-9)


def test_with_many_rows_a_part_of_them_tells_how_much_losses_grow_without_a_row():
    x, y = regression(4000, 2)
    columns, offsets = np.c_[x, np.ones(4000)], np.zeros((1, 4000, 2))
    whole, part = (fit_one(columns, y, offsets, ridge_of(5.0, 2.0), part) for part in (1, 4))
    np.testing.assert_allclose(part.maps, whole.maps, atol=2e-3)
    np.testing.assert_allclose(part.losses[-1, 0], whole.losses[-1, 0, ::4], atol=5e-3)
    grown = [
        found.losses[-1, 0].mean() - corrections.label_losses(columns[::k] @ found.maps[-1, 0], y[::k]).mean()
        for k, found in ((1, whole), (4, part))
    ]
    assert grown[1] == pytest.approx(grown[0], rel=0.25)


def test_many_rows_are_compared_by_a_part_unless_labels_are_rare_or_a_row_is_far_out():
    rng = np.random.default_rng(0)
    x, y, unit = rng.normal(size=(6000, 3)), np.arange(6000) % 2, (np.zeros(3), np.ones(3))
    assert judging.part_of(x, y, *unit, 2) == 6
    assert judging.part_of(x[:1500], y[:1500], *unit, 2) == 1
    assert judging.part_of(x, (np.arange(6000) % 50 == 0).astype(int), *unit, 2) == 1
    assert judging.part_of(np.where(np.arange(6000)[:, None] == 7, 20.0, x), y, *unit, 2) == 1


def test_what_clients_of_many_rows_keep_is_as_good_by_a_part_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 5000, flip=i == 0) for i in range(3)}
    by_part = FedAvg(random_state=0).fit(data)
    monkeypatch.setattr(judging, "ENOUGH_ROWS", 10**6)
    by_all = FedAvg(random_state=0).fit(data)
    for name, flip in (("c0", True), ("c1", False)):
        x, y = site(np.random.default_rng(9), 4000, flip=flip)
        part, whole = (log_loss(y, model.predict_proba(x, client=name)) for model in (by_part, by_all))
        assert part == pytest.approx(whole, rel=2e-3)
        assert by_part.comparison_[name]["rows"] == 5000
        assert by_part.comparison_[name]["kept"] != by_all.comparison_[name]["kept"]  # another estimate of the same
        assert by_part.comparison_[name]["kept"] == pytest.approx(by_all.comparison_[name]["kept"], rel=0.1)


def test_a_correction_under_a_strong_penalty_is_the_offset():
    rng = np.random.default_rng(0)
    offsets = rng.normal(size=(1, 50, 3))
    y, ridge = rng.integers(3, size=50), np.full((2, 1, 2), 1e9)
    found = fit_one(np.ones((50, 2)), y, offsets, ridge)
    np.testing.assert_allclose(found.maps, 0.0, atol=1e-6)
    np.testing.assert_allclose(found.losses[1], corrections.label_losses(offsets, y), atol=1e-5)


def test_more_columns_than_a_client_can_tell_apart_become_principal_axes():
    x = np.random.default_rng(0).normal(size=(100, 50)) @ np.diag(np.linspace(1, 2, 50))
    assert candidates.axes_of(x, np.ones(100)).columns(x).shape == (100, candidates.FEW_AXES + 1)
    few = candidates.axes_of(x[:, :5], np.ones(100)).columns(x[:, :5])
    np.testing.assert_allclose(few[:, :5].std(0), 1.0)


def network_scores(rng, rows, classes=6):
    """Labels of a client, and what its candidates begin with: a poor shared model, that with label shares, and good networks."""
    shares = rng.dirichlet(np.full(classes, 0.5)) + 0.02
    y = rng.choice(classes, size=rows, p=shares / shares.sum())
    hit, noise = np.eye(classes)[y], rng.normal(size=(2, rows, classes))
    shared = corrections.log_softmax(hit + noise[0])
    networks = len(own_nets.TUNED_SHARES) + own_nets.STARTS * len(own_nets.ALONE_SHARES)
    own = 3 * hit + noise[1] + 0.3 * rng.normal(size=(networks, rows, classes)) + np.log(shares)
    own = [each / temperature for each in own for temperature in own_nets.TEMPERATURES]
    return y, np.stack([shared, shared + np.log(shares), *own, np.zeros_like(shared)])


def accuracy_kept(y, offsets, held):
    """What a client keeps that chooses by its first `held` rows, on the others; its last network beside it."""
    raw = offsets[0]
    seen = judging.Evidence(raw[:held], y[:held], np.ones(held), offsets[:, :held], np.zeros(len(offsets)), 1, False)
    plan, [(_, group)] = judging.judge([seen])
    (kept,) = judging.chosen(plan, group, None)
    columns = candidates.Axes(kept["centre"], kept["axes"]).columns(raw[held:])
    proba = np.exp(corrections.log_softmax(offsets[kept["which"], held:] + columns @ kept["maps"]))
    averaged = np.einsum("j,jnc->nc", kept["mix"], proba)
    return [(scores.argmax(1) == y[held:]).mean() for scores in (averaged, offsets[-2, held:])]


def test_corrections_fitted_to_few_held_out_rows_do_not_take_the_place_of_networks():
    found = [accuracy_kept(*network_scores(np.random.default_rng(seed), 2000), held=14) for seed in range(30)]
    kept, network = np.array(found).T
    assert kept.mean() > network.mean()
    assert (kept < network - 0.01).sum() <= 3


def test_networks_at_higher_temperatures_have_less_weight_at_first():
    plan = candidates.candidates(2, 2 + 7 * len(own_nets.TEMPERATURES), False)
    assert plan.prior.sum() == pytest.approx(1.0)
    networks = plan.prior[4:25].reshape(7, -1)
    np.testing.assert_allclose(networks / networks[:, :1], 1 / np.tile(own_nets.TEMPERATURES, (7, 1)))


def test_weights_settle_on_the_better_candidate_with_rows_and_stay_at_the_prior_without():
    prior = np.array([0.8, 0.2])
    losses = np.stack([np.full(200, 0.9), np.full(200, 0.5)])
    many, none = (
        stacking.averaged(prior, stacking.likelihoods(own), own.sum(1), np.ones(own.shape[1]))
        for own in (losses, losses[:, :0])
    )
    assert many[1] > 0.95
    np.testing.assert_allclose(none, prior)


def test_the_others_say_which_candidate_is_better_where_one_client_cannot():
    first, fitted = np.array([0.5, 0.3, 0.2]), np.array([False, True, True])
    others = stacking.Said(np.array([5.0, 2.0, 1.0]), np.array([100.0, 130.0, 101.0]), 400.0)
    prior = stacking.prior_of_others(first, fitted, others, 50.0)
    assert prior.sum() == pytest.approx(1.0)
    assert prior[0] > 0.6
    assert prior[1] < 0.14
    few = stacking.prior_of_others(first, fitted, others, 5.0)  # the others cannot know what it can fit itself
    assert few.sum() == pytest.approx(1.0)
    assert few[0] > prior[0]
    assert few[2] / few[1] < prior[2] / prior[1]
    nobody = stacking.Said(np.zeros(3), np.zeros(3), 0.0)
    np.testing.assert_allclose(stacking.prior_of_others(first, fitted, nobody, 50.0), first)


def test_the_loss_of_the_average_is_that_of_weights_found_without_the_row(monkeypatch):
    monkeypatch.setattr(stacking, "STEPS", 400)
    rng = np.random.default_rng(0)
    losses, prior, w = rng.exponential(size=(3, 40)), np.full(3, 1 / 3), np.ones(40)
    likelihood = stacking.likelihoods(losses)
    mix = stacking.stacked(prior, likelihood, w)
    without = [stacking.stacked(prior, np.delete(likelihood, i, 1), w[1:]) for i in range(40)]
    true = -np.mean([np.log(m @ np.exp(-losses[:, i])) for i, m in enumerate(without)])
    flattered = -np.log(mix @ np.exp(-losses)).mean()
    found = stacking.loss_of_average(prior, likelihood, w, mix) / 40 + losses.min(0).mean()
    assert found - flattered == pytest.approx(true - flattered, rel=0.1)


def test_calibration_losses_are_those_of_calibrated_probabilities():
    rng = np.random.default_rng(0)
    log_p = corrections.log_softmax(3 * rng.normal(size=(30, 4)))
    y, w = rng.integers(4, size=30), rng.random(30)
    (found,) = calibration.losses(log_p[None], y, w).loss
    for i, temperature in enumerate(calibration.TEMPERATURES):
        for j, floor in enumerate(calibration.FLOORS):
            mended = calibration.calibrated(log_p, calibration.Calibration(temperature, floor))
            bounded = mended[np.arange(30), y].clip(min=np.log(1e-13))
            assert found[i, j] == pytest.approx(-(w @ bounded), rel=1e-4)
