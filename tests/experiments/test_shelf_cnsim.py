"""DataSHIELD's published figures for its test studies, and statsmodels' for the same rows."""

import sys
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm

from unpooled.datasets import shared

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "shelf"))
import cnsim

pytestmark = pytest.mark.skipif(shared.folder() is None, reason="needs the shared data: set UNPOOLED_DATA")


def test_the_published_deviance(tmp_path):
    rows = cnsim.run(False, 1, tmp_path, lambda text: None)
    published = [row for row in rows if row["paper"] is not None]
    assert len(published) == 2
    assert all(row["ours"] == row["paper"] for row in published)
    assert all(row["rounds"] <= 8 for row in rows)


@pytest.mark.parametrize(
    ("family", "law", "target", "columns"),
    [
        ("normal", sm.families.Gaussian(), "LAB_TSC", ["LAB_TRIG"]),
        ("binomial", sm.families.Binomial(), "DIS_DIAB", ["LAB_TRIG", "GENDER"]),
    ],
)
def test_statsmodels_on_pooled_rows(family, law, target, columns):
    model, _ = cnsim.fit(family, target, columns)
    x, y, _ = cnsim.data(target, columns)
    theirs = sm.GLM(y, sm.add_constant(x), family=law, missing="drop").fit(tol=1e-14, tol_criterion="params")
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], theirs.params, rtol=1e-8)
    np.testing.assert_allclose(np.r_[model.intercept_stderr_, model.stderr_], theirs.bse, rtol=1e-8)
    np.testing.assert_allclose(model.deviance_, theirs.deviance, rtol=1e-10)
