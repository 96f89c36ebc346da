"""Pictures of regressions show the numbers they were given."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import unpooled as up
from unpooled.metrics.regression import calibration, normal_interval

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("Agg")
FILE = Path(__file__).parents[2] / "experiments" / "fedbnr" / "_pictures.py"
pictures = SimpleNamespace(**runpy.run_path(str(FILE)))


@pytest.fixture(name="ax")
def ax_():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def test_the_calibration_curve_is_what_was_covered(ax):
    y = np.random.default_rng(0).normal(size=500)
    seen = calibration(y, normal_interval(np.zeros(500), np.ones(500)))
    pictures.calibration_curve(ax, {"honest": seen})
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), seen.covered)
    assert f"ECE {seen.ece:.3f}" in ax.get_legend_handles_labels()[1][0]


def test_the_band_is_the_interval(ax):
    x = np.linspace(0, 1, 60)
    model = up.BayesianRegression().fit(x[:, None], 2 * x + 0.1 * np.sin(50 * x))
    pictures.band(ax, model, x, 0.9, rows=(x, 2 * x), truth=lambda v: 2 * v)
    lower, upper = model.interval(x[:, None], 0.9)
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == pytest.approx(lower.min())
    assert corners[:, 1].max() == pytest.approx(upper.max())
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.predict(x[:, None]))


def test_errors_are_drawn_by_sums(ax):
    pictures.error_by_sums(ax, {"exact": ([2, 4, 6], [3.0, 2.0, 1.0])})
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[2, 3], [4, 2], [6, 1]])
