"""FedGMM's experiments measure nothing twice, and judge novelty as scikit-learn does."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "fedgmm"
LOCAL = (
    "_cells",
    "_expected",
    "_images",
    "_methods",
    "_mnist",
    "_novel",
    "_picture",
    "figure2",
    "figure4",
    "table2",
    "table4",
)


@pytest.fixture(name="load")
def load_(monkeypatch):
    """Modules of the folder, which leave no trace: other experiments have files of the same names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in LOCAL:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module
    for name in LOCAL:
        sys.modules.pop(name, None)


def test_a_cell_is_measured_once(load, tmp_path):
    cells, calls = load("_cells"), []

    def measure(book):
        calls.append(1)
        return {"accuracy": 0.5}

    key = {"method": "FedEM", "seed": 0}
    for _ in range(2):
        assert cells.Book(tmp_path, print).get(key, measure) == {"accuracy": 0.5}
    assert len(calls) == 1
    beside = cells.Book(tmp_path / "other", print, beside=[tmp_path])
    found = beside.all([(key, measure), (key | {"seed": 1}, measure), ({"method": "FedEM", "tune": 1}, measure)])
    assert len(calls) == 3
    assert cells.grouped(found, "method") == {("FedEM",): [{"accuracy": 0.5}] * 2}


def test_what_is_there_so_far_is_told_with_its_number_of_seeds(load, tmp_path):
    cells = load("_cells")
    book = cells.Book(tmp_path, print)
    for seed in (0, 1):
        book.get({"method": "FedEM", "seed": seed}, lambda book, seed=seed: {"accuracy": 0.5 + seed / 4})
    book.get({"method": "FedEM", "tune": 1}, lambda book: {"accuracy": 0.1})
    assert cells.so_far(book).splitlines()[-1] == "| FedEM | 2 | 0.625 |"


def test_books_of_other_names_are_kept_apart(load, tmp_path):
    cells, key = load("_cells"), {"method": "FedEM", "seed": 0}
    for name, accuracy in (("measured", 0.5), ("complete", 0.6)):
        cells.Book(tmp_path, print, name=name).get(key, lambda book, accuracy=accuracy: {"accuracy": accuracy})
    assert [cells.Book(tmp_path, print, name=name).so_far()[0][1] for name in ("measured", "complete")] == [
        {"accuracy": 0.5},
        {"accuracy": 0.6},
    ]


def test_the_best_rate_is_the_one_with_the_best_validation_accuracy(load, tmp_path):
    cells, methods = load("_cells"), load("_methods")
    grid = [({"tune": e}, lambda book, e=e: {"accuracy": -abs(e - 1.5)}) for e in methods.EXPONENTS]
    assert methods.best_rate(cells.Book(tmp_path, print), grid) == 10**-1.5


def test_every_cell_of_table_2_has_a_key_of_its_own(load):
    keys = [repr(sorted(key.items())) for key, _ in load("table2").cells(small=False, seeds=5)]
    assert len(keys) == len(set(keys)) == 2 * (9 * 5 + 7 * 6)  # eight methods and the Bayes rule by seed, seven by rate


def test_max_f1_is_that_of_the_best_threshold(load):
    table4, rng = load("table4"), np.random.default_rng(0)
    known, novel = rng.normal(1, 1, 60), rng.normal(0, 1, 60)
    by_hand = max(2 * (known >= t).sum() / ((known >= t).sum() + (novel >= t).sum() + 60) for t in np.r_[known, novel])
    assert table4.judge(known, novel)[2] == pytest.approx(by_hand)


def test_altered_labels_leave_no_class_where_it_was(load):
    y = np.array([0, 2, 3, 4, 5, 6, 7, 8, 9] * 2)
    wrong = load("figure2").altered(y, 3)
    assert (wrong != y).all()
    assert sorted(wrong) == sorted(y)


def test_novel_images_keep_their_paper_and_lose_ink_where_they_shrink(load):
    plain = np.zeros((1, 28, 28), dtype=np.uint8)
    plain[:, 8:22, 10:18] = 200
    found = load("_novel").stranger(np.concatenate([plain, 255 - plain]))
    for x in found.values():
        assert x.dtype == np.uint8
        np.testing.assert_allclose(x[0].astype(int), 255 - x[1].astype(int), atol=1)  # ink on white is ink on black
    assert found["six tenths"][0].sum() == pytest.approx(0.36 * plain.sum(), rel=0.1)
    assert found["flat"][0].sum() == pytest.approx(0.55 * plain.sum(), rel=0.1)
    assert (found["thin"][0] > 0).sum() == 12 * 6


def test_a_table_is_drawn_with_the_papers_figures_where_there_are_some(load, tmp_path):
    pytest.importorskip("matplotlib")
    row = load("_methods").row
    table = [
        row(method, [0.5, 0.7], paper, setting=setting)
        for setting in ("one", "two")
        for method, paper in (("Bayes rule", None), ("FedEM", 55.0), ("FedGMM", None))
    ]
    assert load("_picture").points(table, tmp_path / "table.png", "setting") is table
    assert (tmp_path / "table.png").stat().st_size > 1000
