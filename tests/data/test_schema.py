"""Kinds, levels, units and codes of columns: inferred, declared, agreed, encoded and decoded."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import unpooled as up
from unpooled.data.schema import Column, Own, Schema, Texts, agree, as_texts, decode, encode, infer, read_own
from unpooled.data.schema.encode import FIRST, MISSING
from unpooled.data.schema.units import conversion
from unpooled.errors import BadData, BadParameter, DataWarning


def objects(*values):
    return np.array(values, dtype=object)


@pytest.mark.parametrize(
    ("values", "kind", "levels"),
    [
        (np.array([1.5, np.nan, 2.0]), "real", ()),
        (np.array([0, 1, 1]), "binary", ()),
        (np.array([0.0, np.nan, 1.0]), "binary", ()),
        (np.array([True, False]), "binary", ("false", "true")),
        (objects(True, None, False), "binary", ("false", "true")),
        (objects("TRUE", "FALSE", None), "binary", ("false", "true")),
        (objects("m", "f", None), "category", ("f", "m")),
        (objects("2020-01-01", None, "2021-05-31"), "date", ()),
        (objects("2020-01-01 10:30", "2021-05-31T08:00:00"), "date", ()),
        (np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), "date", ()),
        (objects(*[f"P{i}" for i in range(60)]), "id", ()),
        (objects(1, None, 2.5), "real", ()),
    ],
)
def test_kinds_are_seen_in_the_values(values, kind, levels):
    column = infer("c", values, "the data")
    assert (column.kind, column.levels) == (kind, levels)


def test_a_column_without_values_shows_nothing():
    for values in (np.full(3, np.nan), objects(None, None), np.array(["NaT"], dtype="datetime64[D]")):
        assert infer("c", values, "the data") is None


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_types_of_frames_are_understood(library):
    dates = pd.to_datetime(["2020-01-02", None, "1970-01-03"])
    columns = {"sex": ["m", None, "f"], "ok": [True, False, True], "n": [1, 2, 4]}
    if library == "pandas":
        frame = pd.DataFrame({**columns, "when": dates})
        frame["grade"] = pd.Categorical(["lo", None, "hi"], ["lo", "mid", "hi"], ordered=True)
        frame["city"] = pd.Categorical(["bern", "basel", None])
    else:
        frame = pl.DataFrame({**columns, "when": pl.Series(dates.to_numpy())})
        frame = frame.with_columns(
            grade=pl.Series(["lo", None, "hi"], dtype=pl.Enum(["lo", "mid", "hi"])),
            city=pl.Series(["bern", "basel", None], dtype=pl.Categorical),
        )
    fed = up.federate(frame)
    kinds = dict(zip(fed.schema.names, fed.schema.kinds))
    ordered = "ordered" if library == "pandas" else "category"
    assert kinds == {
        **{"sex": "binary", "ok": "binary", "n": "real", "when": "date"},
        **{"grade": ordered, "city": "binary"},
    }
    x = fed.here()[0].x
    np.testing.assert_array_equal(x[:, 3], [18263.0, np.nan, 2.0])
    np.testing.assert_array_equal(x[:, 0], [1, np.nan, 0])
    np.testing.assert_array_equal(x[:, 4], [0, np.nan, 2])
    np.testing.assert_array_equal(x[:, 5], [1, 0, np.nan])


def test_a_csv_holds_the_same_as_its_frame(tmp_path):
    frame = pd.DataFrame({"sex": ["m", "f", None] * 4, "ok": [True, False, True] * 4, "n": [1.5, 2, 4] * 4})
    frame["when"] = ["2020-01-02", "2020-05-01", None] * 4
    frame.to_csv(tmp_path / "a.csv", index=False)
    from_file, from_frame = up.federate(tmp_path / "a.csv"), up.federate(frame)
    assert from_file.schema == from_frame.schema
    np.testing.assert_array_equal(from_file.here()[0].x, from_frame.here()[0].x)


def test_levels_are_the_union_over_sites_and_kinds_must_agree():
    one, two = Column("c", "category", levels=("a", "c")), Column("c", "category", levels=("b",))
    assert agree("c", {"x": one, "y": two, "z": None}) == Column("c", "category", levels=("a", "b", "c"))
    assert agree("c", {"x": Column("c", "binary"), "y": Column("c", "real")}).kind == "real"
    with pytest.raises(BadData, match=r"'c' is a number at x and text such as 'b' at y: .*run `unpooled check`"):
        agree("c", {"x": Column("c", "real"), "y": two})
    ordered = [Column("c", "ordered", levels=v) for v in (("lo", "hi"), ("lo", "mid", "hi"))]
    assert agree("c", {"x": ordered[0], "y": ordered[1]}).levels == ("lo", "mid", "hi")
    with pytest.raises(BadData, match="another order"):
        agree("c", {"x": Column("c", "ordered", levels=("hi", "lo")), "y": ordered[1]})


SCHEMA = Schema.from_toml(
    {
        "age": "positive",
        "chol": {"unit": "mg/dL", "kind": "real", "missing": [0, "n/a"]},
        "sex": {"levels": ["female", "male"], "kind": "binary"},
        "cp": {"levels": [1, 2, 3], "kind": "category", "other": "3"},
        "visit": "date",
        "name": "id",
    }
)


def test_cells_become_numbers_and_back():
    columns = {
        "Alter": np.array([61, 47, 70]),
        "chol": objects("6.5", "n/a", "0"),
        "sex": objects("m", "w", None),
        "cp": np.array([2.0, 9.0, np.nan]),
        "visit": objects("1970-01-11", None, "1970-01-02"),
    }
    own = read_own(
        {
            "age": "Alter",
            "chol": {"unit": "mmol/L", "factor": 38.67},
            "sex": {"levels": {"m": "male", "w": "female"}},
        }
    )
    x = encode(SCHEMA.used, columns, "client 'a'", own)
    expected = [[61, 6.5 * 38.67, 1, 1, 10], [47, np.nan, 0, 2, np.nan], [70, np.nan, np.nan, np.nan, 1]]
    np.testing.assert_allclose(x, expected)
    back = decode(SCHEMA.used, x)
    assert back["sex"].tolist() == ["male", "female", None]
    assert back["cp"].tolist() == ["2", "3", None]
    assert [str(d) for d in back["visit"]] == ["1970-01-11", "NaT", "1970-01-02"]


def test_a_schema_is_the_same_after_toml_and_after_a_list():
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    assert Schema.from_list(SCHEMA.to_list()) == SCHEMA
    assert SCHEMA.used.names == ["age", "chol", "sex", "cp", "visit"]


def test_a_level_that_is_not_listed():
    schema = Schema.from_toml({"sex": {"levels": ["f", "m"]}})
    columns = {"sex": objects("m", "x", "f")}
    with pytest.raises(BadData, match=r"'sex' of the data holds 'x', which is none of its levels \('f', 'm'\)"):
        encode(schema, columns, "the data")
    with pytest.warns(DataWarning, match="1 rows of the data hold 'x' in column 'sex'.*taken as missing"):
        x = encode(schema, columns, "the data", unlisted=MISSING)
    np.testing.assert_array_equal(x[:, 0], [1, np.nan, 0])
    with pytest.warns(DataWarning, match="taken as 'f', the first level"):
        x = encode(schema, columns, "the data", unlisted=FIRST)
    np.testing.assert_array_equal(x[:, 0], [1, 0, 0])


def test_new_rows_of_a_column_that_held_only_zero_and_one():
    schema = Schema.from_toml({"repeated": "binary"})
    columns = {"repeated": np.array([1, 2, 0])}
    with pytest.warns(
        DataWarning, match="1 rows of the data hold numbers such as 2 .* only 0 and 1 .*: taken as a number"
    ):
        np.testing.assert_array_equal(encode(schema, columns, "the data", unlisted=FIRST)[:, 0], [1, 2, 0])
    with pytest.warns(DataWarning, match="taken as missing"):
        np.testing.assert_array_equal(encode(schema, columns, "the data", unlisted=MISSING)[:, 0], [1, np.nan, 0])


@pytest.mark.parametrize(
    ("site", "wanted", "factor", "shift"),
    [
        ("in", "cm", 2.54, 0),
        ("cm", "m", 0.01, 0),
        ("lb", "kg", 0.45359237, 0),
        ("°F", "°C", 5 / 9, -160 / 9),
        ("degC", "F", 1.8, 32),
        ("fraction", "percent", 100, 0),
        ("years", "days", 365.2425, 0),
        ("g/L", "mg/dL", 100, 0),
        ("µmol/L", "mmol/L", 1e-3, 0),
        (None, "cm", 1, 0),
    ],
)
def test_units_are_converted(site, wanted, factor, shift):
    found = conversion(site, wanted, None, "c", "the data")
    np.testing.assert_allclose(found, (factor, shift), rtol=1e-9)


def test_moles_need_a_factor():
    with pytest.raises(
        BadParameter, match=r"'chol' in 'mmol/L' and 'mg/dL' is wanted: give factor = .*38.67 for cholesterol"
    ):
        conversion("mmol/L", "mg/dL", None, "chol", "client 'a'")
    assert conversion("mmol/L", "mg/dL", 38.67, "chol", "client 'a'").factor == 38.67


# ---- federations ----

PARIS = pd.DataFrame({"age": [61.0, 50, 44, 70], "sex": ["f", "m", "m", "f"], "y": [0, 1, 1, 0]})
BOSTON = pd.DataFrame({"sex": ["m", "f", "m"], "Age": [33.0, 44, 58], "y": [1, 0, 1]})


def test_sites_write_columns_in_their_own_way():
    fed = up.federate({"paris": PARIS, "boston": BOSTON}, label="y", sites={"boston": {"age": "Age"}})
    assert fed.columns == ["age", "sex"]
    np.testing.assert_array_equal(fed.here()[1].x, [[33, 1], [44, 0], [58, 1]])


def test_a_union_of_columns_is_the_pooled_table_with_missing_values():
    rng = np.random.default_rng(0)
    tables = {}
    for i, name in enumerate("abc"):
        x = rng.multivariate_normal([i, 2, -1], [[1, 0.5, 0.2], [0.5, 1, 0.1], [0.2, 0.1, 1]], 200)
        tables[name] = pd.DataFrame(x, columns=["u", "v", "w"])
    lacking = {"a": tables["a"], "b": tables["b"].drop(columns="v"), "c": tables["c"].drop(columns="u")}
    filled = {n: t.reindex(columns=["u", "v", "w"]) for n, t in lacking.items()}
    with pytest.raises(BadData, match=r"'b' has no column 'v' that client 'a' has: .*columns='union'.*unpooled check"):
        up.federate(lacking)
    union = up.GaussianMixture(2, random_state=0, max_iter=20).fit(up.federate(lacking, columns="union"))
    pooled = up.GaussianMixture(2, random_state=0, max_iter=20).fit(up.federate({"all": pd.concat(filled.values())}))
    np.testing.assert_allclose(union.means_, pooled.means_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(union.covariances_, pooled.covariances_, rtol=1e-12, atol=1e-12)
    said = up.federate(lacking, sites={"b": {"v": False}, "c": {"u": False}})
    np.testing.assert_array_equal(said.here()[1].x, filled["b"].to_numpy())


def test_ids_are_not_used_and_ignored_columns_may_differ():
    tables = {"paris": PARIS.assign(who="p", note="a"), "boston": BOSTON.rename(columns={"Age": "age"}).assign(who="q")}
    fed = up.federate(tables, label="y", columns={"who": "id", "note": "ignored"})
    assert fed.columns == ["age", "sex"]
    many = pd.DataFrame({"age": np.arange(80.0), "who": [f"P{i}" for i in range(80)]})
    with pytest.warns(DataWarning, match="'who' holds another text in every row: taken as an id"):
        assert up.federate(many).columns == ["age"]


def test_labels_follow_their_declaration():
    tables = {"paris": PARIS.assign(y=["ja", "nein", "?", "ja"]), "boston": BOSTON.assign(y=["yes", "no", "no"])}
    with pytest.warns(DataWarning, match="1 rows have no label"):
        fed = up.federate(
            tables,
            label="y",
            columns={"y": {"levels": ["no", "yes"], "missing": ["?"]}},
            sites={"boston": {"age": "Age"}, "paris": {"y": {"levels": {"ja": "yes", "nein": "no"}}}},
        )
    assert [c.y.tolist() for c in fed.here()] == [["yes", "no", "yes"], ["yes", "no", "no"]]


def test_a_site_says_what_it_writes_for_zero_and_one():
    yes_no = {"y": {"levels": {"no": "0", "yes": "1"}}}
    tables = {"boston": BOSTON.assign(y=["yes", "no", "no"]), "rome": BOSTON.assign(y=[0, 1, 0])}
    fed = up.federate(tables, label="y", columns={"y": "binary"}, sites={"boston": yes_no})
    assert [c.y.tolist() for c in fed.here()] == [[1, 0, 0], [0, 1, 0]]
    one_two = {"sex": {"levels": {"1": "0", "2": "1"}}}
    coded = {"boston": pd.DataFrame({"sex": [1, 2, 2, np.nan]}), "rome": pd.DataFrame({"sex": [0, 1, 1, 0]})}
    fed = up.federate(coded, columns={"sex": "binary"}, sites={"boston": one_two})
    np.testing.assert_array_equal(fed.here()[0].x[:, 0], [0, 1, 1, np.nan])


# ---- what is refused, each in one sentence ----

NUMBERS = pd.DataFrame({"age": [61.0, 50, 44], "x": [1.0, 2, 3]})


def texts(*values):
    return NUMBERS.assign(c=list(values))


@pytest.mark.parametrize(
    ("message", "data", "how"),
    [
        (r"'c' of the data holds numbers such as '3' beside texts such as 'male'", texts("male", "male", "3"), {}),
        (
            r"'c' of the data holds dates such as '31.05.2024'.*write dates as 2024-05-31",
            texts("31.05.2024", "2024-06-01", "1.6.2024"),
            {},
        ),
        (
            r"'c' of the data holds values such as '1,5' \(row 1\): write numbers with a point",
            texts("1,5", "2,25", "3"),
            {},
        ),
        (r"'c' of the data holds texts such as '1' \(row 1\) that are numbers", texts("1", "2", "3"), {}),
        (r"'c' of the data is declared 'positive' and holds 0: .*missing = \[0\]", texts(0, 1, 2), {"c": "positive"}),
        (r"'c' of the data is declared 'count' and holds 1.5", texts(0, 1.5, 2), {"c": "count"}),
        (r"'c' of the data is declared 'binary' and holds 2", texts(0, 1, 2), {"c": "binary"}),
        (
            r"'c' of the data is of kind 'real' and holds 'low': .*missing = \['low'\]",
            texts("1", "low", "2"),
            {"c": "real"},
        ),
        (r"'c' of the data holds 'x', which is not a date", texts("2020-01-01", "x", "2020-01-01"), {"c": "date"}),
        (
            r"'c' of the data holds a date that does not exist",
            texts("2020-02-31", "2020-01-01", "2020-01-01"),
            {"c": "date"},
        ),
    ],
)
def test_a_table_that_makes_no_sense(message, data, how):
    with pytest.raises(BadData, match=message) as caught:
        up.federate(data, columns=how)
    assert "\n" not in str(caught.value)


def test_numbers_that_all_differ_are_no_ids():
    numbers = [f"{v:.3f}" for v in np.random.default_rng(0).normal(size=80)]
    with pytest.raises(BadData, match="beside texts such as 'high'"):
        up.federate(pd.DataFrame({"a": np.arange(80.0), "b": [*numbers[:-1], "high"]}))
    with pytest.raises(BadData, match="write numbers with a point for decimals"):
        up.federate(pd.DataFrame({"a": np.arange(80.0), "b": [n.replace(".", ",") for n in numbers]}))


def test_a_hundred_thousand_levels():
    codes = np.repeat(np.arange(100_000), 2)
    many = pd.DataFrame({"age": np.arange(200_000.0), "c": [f"L{i}" for i in codes]})
    with pytest.raises(
        BadData, match=r"'c' of the data holds 100,000 different texts, at most 1,000 levels .* id or ignored"
    ):
        up.federate(many)
    assert up.federate(many, columns={"c": "ignored"}).columns == ["age"]


@pytest.mark.parametrize(
    ("message", "columns"),
    [
        (r"kind 'categry': did you mean 'category'", {"c": "categry"}),
        (r"a key 'level' for column 'c': did you mean 'levels'", {"c": {"level": ["a"]}}),
        (r"'c' lists a level twice", {"c": {"levels": ["a", "a"]}}),
        (r"'c' is binary and has 3 levels", {"c": {"kind": "binary", "levels": ["a", "b", "c"]}}),
        (r"'c' is of kind 'real' and has levels", {"c": {"kind": "real", "levels": ["a", "b"]}}),
        (r"'c' is of kind 'date' and has a unit", {"c": {"kind": "date", "unit": "d"}}),
        (r"other = 'z', which is none of its levels", {"c": {"levels": ["a", "b"], "other": "z"}}),
        (r"columns='uni' is not known", "uni"),
    ],
)
def test_a_declaration_that_makes_no_sense(message, columns):
    with pytest.raises(BadParameter, match=message):
        up.federate(texts("a", "b", "a"), columns=columns)


def test_sites_that_do_not_exist_or_lack_what_they_name():
    with pytest.raises(BadParameter, match=r"sites= describes 'pari', which is not a client: did you mean 'paris'"):
        up.federate({"paris": PARIS, "boston": BOSTON}, sites={"pari": {"age": "Age"}})
    with pytest.raises(BadData, match=r"client 'paris' has no column 'Alter'"):
        up.federate({"paris": PARIS}, sites={"paris": {"age": "Alter"}})
    with pytest.raises(BadData, match="declares kinds, but the data is an array without names"):
        up.federate(np.ones((3, 2)), columns={"a": "real"})


def test_texts_keep_codes_and_levels():
    found = as_texts(objects("b", None, "a", " a ", ""))
    assert found.present == ["b", "a"]
    np.testing.assert_array_equal(found.codes, [0, -1, 1, 1, -1])
    assert np.asarray(found[1:3]).tolist() == [None, "a"]
    assert as_texts(np.array([2.0, np.nan, 1.5])).levels == ["1.5", "2"]
    assert isinstance(found, Texts)
    assert Own().renamed() == Own(name="x").renamed()


def test_frames_of_numbers_are_fitted_as_arrays_are():
    x = np.random.default_rng(1).normal(size=(60, 3))
    frame = pd.DataFrame(x, columns=list("abc"))
    fed = up.federate(frame)
    assert fed.schema.plain
    model = up.GaussianMixture(2, random_state=0, max_iter=100).fit(fed)
    again = up.GaussianMixture(2, random_state=0, max_iter=100).fit(x)
    np.testing.assert_array_equal(model.means_, again.means_)
    assert not hasattr(model, "schema_")


def test_declarations_of_columns_that_nobody_has_are_refused():
    frames = {
        "a": pd.DataFrame({"ward": ["x", "y"], "age": [1.0, 2.0]}),
        "b": pd.DataFrame({"ward": ["y", "x"], "age": [3.0, 4.0]}),
    }
    with pytest.raises(BadData, match=r"columns= describes 'wrd', which no client has: did you mean 'ward'\?"):
        up.federate(frames, columns={"wrd": "category"})
    with pytest.raises(BadData, match=r"sites= \(client 'b'\) describes 'aeg', which no client has"):
        up.federate(frames, sites={"b": {"aeg": {"missing": [-9]}}})
    assert up.federate(frames, columns={"gone": "ignored", "age": "positive"}).schema.kinds == ["binary", "positive"]


def test_a_site_that_lacks_the_labels_is_named():
    frames = {"a": pd.DataFrame({"u": [1.0, 2.0], "y": [0, 1]}), "b": pd.DataFrame({"u": [3.0, 4.0]})}
    with pytest.raises(BadData, match=r"client 'b' lacks the labels 'y', as its columns say: leave it out of this fit"):
        up.federate(frames, label="y", sites={"b": {"y": False}})


# ---- texts and types that look like something else ----

DURATIONS = pd.Series(pd.to_timedelta([1, 2, 3], "D"))


@pytest.mark.parametrize("declared", [None, {"stay": "real"}])
def test_durations_are_refused_with_the_way_to_make_numbers_of_them(declared):
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "stay": DURATIONS, "site": list("aab")})
    columns = None if declared is None else {"age": "real", **declared}
    with pytest.raises(
        BadData, match=r"column 'stay' of .* holds durations .*frame\['stay'\].dt.total_seconds\(\) / 86400"
    ):
        up.federate(frame, by="site", columns=columns)
    assert up.federate(frame, by="site", columns={"age": "real", "stay": "ignored"}).columns == ["age"]


@pytest.mark.parametrize("written", ["{:.1f}%", "{:.1f} %", "{:.6f}%"])
def test_measured_percentages_are_refused(written):
    shares = pd.Series(np.random.default_rng(0).random(90) * 100).map(written.format)
    with pytest.raises(
        BadData, match=r"column 'share' of .* holds percentages such as .*%' \(row 1\): write them as numbers"
    ):
        up.federate(pd.DataFrame({"share": shares, "site": np.arange(90) % 3}), by="site")


def test_a_few_percentages_are_levels():
    frame = pd.DataFrame({"discount": ["10%", "20%", "5%"] * 5, "site": np.arange(15) % 3})
    assert up.federate(frame, by="site").schema["discount"].levels == ("10%", "20%", "5%")


@pytest.mark.parametrize("cell", [[1, 2], np.arange(2), {"a": 1}])
def test_cells_that_are_no_single_value_are_refused(cell):
    frame = pd.DataFrame({"age": [61.0, 70.0], "pulses": [None, cell]})
    with pytest.raises(
        BadData, match=r"column 'pulses' of the data holds values such as .* give one number, text or date"
    ):
        up.federate(frame)


def test_the_label_among_the_features_is_refused_by_its_role():
    with pytest.raises(
        BadParameter, match="columns= names 'age', which is label= already: leave it out of the features"
    ):
        up.federate({"a": NUMBERS}, label="age", columns=["x", "age"])
