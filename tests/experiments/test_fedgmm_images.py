"""FedGMM's images: half of them turned and relabelled, or shrunk to be novel."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np

FILE = Path(__file__).parents[2] / "experiments" / "fedgmm" / "_images.py"
images = SimpleNamespace(**runpy.run_path(str(FILE)))


def test_images_are_turned_relabelled_and_shrunk():
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(40, 8, 8)).astype(np.uint8), rng.integers(10, size=40)
    y[:10] = np.arange(10)
    found = images.shift(x, y, random_state=1)
    assert found.moved.sum() == 20
    np.testing.assert_array_equal(found.x[~found.moved], x[~found.moved])
    np.testing.assert_array_equal(found.y[found.moved], found.permutation[y[found.moved]])
    i = int(np.flatnonzero(found.moved)[0])
    np.testing.assert_array_equal(found.x[i], 255 - np.fliplr(np.rot90(x[i])))
    halves = images.shift_by_halves(x, y, random_state=1)
    assert halves.moved.sum() == 20
    small = images.novel(x)
    assert small[:, :2].max() == small[:, -2:].max() == small[:, :, :2].max() == 0
    assert small[:, 2:6, 2:6].any()
    assert images.as_rows(x).shape == (40, 64)
    assert images.as_rows(x).max() <= 1
