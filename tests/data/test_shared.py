"""Shared data is found where UNPOOLED_DATA says; the loaders give what the catalog promises, where it is present."""

import gzip

import numpy as np
import pytest

from unpooled.datasets import shared
from unpooled.errors import BadParameter, DataNotFound

needs_data = pytest.mark.skipif(shared.folder() is None, reason="no shared data: set UNPOOLED_DATA to its folder")


def test_the_folder_is_what_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPOOLED_DATA", str(tmp_path))
    assert shared.folder() == tmp_path
    monkeypatch.setenv("UNPOOLED_DATA", str(tmp_path / "nowhere"))
    assert shared.folder() is None
    with pytest.raises(DataNotFound, match=r"'ccpp_raw' .* set UNPOOLED_DATA"):
        shared.ccpp()


def test_tables_and_arrays_are_found_by_name_anywhere_below(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPOOLED_DATA", str(tmp_path))
    (tmp_path / "uci").mkdir()
    with gzip.open(tmp_path / "uci" / "ccpp_raw.csv.gz", "wt") as file:
        file.write("AT,V,EP\n1,2,3\n4,,6\n")
    np.savez(tmp_path / "numbers.npz", x=np.eye(2))
    data = shared.ccpp()
    assert data.columns == ["AT", "V"]
    np.testing.assert_array_equal(data.x, [[1, 2], [4, np.nan]])
    np.testing.assert_array_equal(data.y, [3, 6])
    np.testing.assert_array_equal(shared.arrays("numbers.npz")["x"], np.eye(2))
    with pytest.raises(DataNotFound, match="did you mean 'ccpp_raw'"):
        shared.table("cpp_raw")


@needs_data
@pytest.mark.parametrize(
    ("load", "shape", "groups"),
    [
        (shared.skillcraft, (3338, 18), None),
        (shared.sml2010, (4137, 21), 2),
        (shared.parkinsons, (5875, 19), 42),
        (shared.seoul_bike, (8760, 15), 4),
        (shared.ccpp, (9568, 4), None),
        (shared.heart_disease, (920, 13), 4),
        (shared.beijing, (43824, 13), 5),
    ],
)
def test_tables(load, shape, groups):
    data = load()
    assert data.x.shape == shape
    assert data.x.dtype == np.float64
    assert len(data.columns) == shape[1]
    assert data.y.shape == shape[:1]
    assert data.y.dtype.kind in "fi"
    assert (data.groups is None) if groups is None else (len(np.unique(data.groups)) == groups)


@needs_data
def test_heart_disease_knows_what_a_cholesterol_of_zero_means():
    data = shared.heart_disease()
    chol = data.x[:, data.columns.index("chol")]
    assert np.isnan(chol[data.groups == "switzerland"]).all()
    assert not (chol == 0).any()
    assert set(data.y) == {0, 1}


@needs_data
def test_targets_can_be_chosen():
    assert "motor_UPDRS" not in shared.parkinsons().columns
    assert not np.array_equal(shared.parkinsons("motor_UPDRS").y, shared.parkinsons().y)
    with pytest.raises(BadParameter, match="did you mean 'total_UPDRS'"):
        shared.parkinsons("total_UPDR")


@needs_data
def test_clustering_sets():
    letters = shared.clustering("letter")
    assert letters.x.shape == (20000, 16)
    assert len(letters.classes) == 26
    assert len(np.unique(shared.clustering("anuran_species").groups)) == 60
    assert len(shared.clustering("abalone", y="sex").classes) == 3
    with pytest.raises(BadParameter, match="did you mean 'abalone'"):
        shared.clustering("abalon")
    with pytest.raises(BadParameter, match="'sex'"):
        shared.clustering("abalone", y="seks")


@needs_data
def test_images_counts_stays_and_engines():
    assert shared.mnist().x_train.shape == shared.fashion_mnist().x_train.shape == (60000, 28, 28)
    assert shared.emnist().x.shape == (30000, 28, 28)
    birds = shared.oystercatcher()
    assert birds.counts.shape == (138, 240)
    assert np.isnan(birds.counts).mean() == pytest.approx(0.60, abs=0.005)
    assert birds.sites[:2].tolist() == ["1", "2"]
    assert np.isnan(shared.skylark().counts).sum() == 238
    stays = shared.physionet()
    assert stays.x.shape == (8000, 48, 37)
    assert set(stays.groups) == {1, 2, 3, 4}
    engines = shared.cmapss()
    assert engines.train.shape == (45351, 26)
    assert len(np.unique(engines.groups)) == len(np.unique(engines.test_groups)) == len(engines.rul) == 200
