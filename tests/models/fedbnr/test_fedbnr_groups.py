"""FedBNR with groups: a random offset for each value of a column, whatever the split of the rows into clients."""

import numpy as np
import pytest
from cut_run import resumed
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.errors import BadParameter
from unpooled.metrics import regression as metrics
from unpooled.models.regression import group_effects

DAYS, SETTINGS = 150, {"n_frequencies": 20, "max_iter": 6, "group_by": 2, "random_state": 0}


def made(seed, days=DAYS, offset=1.0):
    """Days of about ten rows, each with an offset of its own; a column is the same all day, and near days have nothing in common."""
    rng = np.random.default_rng(seed)
    day = rng.integers(0, days, size=10 * days)
    x = np.column_stack([rng.uniform(-2, 2, size=(len(day), 2)), np.round(40 + 10 * rng.normal(size=days), 2)[day]])
    y = (
        100
        + 3 * np.sin(2 * x[:, 0])
        + x[:, 1]
        + (offset * rng.normal(size=days))[day]
        + 0.3 * rng.normal(size=len(day))
    )
    return x, y


@pytest.fixture(name="rows", scope="module")
def rows_():
    return made(0)


@pytest.fixture(name="model", scope="module")
def model_(rows):
    return up.FedBNR(**SETTINGS).fit(*rows)


def test_offsets_for_the_values_of_a_column_help(rows, model):
    x, y = rows
    often = np.unique(x[:, 2], return_counts=True)[1] >= group_effects.MIN_ROWS
    assert len(model.design_.groups.keys) == often.sum()
    assert model.n_sums_ == 3 + 1 + sum(row["sums"] for row in model.history_) + 2
    rng = np.random.default_rng(5)
    fit = rng.random(len(y)) < 0.8
    with_days, without = (up.FedBNR(**SETTINGS | {"group_by": by}).fit(x[fit], y[fit]) for by in (2, None))
    errors = [metrics.rmse(y[~fit], m.predict(x[~fit])) for m in (with_days, without)]
    assert errors[0] < 0.45 < 0.8 < errors[1]
    assert with_days.log_marginal_likelihood_ > without.log_marginal_likelihood_ + 100
    assert metrics.coverage(y[~fit], *with_days.interval(x[~fit], 0.9)) == pytest.approx(0.9, abs=0.07)


def test_who_holds_a_row_does_not_matter(rows, model):
    x, y = rows
    by = np.random.default_rng(1).integers(0, 20, size=len(y))
    for mode in ("auto", "stacked", "one by one"):
        clients = {f"c{c:02d}": (x[by == c], y[by == c]) for c in range(20)}
        other = up.FedBNR(**SETTINGS).fit(up.federate(clients, mode=mode))
        assert_allclose(other.design_.groups.keys, model.design_.groups.keys)
        for a, b in zip(model.predict(x, return_std=True), other.predict(x, return_std=True)):
            assert_allclose(a, b, rtol=1e-7)
        for a, b in zip(model.interval(x), other.interval(x)):
            assert_allclose(a, b, rtol=1e-7)


def test_no_value_of_a_column_is_asked_for_by_default(rows):
    fed = up.federate(*rows)
    assert up.FedBNR(n_frequencies=5, max_iter=1, random_state=0).fit(fed).design_.groups is None
    assert "regression.count" not in {exchange.question for exchange in fed.journal.exchanges}
    with pytest.raises(BadParameter, match="group_by='auto'"):
        up.FedBNR(group_by="auto").fit(*rows)


def test_values_of_few_rows_have_no_group(rows):
    x, y = rows
    x = x.copy()
    x[:2, 2] = -1.0  # two rows of a value
    given = up.FedBNR(**SETTINGS).fit(x, y)
    _, value, count = np.unique(x[:, 2], return_inverse=True, return_counts=True)
    assert count[value[0]] == 2
    assert ((given._group(x) >= 0) == (count[value] >= 3)).all()
    rare = up.FedBNR(**SETTINGS | {"group_by": 0}).fit(x, y)  # no value comes three times
    assert rare.design_.groups is None


def test_a_value_never_seen_or_missing_is_less_certain(rows, model):
    x, _ = rows
    new = np.repeat(x[:1], 3, axis=0)
    new[1, 2] += 0.001
    new[2, 2] = np.nan
    _, std = model.predict(new, return_std=True)
    offset = np.sqrt(model.posterior.group_ratio * model.noise_variance_)
    assert (std[1:] > 0.9 * offset).all()
    assert std[0] < 0.6 * std[1]


def test_a_client_forgotten_was_never_there(rows):
    x, y = rows
    by = np.where(np.arange(len(y)) < 500, "stays", "leaves")
    model = up.FedBNR(**SETTINGS).fit(x, y, by=by)
    scatter, design = model.stats_, model.design_
    model.forget("leaves")
    again = up.FedBNR(**SETTINGS).fit(x, y, by=by)
    again._settle(design, again._ask(up.federate(x[:500], y[:500])))
    for a, b in zip(model.stats_, again.stats_):
        assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert_allclose(model.predict(x), again.predict(x), rtol=1e-8)
    model.partial_fit({"leaves": (x[500:], y[500:])})
    assert_allclose(model.stats_.group_n, scatter.group_n, atol=1e-9)


def test_two_outputs_whole_clients_held_out_and_rows_at_the_server(rows):
    x, y = rows
    both = np.column_stack([y, -2 * y])
    two, one = (up.FedBNR(**SETTINGS).fit(x, t) for t in (both, y))
    assert_allclose(two.predict(x)[:, 0], one.predict(x), rtol=0.01)
    held = up.FedBNR(**SETTINGS, recalibrate="clients").fit(x, y, by=np.arange(len(y)) % 30)
    assert held.design_.groups is not None
    assert metrics.coverage(y, *held.interval(x, 0.9)) > 0.85
    server = up.FedBNR(**SETTINGS, server_data=(x[:100], y[:100])).fit(x[100:], y[100:])
    assert metrics.rmse(y[:100], server.predict(x[:100])) < 0.5


def test_a_run_cut_in_two_is_the_same_run(rows, model):
    x, _ = rows
    again = resumed(lambda: up.FedBNR(**SETTINGS), lambda: up.federate(*rows), 3)
    assert_allclose(again.predict(x), model.predict(x), rtol=1e-12)
    assert again.n_sums_ == model.n_sums_


def test_groups_that_cannot_be_fitted_are_refused(rows):
    x, y = rows
    with pytest.raises(BadParameter, match="group_by=2 needs kernel='exact'"):
        up.FedBNR("average", group_by=2).fit(x, y)
    with pytest.raises(BadParameter, match="group_by=3 is not a column: rows have 3"):
        up.FedBNR(group_by=3).fit(x, y)


def test_the_most_frequent_values_are_kept(rows, monkeypatch):
    monkeypatch.setattr(group_effects, "MAX_GROUPS", 10)
    x, y = rows
    model = up.FedBNR(**SETTINGS).fit(x, y)
    count = np.unique(x[:, 2], return_counts=True)[1]
    assert model.stats_.group_n.sum() == np.sort(count)[-10:].sum()
