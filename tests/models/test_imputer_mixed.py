"""MixtureImputer on frames with categories: the same whatever the split, better than the mode, frames as given, and sensitivity."""

import numpy as np
import pytest

import unpooled as up
from unpooled.errors import BadParameter
from unpooled.models.mixture_imputer import candidates
from unpooled.models.mixture_imputer.sensitivity import tipping_point
from unpooled.models.mixture_imputer.stacking import simplex_least

pd = pytest.importorskip("pandas")


def frame(n=400, seed=0):
    """Patients whose ward, grade and laboratory value hang together."""
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 3, n)
    ward = np.array(["heart", "lung", "skin"])[np.where(rng.random(n) < 0.85, ill, rng.integers(0, 3, n))]
    return pd.DataFrame(
        {
            "age": rng.normal(50 + 5 * ill, 4),
            "ward": ward,
            "smokes": np.where(rng.random(n) < np.array([0.2, 0.9, 0.4])[ill], "yes", "no"),
            "crp": np.exp(rng.normal(ill - 0.5, 0.4)),
            "grade": pd.Categorical(
                np.array(["low", "mid", "high", "top"])[np.clip(ill + rng.integers(0, 2, n), 0, 3)],
                ["low", "mid", "high", "top"],
                ordered=True,
            ),
        }
    )


FULL = frame()
HOLES = np.random.default_rng(1).random(FULL.shape) < 0.15
HOLES[HOLES.all(axis=1)] = False
TABLE = FULL.mask(HOLES)
BY = np.random.default_rng(2).integers(4, size=len(FULL))


@pytest.fixture(scope="module")
def fitted():
    """Two sizes of mixtures in place of five, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SIZES", (2, 3))
        return up.MixtureImputer(choose_iter=8).fit(up.federate(TABLE, by=BY, mode="one by one"))


@pytest.mark.slow
def test_over_clients_it_is_the_pooled_one(fitted, monkeypatch):
    monkeypatch.setattr(candidates, "SIZES", (2, 3))
    pooled = up.MixtureImputer(choose_iter=8).fit(TABLE)
    filled, other = fitted.transform(TABLE), pooled.transform(TABLE)
    for name in FULL:
        if filled[name].dtype == float:
            np.testing.assert_allclose(filled[name], other[name], rtol=1e-7)
        else:
            assert (filled[name] == other[name]).all()


def test_a_frame_stays_a_frame_of_its_own_types(fitted):
    shuffled = TABLE[["ward", "crp", "grade", "age", "smokes"]].assign(note="kept")
    filled = fitted.transform(shuffled)
    assert list(filled.columns) == list(shuffled.columns)
    assert (filled.dtypes == shuffled.dtypes).all()
    assert filled.drop(columns="note").notna().all().all()
    assert (filled["note"] == "kept").all()
    for j, name in enumerate(FULL):
        there = ~HOLES[:, j]
        assert (filled[name][there] == FULL[name][there]).all()


def test_levels_are_filled_better_than_by_the_mode(fitted):
    filled = fitted.transform(TABLE)
    for name in ("ward", "smokes", "grade"):
        gaps = HOLES[:, FULL.columns.get_loc(name)]
        right = (filled[name].astype(str) == FULL[name].astype(str))[gaps].mean()
        mode = (TABLE[name].mode()[0] == FULL[name].astype(str))[gaps].mean()
        assert right > mode + 0.1


def test_probabilities_add_up_and_say_what_is_there(fitted):
    probs = fitted.probabilities(TABLE)
    assert set(probs) == {"ward", "smokes", "grade"}
    for name, found in probs.items():
        gaps = HOLES[:, FULL.columns.get_loc(name)]
        np.testing.assert_allclose(found.sum(1), 1)
        assert (found[~gaps].max(1) == 1).all()
        assert (found[gaps].max(1) < 1).all()
    gaps = HOLES[:, FULL.columns.get_loc("ward")]
    true = pd.Categorical(FULL["ward"], ["heart", "lung", "skin"]).codes[gaps]
    assert np.log(probs["ward"][gaps][np.arange(gaps.sum()), true]).mean() > np.log(1 / 3)


def test_intervals_of_numbers_cover(fitted):
    low, high = fitted.interval(TABLE)
    for j in (0, 3):
        truth = FULL.iloc[:, j].to_numpy()
        inside = ((low[:, j] <= truth) & (truth <= high[:, j]))[HOLES[:, j]].mean()
        assert 0.8 < inside < 0.98


def test_draws_keep_kinds(fitted):
    for drawn in fitted.draw(TABLE, 3, random_state=0):
        assert set(drawn["ward"]) == {"heart", "lung", "skin"}
        assert drawn["age"].notna().all()


@pytest.mark.slow
def test_declared_positive_columns_stay_positive():
    model = up.MixtureImputer().fit(up.federate(TABLE, by=BY, columns={"crp": "positive"}))
    low, _ = model.interval(TABLE)
    assert low[:, FULL.columns.get_loc("crp")].min() > 0
    assert model.transform(TABLE)["crp"].min() > 0


def test_sensitivity_finds_where_an_answer_changes(fitted):
    whole = fitted.transform(TABLE)["age"].mean()
    found = fitted.sensitivity(TABLE, lambda t: t["age"].mean(), columns=["age"], threshold=whole + 0.2)
    assert found.answers[found.deltas == 0][0] == pytest.approx(whole)
    assert (np.diff(found.answers) > 0).all()
    assert 0 < found.tipping < 3
    again = fitted.sensitivity(
        TABLE, lambda t: t["age"].mean(), columns=["age"], threshold=whole + 0.2, deltas=[found.tipping]
    )
    assert again.answers[-1] == pytest.approx(whole + 0.2, abs=0.02)
    assert np.isnan(fitted.sensitivity(TABLE, lambda t: t["age"].mean(), columns=["crp"], threshold=0.0).tipping)
    with pytest.raises(BadParameter, match="no column"):
        fitted.sensitivity(TABLE, len, columns=["weight"])


def test_the_tipping_point_is_the_nearest_to_zero():
    deltas = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert tipping_point(deltas, np.array([-1.0, 1.0, 1.0, 1.0, -3.0])) == pytest.approx(1.25)
    assert np.isnan(tipping_point(deltas, np.ones(5)))


def test_shares_are_the_least_squares_on_the_simplex():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(200, 4)) * [1.0, 1.1, 3.0, 1.0] + rng.normal(size=(200, 1))
    gram = errors.T @ errors
    found = simplex_least(gram)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    slope = gram @ found
    assert slope.min() > (1 - 1e-6) * found @ slope  # no point of the simplex is better


def test_rounding_does_not_decide_between_candidates_that_err_alike():
    rng = np.random.default_rng(5)
    errors = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 6))
    errors[:, 3:] = errors[:, :3] + 1e-10 * rng.normal(size=(60, 3))  # three pairs of candidates
    found = simplex_least(errors.T @ errors)
    assert found[3:] == pytest.approx(found[:3], abs=1e-4)
    moved = (errors.T @ errors) * (1 + 1e-15 * rng.normal(size=(6, 6)))
    assert simplex_least(moved) == pytest.approx(found, abs=1e-7)


def test_it_is_saved_and_loaded(fitted, tmp_path):
    back = up.load(fitted.save(tmp_path))
    pd.testing.assert_frame_equal(back.transform(TABLE), fitted.transform(TABLE))


def test_polars_and_arrow_come_back_as_given(fitted):
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    texts = TABLE.assign(grade=TABLE["grade"].astype(object))
    given = polars.DataFrame({name: [None if pd.isna(v) else v for v in texts[name]] for name in texts})
    model = up.MixtureImputer(1).fit(given)
    filled = model.transform(given)
    assert filled.schema == given.schema
    assert filled.null_count().sum_horizontal()[0] == 0
    table = arrow.table({name: arrow.array([None if pd.isna(v) else v for v in texts[name]]) for name in texts})
    other = model.transform(table)
    assert other.schema == table.schema
    assert sum(column.null_count for column in other.columns) == 0
