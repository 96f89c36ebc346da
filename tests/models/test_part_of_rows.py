"""Of large tables the start of a mixture asks about a part of the rows: the same in any split, and only if it is like the whole."""

import numpy as np
import pytest

import unpooled as up
from unpooled.data.federate import federate
from unpooled.models import initialization
from unpooled.models.initialization import part_of_rows

RNG = np.random.default_rng(0)
N = 6000
X = RNG.normal(size=(N, 3)) + 6.0 * RNG.integers(3, size=(N, 1))
SPLITS = {
    "one": {"all": X},
    "seven": {f"part {i}": X[i::7] for i in range(7)},
    "sorted": {f"part {i}": x for i, x in enumerate(np.array_split(X[X[:, 0].argsort()], 4))},
}


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch):
    monkeypatch.setattr(part_of_rows, "ENOUGH_ROWS", 500)


def part(clients, **options):
    fed = federate(clients, **options)
    return part_of_rows.part_of(fed, initialization.frame(fed), parameters=10)


@pytest.mark.parametrize("mode", ["auto", "stacked", "one by one"])
@pytest.mark.parametrize("split", SPLITS)
def test_the_part_is_the_same_in_any_split(split, mode):
    found = part(SPLITS[split], mode=mode)
    assert found.every == N // 500
    assert found.rows == (part_of_rows.hashes_of(X) % np.uint64(found.every) == 0).sum()
    assert abs(found.rows - 500) < 5 * np.sqrt(500)


def test_few_rows_or_many_parameters_ask_for_all_rows():
    fed = federate(SPLITS["seven"])
    frame = initialization.frame(fed)
    asked = fed.journal.round
    assert part_of_rows.part_of(fed, frame, parameters=200) == (1, N)
    assert fed.journal.round == asked  # without a question


@pytest.mark.parametrize("values", [2, 40, 1000])
def test_where_rows_repeat_all_are_taken(values):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(values, 2))[rng.integers(values, size=N)]
        assert part({"a": x[::2], "b": x[1::2]}) == (1, N)


def test_all_rows_are_taken_where_a_column_has_few_values_in_the_part():
    x = X.copy()
    x[np.arange(N) % 10 > 0, 2] = np.nan  # 600 values, some fifty of them in the part
    assert part({"a": x[::2], "b": x[1::2]}) == (1, N)


def test_nothing_but_counts_is_sent():
    fed = federate(SPLITS["seven"])
    part_of_rows.part_of(fed, initialization.frame(fed), parameters=10)
    answer = part_of_rows.part_counts.using(every=12)(None, fed.clients[0])
    for counts in answer:
        np.testing.assert_array_equal(counts, np.round(counts))


def test_gaps_and_weights_are_counted():
    gaps = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    gaps[np.isnan(gaps).all(1)] = RNG.normal(size=(np.isnan(gaps).all(1).sum(), 3))
    assert part({"a": gaps}).every > 1
    weighted = part({"a": X}, sample_weight={"a": np.full(N, 3.0)})
    assert weighted.rows == 3 * (part_of_rows.hashes_of(X) % np.uint64(weighted.every) == 0).sum()


@pytest.mark.parametrize("gaps", [0.0, 0.1])
def test_the_fitted_mixture_is_the_same_in_any_split(gaps):
    missing = np.random.default_rng(1).random(X.shape) < gaps
    missing[missing.all(1)] = False
    whole = np.where(missing, np.nan, X)
    models = [
        up.GaussianMixture(3, random_state=0).fit(clients)
        for clients in ({"all": whole}, {f"part {i}": whole[i::5] for i in range(5)})
    ]
    np.testing.assert_allclose(models[0].means_, models[1].means_, rtol=1e-8, atol=1e-8)
    assert sorted(models[0].means_.mean(1).round()) == [0, 6, 12]


def test_the_same_optimum_as_from_all_rows(monkeypatch):
    of_part = up.GaussianMixture(3, tol=1e-9, random_state=0).fit(SPLITS["seven"])
    monkeypatch.setattr(part_of_rows, "ENOUGH_ROWS", N)
    of_all = up.GaussianMixture(3, tol=1e-9, random_state=0).fit(SPLITS["seven"])
    assert of_part.lower_bound_ == pytest.approx(of_all.lower_bound_, abs=1e-6)
    order = [np.argsort(m.means_[:, 0]) for m in (of_part, of_all)]
    np.testing.assert_allclose(of_part.means_[order[0]], of_all.means_[order[1]], atol=1e-3)


def test_the_imputer_starts_from_a_part_too():
    gaps = np.where(RNG.random(X.shape) < 0.15, np.nan, X)[:3000]
    gaps[np.isnan(gaps).all(1)] = 1.0
    options = {"n_components": 3, "choose_iter": 4, "max_iter": 6}
    split = federate({f"part {i}": gaps[i::4] for i in range(4)})
    models = [up.MixtureImputer(**options).fit(data) for data in ({"all": gaps}, split)]
    filled = [model.transform(gaps) for model in models]
    np.testing.assert_allclose(*filled, rtol=1e-7, atol=1e-7)
    assert "initialization.part" in {e.question for e in split.journal.exchanges}
