"""Every way in gives the same clients: rows, labels, weights and names."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from unpooled.data import builtin
from unpooled.data.tables import Clients, Collection, clients_from
from unpooled.errors import BadData

X = {"b": np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]]), "a": np.array([[7.0, 8.0], [9.0, 0.5]])}
Y = {"b": np.array([0, 1, 0]), "a": np.array([1, 1])}
W = {"b": np.array([1.0, 0.5, 2.0]), "a": np.array([0.0, 1.0])}
POOLED = np.concatenate([X["b"], X["a"]])
LABELS = np.concatenate([Y["b"], Y["a"]])
OWNER = np.array(["b", "b", "b", "a", "a"])
NAMES = ["age", "chol"]


def frame(library, name, order=(0, 1)):
    columns = {NAMES[j]: X[name][:, j] for j in order}
    return library({**columns, "y": Y[name], "w": W[name]})


def pooled_frame(library):
    return library({"age": POOLED[:, 0], "site": OWNER.astype(object), "chol": POOLED[:, 1], "y": LABELS})


def assert_holds(found: Clients, *, y=True, w=False):
    assert sorted(c.name for c in found.clients) == ["a", "b"]
    for c in found.clients:
        np.testing.assert_array_equal(c.x, X[c.name])
        assert c.x.dtype == np.float64
        if y:
            np.testing.assert_array_equal(c.y, Y[c.name])
        else:
            assert c.y is None
        np.testing.assert_array_equal(c.w, W[c.name] if w else np.ones(len(c.x)))


def test_a_dict_of_arrays_with_labels_and_weights_by_client():
    assert_holds(clients_from(X), y=False)
    assert_holds(clients_from(X, Y, sample_weight=W), w=True)
    assert_holds(clients_from({n: x.tolist() for n, x in X.items()}, Y))


def test_a_dict_of_pairs_and_of_triples():
    assert_holds(clients_from({n: (X[n], Y[n]) for n in X}))
    assert_holds(clients_from({n: (X[n], Y[n], W[n]) for n in X}), w=True)
    assert_holds(clients_from({n: (X[n], Y[n]) for n in X}, sample_weight=W), w=True)


def test_a_list_is_named_so_that_names_sort():
    rng = np.random.default_rng(0)
    found = clients_from([rng.normal(size=(2, 2)) for _ in range(11)], [np.arange(2)] * 11)
    assert [c.name for c in found.clients][:2] == ["client-00", "client-01"]
    assert [c.name for c in found.clients] == sorted(c.name for c in found.clients)
    assert [c.name for c in clients_from(list(X.values())).clients] == ["client-0", "client-1"]


def test_pooled_rows_with_a_label_for_each():
    for by in (OWNER, OWNER.tolist(), OWNER.astype(object), pd.Series(OWNER), pl.Series(OWNER)):
        assert_holds(clients_from(POOLED, LABELS, by=by))
    shuffled = np.random.default_rng(0).permutation(5)
    found = clients_from(POOLED[shuffled], LABELS[shuffled], by=OWNER[shuffled], sample_weight=np.arange(5)[shuffled])
    for c in found.clients:  # rows, labels and weights stay together
        rows = [np.flatnonzero(POOLED[:, 0] == v)[0] for v in c.x[:, 0]]
        np.testing.assert_array_equal(c.y, LABELS[rows])
        np.testing.assert_array_equal(c.w, rows)


def test_clients_of_pooled_rows_are_views_of_one_copy():
    found = clients_from(POOLED, by=OWNER)
    assert found.clients[0].x.base is found.clients[1].x.base
    already_sorted = POOLED[3:].repeat(2, axis=0)
    found = clients_from(already_sorted, by=[0, 0, 1, 1])
    assert all(np.shares_memory(c.x, already_sorted) for c in found.clients)


def test_numbers_make_names_without_a_decimal_point_and_in_their_order():
    for by in (np.array([10, 2, 2, 10]), np.array([10.0, 2.0, 2.0, 10.0])):
        found = clients_from(POOLED[:4], by=by)
        assert [c.name for c in found.clients] == ["2", "10"]
    ids = np.array([2**60, 2**60 + 1] * 2)  # not the same, though the same as float64
    assert [c.name for c in clients_from(POOLED[:4], by=ids).clients] == [str(2**60), str(2**60 + 1)]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
class TestFrames:
    def test_one_a_client(self, library):
        found = clients_from({n: frame(library, n) for n in X}, label="y", sample_weight="w")
        assert_holds(found, w=True)
        assert found.columns == NAMES
        assert found.label == "y"

    def test_columns_in_another_order_are_put_right(self, library):
        tables = {"b": frame(library, "b"), "a": frame(library, "a", order=(1, 0))}
        assert_holds(clients_from(tables, label="y", sample_weight="w"), w=True)

    def test_one_table_split_by_a_column(self, library):
        found = clients_from(pooled_frame(library), by="site", y="y")
        assert_holds(found)
        assert found.columns == NAMES

    def test_labels_may_come_beside_it(self, library):
        tables = {n: library({"age": X[n][:, 0], "chol": X[n][:, 1]}) for n in X}
        assert_holds(clients_from(tables, Y))
        assert_holds(clients_from({n: (tables[n], Y[n]) for n in X}))
        assert len(clients_from([(tables[n], Y[n]) for n in X]).clients) == 2


def test_missing_numbers_of_every_kind_become_nan():
    nullable = pd.DataFrame({"i": pd.array([1, None], dtype="Int64"), "b": pd.array([True, None], dtype="boolean")})
    object_column = pd.DataFrame({"i": [1, None], "b": [True, None]}, dtype=object)
    lazy_null = pl.DataFrame({"i": [1, None], "b": [True, None]})
    for table in (nullable, object_column, lazy_null):
        with pytest.warns(UserWarning, match="same value"):
            x = clients_from(table).clients[0].x
        np.testing.assert_array_equal(x, [[1.0, 1.0], [np.nan, np.nan]])


def test_frames_with_numbered_columns_have_no_column_names():
    found = clients_from(pd.DataFrame(POOLED), by=OWNER)
    assert found.columns is None
    assert_holds(found, y=False)


def test_float32_is_kept_and_whole_numbers_become_float64():
    assert clients_from(POOLED.astype(np.float32)).clients[0].x.dtype == np.float32
    assert clients_from({"a": POOLED.astype(np.float32)}).clients[0].w.dtype == np.float32
    assert clients_from(pd.DataFrame(POOLED.astype(np.float32))).clients[0].x.dtype == np.float32
    assert clients_from({"a": np.arange(6).reshape(3, 2)}).clients[0].x.dtype == np.float64


def test_a_plain_array_is_one_client():
    (client,) = clients_from(POOLED, LABELS, sample_weight=np.arange(5)).clients
    assert client.name == "client-0"
    assert client.x is POOLED
    np.testing.assert_array_equal(client.w, np.arange(5))
    (client,) = clients_from([[1, 2], [3, 5]], ["no", "yes"]).clients
    np.testing.assert_array_equal(client.x, [[1, 2], [3, 5]])
    assert client.y.tolist() == ["no", "yes"]


def test_torch_tensors_stay_torch_tensors():
    x = torch.tensor(POOLED, dtype=torch.float32)
    (one,) = clients_from(x, torch.tensor(LABELS), sample_weight=np.ones(5)).clients
    assert one.x is x
    assert one.w.dtype == torch.float32
    found = clients_from(x, torch.tensor(LABELS), by=OWNER)
    for c in found.clients:
        assert isinstance(c.x, torch.Tensor)
        np.testing.assert_array_equal(c.x.numpy(), X[c.name].astype(np.float32))
        np.testing.assert_array_equal(c.y.numpy(), Y[c.name])
    found = clients_from([torch.tensor(x) for x in X.values()])
    assert [c.x.dtype for c in found.clients] == [torch.float64] * 2
    assert clients_from(torch.arange(6).reshape(3, 2)).clients[0].x.dtype == torch.float64


def test_a_collection_brings_its_names_and_labels():
    found = clients_from(Collection(X, NAMES, Y))
    assert_holds(found)
    assert found.columns == NAMES
    assert clients_from(found) is found


def test_chosen_columns_of_a_collection_of_files_and_of_frames(tmp_path):
    hospitals = builtin.load("hospitals")
    two = clients_from(hospitals, columns=["glucose", "age"])
    assert two.columns == ["glucose", "age"]
    np.testing.assert_array_equal(two.clients[0].x, hospitals.clients["ashford"][:, [7, 0]])
    with pytest.raises(BadData, match=r"columns='agee' is not a column .* did you mean 'age'"):
        clients_from(hospitals, columns=["agee"])
    (tmp_path / "a.csv").write_text("who,age,y,bp\nann,1,0,2\nbob,3,1,4\n")
    for data in (tmp_path / "a.csv", {"a": pd.read_csv(tmp_path / "a.csv")}):
        chosen = clients_from(data, label="y", columns=["bp", "age"])
        np.testing.assert_array_equal(chosen.clients[0].x, [[2, 1], [4, 3]])
        np.testing.assert_array_equal(chosen.clients[0].y, [0, 1])
        with pytest.raises(BadData, match=r"columns='ag' is not a column of .* did you mean 'age'"):
            clients_from(data, columns=["ag"])


def test_a_number_with_a_comma_is_told_of_as_such(tmp_path):
    (tmp_path / "a.csv").write_text("age;bp\n1,5;2\n2,5;3\n")
    with pytest.raises(BadData, match=r"'1,5' \(row 1\): write numbers with a point for decimals and without commas"):
        clients_from(tmp_path / "a.csv")


def test_a_text_among_numbers_is_shown(tmp_path):
    (tmp_path / "a.csv").write_text("age,bp\n1,2\n3,high\n")
    with pytest.raises(BadData, match=r"numbers such as '2' beside texts such as 'high'"):
        clients_from(tmp_path / "a.csv")


def test_labels_may_have_several_outputs():
    found = clients_from(POOLED, np.stack([LABELS, LABELS], axis=1), by=OWNER)
    assert [c.y.shape for c in found.clients] == [(2, 2), (3, 2)]


def test_ten_thousand_clients_share_one_array():
    x = np.random.default_rng(0).normal(size=(100_000, 3))
    found = clients_from(x, by=np.arange(100_000) % 10_000)
    assert len(found.clients) == 10_000
    assert len({id(c.x.base) for c in found.clients}) == 1


def test_frames_and_torch_are_never_imported_for_others():
    # arrays by client only: scikit-learn, which checks plain arrays, imports pandas itself where it is installed
    code = (
        "import sys, numpy as np; from unpooled.data.tables import clients_from\n"
        "clients_from({'a': (np.eye(2), [0, 1]), 'b': (np.eye(2), [0, 1])}, sample_weight=[[1, 1], [2, 2]])\n"
        "print([m for m in ('pandas', 'polars', 'torch', 'pyarrow', 'matplotlib', 'flwr') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "line", "cells"), [("1,2\n3,4,5\n", 3, "3 cells, more"), ("1,2\n\n3\n", 4, "1 cells, fewer")]
)
def test_a_row_of_another_length_is_named_by_its_line(tmp_path, text, line, cells):
    (tmp_path / "a.csv").write_text(f"age,bp\n{text}")
    with pytest.raises(BadData, match=f"a.csv cannot be read: line {line} has {cells} than the 2 columns"):
        clients_from(str(tmp_path / "*.csv"))
