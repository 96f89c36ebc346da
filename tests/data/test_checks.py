"""Wrong data is one sentence that names the client and the column, and says what to do."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch

from unpooled.data.tables import clients_from
from unpooled.errors import BadData, BadParameter, DataWarning, UnpooledError

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
FRAME = pd.DataFrame(A, columns=["age", "bmi", "chol"])


def with_cell(x, row, column, value):
    x = x.copy()
    x[row, column] = value
    return x


def refused(message, *args, error=BadData, **how):
    """The call is refused in one line that holds every given part, in their order."""
    with pytest.raises(error) as caught:
        clients_from(*args, **how)
    sentence = str(caught.value)
    assert isinstance(caught.value, UnpooledError)
    assert "\n" not in sentence
    at = 0
    for part in message:
        assert part in sentence[at:], sentence
        at = sentence.index(part, at) + len(part)


@pytest.mark.parametrize(
    ("message", "data"),
    [
        (["'b'", "2 columns", "'a'", "3 columns"], {"a": A, "b": B[:, :2]}),
        (["'b'", "float32", "'a'", "float64"], {"a": A, "b": B.astype(np.float32)}),
        (["'b'", "float64", "'a'", "float64"], {"a": A, "b": torch.tensor(B)}),
        (["'b'", "empty"], {"a": A, "b": B[:0]}),
        (["'b'", "infinite", "column 2"], {"a": A, "b": with_cell(B, 3, 2, -np.inf)}),
        (["'b'", "infinite", "column 1"], {"a": torch.tensor(A), "b": torch.tensor(with_cell(B, 0, 1, np.inf))}),
        (["'b'", "2-d", "(5,)"], {"a": A, "b": B[:, 0]}),
        (["'b'", "2-d", "(5, 3, 1)", "flatten"], {"a": A, "b": B[:, :, None]}),
        (["'b'", "(5, 0)"], {"a": A, "b": B[:, :0]}),
        (["'b'", "not numbers", "'x'"], {"a": A, "b": [["x", 1, 2]]}),
        (["'b'", "complex"], {"a": A, "b": B + 1j}),
        (["'b'", "complex"], {"a": A, "b": torch.tensor(B + 1j)}),
        (["'b'", "sparse", ".toarray()"], {"a": A, "b": scipy.sparse.csr_matrix(B)}),
        (["'client-0'", "sparse", ".toarray()"], [scipy.sparse.csr_array(B)]),
        (["'b'", "sparse", ".to_dense()"], {"a": A, "b": torch.tensor(B).to_sparse()}),
        (["'b'", "tuple of 4", "(X, y)"], {"b": (A, A, A, A)}),
        (["two clients", "'1'"], {1: A, "1": B}),
        (["'b'", "no labels", "'a'"], {"a": (A, np.ones(4)), "b": B}),
        (["labels", "'b'", "'a'", "different kinds"], {"a": (A, np.ones(4)), "b": (B, ["x"] * 5)}),
        (["labels", "'b'", "'a'", "different kinds"], {"a": (A, np.ones(4)), "b": (B, np.ones((5, 2)))}),
        (["'b'", "5 rows", "4 labels"], {"a": (A, np.ones(4)), "b": (B, np.ones(4))}),
        (["'b'", "5 rows", "4 weights"], {"a": (A, np.ones(4), np.ones(4)), "b": (B, np.ones(5), np.ones(4))}),
        (["'b'", "no label in any row"], {"a": (A, np.ones(4)), "b": (B, [np.nan] * 5)}),
        (["'b'", "infinite label", "row 1"], {"a": (A, np.ones(4)), "b": (B, [1, np.inf, 1, 1, 1])}),
        (["'b'", "no label in any row"], {"a": (A, ["x"] * 4), "b": (B, np.array([None] * 5, dtype=object))}),
        (["'b'", "sample_weight"], {"a": (A, np.ones(4), np.ones(4)), "b": (B, np.ones(5), -np.ones(5))}),
        (["sample_weight", "zero in every row"], {"a": (A, np.ones(4), np.zeros(4))}),
        (["no clients"], {}),
    ],
)
def test_clients_that_no_model_can_be_fitted_to(message, data):
    refused(message, data)


@pytest.mark.parametrize("library", [lambda f: f, pl.from_pandas], ids=["pandas", "polars"])
def test_frames_that_disagree_or_hold_text(library):
    def other(**columns):
        return library(FRAME.assign(**columns))

    refused(
        ["'b'", "no column 'chol'", "'a'", "'cholesterol' instead"],
        {"a": library(FRAME), "b": library(FRAME.rename(columns={"chol": "cholesterol"}))},
    )
    refused(["'b'", "has a column 'sex'", "'a'"], {"a": library(FRAME), "b": other(sex=1.0)})
    refused(["'sex'", "binary at client 'a'", "'male' at client 'b'"], {"a": other(sex=1.0), "b": other(sex="male")})
    refused(["'code'", "the data", "'7'"], other(code="7"))  # text, though of digits
    refused(["'b'", "no column names", "'a'"], {"a": library(FRAME), "b": A})
    refused(["'b'", "infinite", "'bmi'"], {"a": library(FRAME), "b": other(bmi=np.inf)})
    refused(["label='agee'", "'a'", "did you mean 'age'"], {"a": library(FRAME)}, label="agee")
    refused(["by='Chol'", "did you mean 'chol'"], library(FRAME), by="Chol")
    refused(["no feature columns"], library(FRAME[["age"]]), label="age")


def test_rows_without_a_label_are_left_out_and_counted():
    y = np.array(["x", None, "y", None, "x"], dtype=object)
    with pytest.warns(DataWarning, match=r"2 rows have no label and are left out \(2 of client 'b'\)"):
        found = clients_from({"a": (A, ["x"] * 4), "b": (B, y, np.arange(5.0))} | {"a": (A, ["x"] * 4, np.ones(4))})
    np.testing.assert_array_equal(found.clients[1].x, B[[0, 2, 4]])
    np.testing.assert_array_equal(found.clients[1].w, [0, 2, 4])
    with pytest.warns(DataWarning, match="1 rows have no label"):
        split = clients_from(A, [0.0, np.nan, 1.0, 1.0], by=["p", "p", "q", "q"])
    assert [len(c.w) for c in split.clients] == [1, 2]


def test_a_lazy_frame_and_doubled_columns():
    refused(["the data", "lazy", ".collect()"], pl.from_pandas(FRAME).lazy())
    refused(["two columns", "'x'"], pd.DataFrame(A, columns=["x", "y", "x"]))


def test_labels_and_weights_that_do_not_fit_the_clients():
    refused(["y", "nothing for client 'b'", "did you mean 'bb'"], {"a": A, "b": B}, {"a": np.ones(4), "bb": np.ones(5)})
    refused(["y", "2 clients"], {"a": A, "b": B}, np.ones(9))
    refused(["sample_weight", "2 clients"], [A, B], sample_weight=[np.ones(4)])
    refused(["'a'", "pair"], {"a": (A, np.ones(4))}, {"a": np.ones(4)})
    refused(["label='y'", "'a'", "without names"], {"a": A}, label="y")
    refused(["by='site'", "without names"], A, by="site")
    refused(["y=", "label='age'"], FRAME, "bmi", label="age", error=BadParameter)
    refused(["by=", "already"], {"a": A}, by=[0, 0, 1, 1], error=BadParameter)


def test_labels_of_pooled_rows():
    refused(["by=", "3 labels", "4 rows"], A, by=[0, 1, 1])
    refused(["by=", "row 2"], A, by=[0.0, 1.0, np.nan, 1.0])
    refused(["by=", "row 1"], A, by=np.array(["x", None, "x", "y"], dtype=object))
    refused(["4 rows", "3 labels"], A, [1, 2, 3], by=[0, 0, 1, 1])
    refused(["client 'q'", "infinite", "'age'"], FRAME.assign(age=[1, 2, 3, np.inf]), by=["p", "p", "q", "q"])


def test_columns_without_information():
    refused(["'bmi'", "missing in every row"], {"a": FRAME.assign(bmi=np.nan), "b": FRAME.assign(bmi=np.nan)})
    with warnings.catch_warnings():  # missing at one client, or constant within each, is what federations are for
        warnings.simplefilter("error")
        clients_from({"a": FRAME.assign(bmi=np.nan), "b": FRAME})
        clients_from({"a": FRAME.assign(bmi=1.0), "b": FRAME.assign(bmi=2.0)})
    for constant in (FRAME.assign(bmi=7.0), FRAME.assign(bmi=[7.0, np.nan, 7.0, np.nan])):
        with pytest.warns(DataWarning, match="column 'bmi' has the same value in every row"):
            clients_from({"a": constant, "b": constant})
    with pytest.warns(
        DataWarning,
        match="columns 0, 1, 2, 3, 4 and 3 more have the same value in every row of every client: leave them out",
    ):
        clients_from(torch.ones(3, 8))


@pytest.mark.parametrize(
    ("message", "error", "data"),
    [
        (r"Found array with 0 sample\(s\)", ValueError, A[:0]),
        (r"0 feature\(s\) \(shape=\(4, 0\)\) while a minimum of 1 is required", ValueError, A[:, :0]),
        ("Expected 2D array", ValueError, A[0]),
        ("Complex data not supported", ValueError, A + 1j),
        ("contains infinity", ValueError, with_cell(A, 0, 0, np.inf)),
        ("Sparse data was passed", TypeError, scipy.sparse.csr_matrix(A)),
        ("could not convert string to float", ValueError, [["a", "b"]]),
    ],
)
def test_a_plain_array_is_refused_in_scikit_learns_words(message, error, data):
    with pytest.raises(error, match=message):
        clients_from(data)
