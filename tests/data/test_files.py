"""Files become the clients that the same rows in memory make, with pyarrow and without."""

import gzip
import sys
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from unpooled.data import files
from unpooled.data.tables import clients_from
from unpooled.errors import BadData, DataNotFound

TEXT = """age,chol,date,time,ok,site,id
63,233.5,2012-03-13,11:45,true,"north, upper",1152921504606846977
?,,2012-03-14,12:00,false,south,1152921504606846976
-41,NA,2012-03-15,12:15,NaN,null,7
"""


@contextmanager
def without_pyarrow():
    with pytest.MonkeyPatch.context() as patch:
        for name in [m for m in sys.modules if m == "pyarrow" or m.startswith("pyarrow.")]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "pyarrow", None)
        yield


def both_ways(path):
    """What the file holds by either reader, once they are seen to agree."""
    by_arrow = files.read(path)
    with without_pyarrow():
        by_hand = files.read(path)
    assert list(by_arrow) == list(by_hand)
    for name, column in by_arrow.items():
        assert column.dtype == by_hand[name].dtype, name
        np.testing.assert_array_equal(column, by_hand[name])
    return by_arrow


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_csv_by_either_reader(tmp_path, suffix, bom):
    path = tmp_path / f"a.{suffix}"
    data = (bom + TEXT).encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    columns = both_ways(path)
    np.testing.assert_array_equal(columns["age"], [63, np.nan, -41])
    np.testing.assert_array_equal(columns["chol"], [233.5, np.nan, np.nan])
    assert columns["date"].tolist() == ["2012-03-13", "2012-03-14", "2012-03-15"]
    assert columns["time"].tolist() == ["11:45", "12:00", "12:15"]
    assert columns["ok"].tolist() == ["true", "false", None]
    assert columns["site"].tolist() == ["north, upper", "south", None]
    assert columns["id"].tolist() == [1152921504606846977, 1152921504606846976, 7]  # no digit lost


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters_are_found_in_the_header(tmp_path, delimiter):
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1;2.5\n3;1e-3\n".replace(";", delimiter))
    np.testing.assert_array_equal(both_ways(path)["b"], [2.5, 0.001])


def test_a_column_may_change_its_kind_far_down(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,c\n" + f"1,2,{'long' * 15}\n" * 30_000 + "1.5,x,y\n")  # beyond the first block of a reader
    columns = both_ways(path)
    assert columns["a"][-1] == 1.5
    assert columns["b"][-1] == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv is empty"),
        (",age\n0,1\n", "column 1 has no name .*index=False"),
        ("age,chol,\n0,1,\n", "column 3 has no name .does every line end with ','"),
        ("sep=;\nage;chol\n0;1\n", "starts with the line sep=;, which only Excel reads: delete it"),
        ("age,age\n0,1\n", "two columns called 'age'"),
        ("1.5,2\n0,1\n", "starts with numbers"),
        ("age,chol\n1,2\n1,2,3\n", "a.csv cannot be read"),
    ],
)
def test_a_csv_file_that_makes_no_sense(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(BadData, match=message) as caught:
        files.read(path)
    assert "\n" not in str(caught.value)
    with without_pyarrow(), pytest.raises(BadData, match=message):
        files.read(path)


def test_a_name_in_quotes_may_go_on_in_the_next_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"weight\n(kg)",age\n61,70\n72,80\n')
    np.testing.assert_array_equal(both_ways(path)["weight (kg)"], [61, 72])


def test_a_header_of_running_numbers_is_a_header(tmp_path):
    (tmp_path / "a.csv").write_text("0,1\n5,6\n7,9\n")
    np.testing.assert_array_equal(clients_from(tmp_path / "a.csv").clients[0].x, [[5, 6], [7, 9]])


def test_a_header_alone_is_an_empty_client(tmp_path):
    (tmp_path / "a.csv").write_text("age,chol\n1,2\n3,4\n")
    (tmp_path / "b.csv").write_text("age,chol\n")
    with pytest.raises(BadData, match="client 'b' is empty"):
        clients_from(tmp_path)
    with without_pyarrow(), pytest.raises(BadData, match="client 'b' is empty"):
        clients_from(tmp_path)


# ---- folders, globs and single files ----


@pytest.fixture
def folder(tmp_path):
    """Two clients as csv.gz and parquet, columns in different orders, and a file that is no table."""
    with gzip.open(tmp_path / "cleveland.csv.gz", "wt") as file:
        file.write("age,chol,y\n63,233,yes\n67,,no\n")
    columns = {"chol": pa.array([250.0, 204.0]), "age": pa.array([37, 41], pa.int32()), "y": pa.array(["no", "yes"])}
    parquet.write_table(pa.table(columns), tmp_path / "zurich.parquet")
    (tmp_path / "README.txt").write_text("about")
    return tmp_path


@pytest.mark.parametrize("how", [lambda f: f, str, lambda f: f"{f}/*", lambda f: sorted(f.glob("*.*[zt]"))[-2:]])
def test_one_file_a_client(folder, how):
    given = how(folder)
    found = clients_from(given, label="y")
    assert found.columns == ["age", "chol"]
    assert [c.name for c in found.clients] == (
        ["client-0", "client-1"] if isinstance(given, list) else ["cleveland", "zurich"]
    )
    np.testing.assert_array_equal(found.clients[0].x, [[63, 233], [67, np.nan]])
    np.testing.assert_array_equal(found.clients[1].x, [[37, 250], [41, 204]])
    assert found.clients[1].y.tolist() == ["no", "yes"]


def test_a_dict_of_files(folder):
    found = clients_from({"a": folder / "cleveland.csv.gz", "b": str(folder / "zurich.parquet")}, label="y")
    assert [c.name for c in found.clients] == ["a", "b"]


def test_one_file_split_by_a_column(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("site,age,chol\nb,1,2\na,3,4\nb,5,\n")
    for given in (path, str(path), f"{tmp_path}/*.csv"):
        found = clients_from(given, by="site")
        assert [c.name for c in found.clients] == ["a", "b"]
        np.testing.assert_array_equal(found.clients[1].x, [[1, 2], [5, np.nan]])
    assert clients_from(path, label="site").clients[0].name == "all"


def test_npz_files_bring_their_labels_and_names(tmp_path):
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 0])
    np.savez(tmp_path / "b.npz", X=x + 1, y=[1, 1, 0])
    found = clients_from(tmp_path)
    assert found.columns == ["x0", "x1"]
    np.testing.assert_array_equal(found.clients[1].x, x + 1)
    assert found.clients[1].x.dtype == np.float32
    np.testing.assert_array_equal(found.clients[1].y, [1, 1, 0])
    np.savez(tmp_path / "c.npz", x=x, columns=["age", "chol"], site=["p", "q", "p"])
    found = clients_from(tmp_path / "c.npz", by="site")
    assert found.columns == ["age", "chol"]
    assert [len(c.x) for c in found.clients] == [2, 1]


def test_npz_files_that_make_no_sense(tmp_path):
    np.savez(tmp_path / "a.npz", z=np.ones(3))
    np.savez(tmp_path / "b.npz", x=np.ones((3, 2)), columns=["one"])
    np.savez(tmp_path / "c.npz", x=np.ones((3, 2)), y=np.ones(2))
    np.savez(tmp_path / "d.npz", x=np.array([[object()]], dtype=object))
    with pytest.raises(BadData, match=r"a.npz should hold a 2-d array called x"):
        clients_from(tmp_path / "a.npz")
    with pytest.raises(BadData, match="1 names for the 2 columns"):
        clients_from(tmp_path / "b.npz")
    with pytest.raises(BadData, match=r"c.npz holds columns of 2 to 3 rows"):
        clients_from(tmp_path / "c.npz")
    with pytest.raises(BadData, match=r"d.npz cannot be read.*pickle"):
        clients_from(tmp_path / "d.npz")


def test_files_that_are_not_there_or_not_known(folder):
    with pytest.raises(DataNotFound, match=r"nothing in .*\.xls ends with .csv"):
        clients_from(str(folder / "*.xls"))
    with pytest.raises(DataNotFound, match="is not a file"):
        clients_from(folder / "clevelan.csv")
    with pytest.raises(BadData, match=r"README.txt is none of .csv"):
        clients_from(folder / "README.txt")
    (folder / "zurich.csv").write_text("age,chol,y\n1,2,no\n")
    with pytest.raises(BadData, match=r"two files .* 'zurich'"):
        clients_from(folder)
    (folder / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadData, match=r"broken.parquet cannot be read"):
        clients_from(folder / "broken.parquet")
    (folder / "broken.csv.gz").write_bytes(b"age,chol")
    with pytest.raises(BadData, match=r"broken.csv.gz cannot be read"):
        clients_from(folder / "broken.csv.gz")
    (folder / "latin.csv").write_bytes("age,größe\n1,2\n".encode("latin-1"))
    with pytest.raises(BadData, match=r"latin.csv is not text in UTF-8: save it as UTF-8"):
        clients_from(folder / "latin.csv")


def test_parquet_says_what_it_needs(folder):
    with without_pyarrow(), pytest.raises(BadData, match="needs pyarrow"):
        clients_from(folder / "zurich.parquet")


def test_parquet_of_every_numeric_kind(tmp_path):
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int16()),
            "b": pa.array([True, False, None]),
            "d": pa.array([1.5, None, 2], pa.float64()).cast(pa.decimal128(5, 1)),
            "site": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "all.parquet")
    found = clients_from(tmp_path / "all.parquet", by="site")
    np.testing.assert_array_equal(found.clients[0].x, [[1, 1, 1.5], [3, np.nan, 2]])
    np.testing.assert_array_equal(found.clients[1].x, [[np.nan, 0, np.nan]])
