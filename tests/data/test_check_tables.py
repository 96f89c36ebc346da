"""A check names what differs between sites' tables and nothing where they match."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.data.check import Profile, profile
from unpooled.data.check.codes import number_codes
from unpooled.data.check.profile import histogram
from unpooled.errors import BadData, BadParameter, DataNotFound

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "check_mismatches.py"


@pytest.fixture(name="planted", scope="module")
def planted_():
    spec = importlib.util.spec_from_file_location("check_mismatches", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_mismatches"] = module
    spec.loader.exec_module(module)
    return module


def names(found):
    return [(f.what, f.column, f.site) for f in found.findings]


@pytest.mark.parametrize("seed", [7, 8])
def test_every_planted_mismatch_is_named_with_its_column_and_site(planted, seed):
    for i, (title, what, column, plant) in enumerate(planted.MISMATCHES):
        tables, rng = planted.hospitals(1000 * seed + i), np.random.default_rng(i)
        tables[planted.ODD] = plant(tables[planted.ODD], rng)
        assert (what, column, planted.ODD) in names(up.check(tables)), title


def test_nothing_is_named_where_tables_match(planted):
    for seed in range(20, 26):
        assert names(up.check(planted.hospitals(seed), label="event")) == []


def test_the_block_it_writes_fits_the_tables(planted):
    tables = planted.hospitals(3)
    columns = up.check(tables).columns
    assert columns["patient"] == {"kind": "id"}
    assert columns["sex"] == {"kind": "binary", "levels": ["female", "male"]}
    assert columns["visit"] == {"kind": "date"}
    fed = up.federate(tables, label="event", columns=columns)
    assert "patient" not in fed.columns
    tables["zurich"] = tables["zurich"].assign(chol=tables["zurich"].chol.where(tables["zurich"].chol > 190, 0.0))
    assert up.check(tables).columns["chol"]["missing"] == [0]


def test_what_is_declared_is_compared_and_no_longer_told(planted):
    tables = planted.hospitals(4)
    odd = tables["zurich"]
    tables["zurich"] = odd.assign(height=odd.height / 2.54, sex=odd.sex.map({"male": "M", "female": "F"}))
    assert {f[:2] for f in names(up.check(tables))} == {("unit", "height"), ("levels", "sex")}
    columns = {**up.check(planted.hospitals(4)).columns, "height": {"kind": "real", "unit": "cm"}}
    own = {"zurich": {"height": {"unit": "in"}, "sex": {"levels": {"M": "male", "F": "female"}}}}
    assert names(up.check(tables, columns=columns, sites=own)) == []
    assert ("levels", "sex", "zurich") in names(up.check(tables, columns=columns))


def test_labels_rows_constant_and_empty_columns_are_told_of():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(size=60), "b": rng.normal(size=60), "c": 1.0, "y": rng.choice(["n", "p"], 60)}
    )
    odd = table.head(8).assign(b=np.nan, y=["n", None] * 4)
    found = names(up.check({"x": table, "y": table.assign(a=3.0), "z": odd}, label="y"))
    assert set(found) == {
        ("constant", "c", ""),
        ("constant", "a", "y"),
        ("missing", "b", "z"),
        ("rows", "", "z"),
        ("label", "y", "z"),
    } | {f for f in found if f == ("missing", "y", "z")}


def test_a_column_of_labels_that_no_site_has_is_told_of():
    table = pd.DataFrame({"age": range(20, 40), "event": ["no", "yes"] * 10})
    (found,) = up.check({"x": table, "y": table}, label="evnt").findings
    assert found[:3] == ("label", "evnt", "")
    assert "no site has the column of labels 'evnt': did you mean 'event'?" in found.text


def test_a_file_that_cannot_be_read_is_a_finding_of_its_site(tmp_path):
    pd.DataFrame({"a": range(20), "b": range(20, 40)}).to_csv(tmp_path / "good.csv", index=False)
    (tmp_path / "latin.csv").write_bytes("a;b\n1;é\n".encode("latin-1"))
    (found,) = up.check(tmp_path).findings
    assert (found.what, found.site) == ("table", "latin")
    assert "UTF-8" in found.text


def test_the_page_is_whole_and_escapes_what_sites_wrote(tmp_path):
    table = pd.DataFrame({"<b>": np.arange(30.0), "t": ["<script>", "b", "c"] * 10})
    found = up.check({"one": table, "<i>two": table.rename(columns={"t": "u"})})
    page = found.save(tmp_path / "check.html").read_text()
    assert "<script>" not in page
    assert "&lt;b&gt;" in page
    assert page == page.strip()
    assert "has no column" in str(found)
    assert "[columns]" in found.toml


def test_counts_below_the_floor_stay_at_the_site():
    rng = np.random.default_rng(1)
    columns = {
        "sex": np.array(["m"] * 50 + ["f"] * 40 + ["rare"] * 3, dtype=object),
        "x": np.concatenate([rng.normal(100, 10, 91), [1e6, 2e6]]),
    }
    told = profile("a", columns, floor=5)
    assert told.rows == 90
    assert told["sex"].levels == {"m": 50, "f": 40}
    assert told["x"].quantiles[4] < 1000
    assert Profile.unpack(told.pack()) == told
    edges, counts = histogram(columns["x"], 5)
    assert counts[counts > 0].min() >= 5
    assert len(edges) == len(counts) + 1
    exact = profile("a", columns)["x"].quantiles
    np.testing.assert_allclose(told["x"].quantiles[1:4], exact[1:4], rtol=0.1)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (np.r_[np.arange(100.0, 160), 0, 0, 0], {"0": 3}),
        (np.r_[np.arange(20.0, 80), [-9] * 4], {"-9": 4}),
        (np.r_[np.arange(20.0, 80), [999] * 4], {"999": 4}),
        (np.r_[np.arange(60, 99.0), [99] * 4], {}),
        (np.r_[np.arange(0.0, 60), 0, 0], {}),
        (np.r_[np.linspace(-5, 5, 60), -1, -1], {}),
    ],
)
def test_codes_lie_apart_from_all_other_values(values, codes):
    assert number_codes(values) == codes


def four_sites(make):
    rng = np.random.default_rng(5)
    return {site: make(rng) for site in ("a", "b", "c", "d")}


def test_zeros_of_counts_and_of_amounts_that_are_often_none_are_values():
    counts = four_sites(lambda rng: pd.DataFrame({"visits": rng.poisson(1.3, 300)}))
    paid = four_sites(lambda rng: pd.DataFrame({"paid": np.where(rng.random(300) < 0.2, 0.0, rng.normal(90, 9, 300))}))
    assert names(up.check(counts)) == names(up.check(paid)) == []
    few = four_sites(lambda rng: pd.DataFrame({"paid": rng.normal(90, 9, 300)}))
    few["d"].loc[:20, "paid"] = 0.0
    assert names(up.check(few)) == [("code", "paid", "d")]


@pytest.mark.parametrize(
    ("change", "text"),
    [(lambda x: 1.94384 * x, "knots"), (lambda x: x + 273.15, "Kelvin")],
)
def test_units_are_named_although_ranges_overlap_or_reach_below_zero(change, text):
    tables = four_sites(lambda rng: pd.DataFrame({"wind": rng.gamma(2.5, 1.6, 400)}))
    tables["d"] = tables["d"].apply(change)
    (found,) = up.check(tables).findings
    assert (found.what, found.site) == ("unit", "d")
    assert text in found.text


def test_a_level_in_place_of_one_that_all_others_have_is_named():
    tables = four_sites(lambda rng: pd.DataFrame({"for": rng.choice(["car", "home", "other"], 200)}))
    tables["d"] = tables["d"].replace("other", "misc")
    (found,) = up.check(tables).findings
    assert (found.what, found.site) == ("levels", "d")
    assert "'misc'" in found.text
    assert "'other'" in found.text


def test_the_columns_to_start_from_have_lines_for_single_sites():
    def site(rng):
        pets = rng.choice(["cat", "dog"], 200)
        return pd.DataFrame({"kg": rng.normal(60, 9, 200), "pet": pets, "age": rng.normal(5, 1, 200)})

    tables = four_sites(site)
    tables["b"] = tables["b"].rename(columns={"kg": "Kg"})
    tables["c"] = tables["c"].drop(columns="age")
    tables["d"] = tables["d"].replace({"cat": "Katze", "dog": "Hund"})
    found = up.check(tables)
    assert found.columns["pet"]["levels"] == ["cat", "dog"]
    for line in ("# [sites.b]", '# kg = "Kg"', "# age = false", '# pet = {levels = {"Hund" = "...", "Katze" = "..."}}'):
        assert line in found.toml.splitlines()
    again = up.check({s: tables[s] for s in "abc"}, sites={"b": {"kg": "Kg"}, "c": {"age": False}})
    assert again.findings == []
    assert "#" not in again.toml


def test_numbers_that_contradict_their_declaration_are_named():
    tables = four_sites(lambda rng: pd.DataFrame({"age": rng.integers(1, 90, 50), "dose": rng.normal(size=50) + 9}))
    tables["b"] = tables["b"].astype(float)
    tables["b"].loc[3, "dose"] = np.inf
    found = up.check(tables, columns={"age": "binary"})
    assert names(found).count(("kind", "dose", "b")) == 1
    assert [site for what, column, site in names(found) if (what, column) == ("kind", "age")] == ["a", "b", "c", "d"]
    assert "is declared 'binary' and holds" in str(found)
    declared = up.check(tables, columns={"age": "date"}).findings
    assert "column 'age' holds numbers, and is declared 'date'" in [f.text for f in declared]


def test_truth_values_are_alike_in_any_letters():
    tables = four_sites(lambda rng: pd.DataFrame({"well": rng.choice(["TRUE", "FALSE"], 60)}))
    tables["c"] = tables["c"] == "TRUE"
    tables["d"]["well"] = tables["d"]["well"].str.lower()
    found = up.check(tables)
    assert found.findings == []
    assert found.columns["well"] == {"kind": "binary", "levels": ["false", "true"]}
    for levels in (["false", "true"], ["FALSE", "TRUE"]):
        fed = up.federate(tables, columns={"well": {"kind": "binary", "levels": levels}})
        assert [set(c.x.ravel()) for c in fed.here()] == [{0.0, 1.0}] * 4


def counties(n_sites, rows=12, seed=0):
    """Sites of few rows whose levels differ as towns' prices do."""
    rng = np.random.default_rng(seed)
    levels = np.exp(rng.normal(12, 0.5, n_sites))
    return {
        f"s{i}": pd.DataFrame({"price": level * np.exp(0.1 * rng.normal(size=rows))}) for i, level in enumerate(levels)
    }


def test_sites_that_differ_by_nature_are_not_told_of_as_units():
    assert sum(len(up.check(counties(30, seed=seed)).findings) for seed in range(10)) <= 1
    tables = counties(30)
    tables["s3"] = tables["s3"] / 100
    assert [(f.what, f.site) for f in up.check(tables).findings] == [("unit", "s3")]


def test_units_are_not_guessed_from_a_handful_of_rows():
    tables = four_sites(lambda rng: pd.DataFrame({"weight": rng.normal(70, 8, 100)}))
    tables["e"] = pd.DataFrame({"weight": [29.0, 30.0, 31.0, 30.5]})
    assert names(up.check(tables)) == [("rows", "", "e")]


def test_a_column_of_scores_is_not_taken_for_a_standardised_one_at_one_site():
    rng = np.random.default_rng(0)
    tables = {f"s{i}": pd.DataFrame({"score": rng.normal(0.1, 1.05, 60)}) for i in range(6)}
    score = tables["s2"]["score"]
    tables["s2"] = pd.DataFrame({"score": (score - score.mean()) / score.std(ddof=0)})
    assert names(up.check(tables)) == []


def test_zeros_that_are_common_everywhere_are_no_codes_at_single_sites():
    def amounts(rng, least):
        return pd.DataFrame({"added": np.where(rng.random(100) < 0.4, 0.0, rng.uniform(least, 12, 100))})

    rng = np.random.default_rng(0)
    tables = {f"s{i}": amounts(rng, 4.0 if i < 2 else 0.1) for i in range(6)}
    assert number_codes(tables["s0"]["added"].to_numpy())
    assert names(up.check(tables)) == []


def test_one_table_is_split_by_a_column_or_by_an_array():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"height": rng.normal(170, 9, 60).round(1), "sex": ["f", "m"] * 30})
    site = np.repeat(["lyon", "nice"], 30)
    by_column = up.check(table.assign(site=site), by="site")
    for by in (site, list(site), pd.Series(site)):
        assert up.check(table, by=by).profiles == by_column.profiles
    with pytest.raises(BadData, match="by= has 3 labels for 60 rows"):
        up.check(table, by=["lyon"] * 3)
    with pytest.raises(BadData, match="by= has no value in row 1: every row needs a client"):
        up.check(table.assign(site=["lyon", None] * 30), by="site")
    with pytest.raises(BadParameter, match="the data is split already: leave by= out"):
        up.check({"lyon": table}, by=site)


def test_lines_for_single_sites_are_toml_whatever_the_names():
    rng = np.random.default_rng(0)
    pets = rng.choice(["cat", "dog"], 200)
    table = pd.DataFrame({"RR sys": rng.normal(130, 15, 200), "Größe": rng.normal(170, 9, 200), "the pet": pets})
    odd = table.rename(columns={"RR sys": "RR_sys"}).drop(columns="Größe").replace({"cat": 'Kat"ze'})
    lines = up.check({"a": table, "b": table, "bad ems": odd, "c": table}).toml.split("offers)\n")[1]
    told = tomllib.loads(lines.replace("# ", ""))["sites"]["bad ems"]
    assert told == {"RR sys": "RR_sys", "Größe": False, "the pet": {"levels": {'Kat"ze': "..."}}}


def test_ids_of_small_sites_are_not_compared_as_levels():
    rng = np.random.default_rng(0)
    tails = [f"N{i}AA" for i in rng.permutation(900)[:240] + 100]
    table = pd.DataFrame({"tail": tails, "seats": rng.normal(150, 20, 240).round()})
    sites = {"a": table[:210], "b": table[210:235], "c": table[235:]}
    found = up.check(sites)
    assert [f for f in found.findings if f.what == "levels"] == []
    assert found.columns["tail"] == {"kind": "id"}


def test_no_tables_are_no_match():
    with pytest.raises(BadData, match="there are no clients: give at least one"):
        up.check({})


def test_a_path_that_leads_nowhere_is_an_error_and_no_table(tmp_path):
    with pytest.raises(DataNotFound, match="nowhere is neither a file nor a folder: check the path"):
        up.check(tmp_path / "nowhere")
