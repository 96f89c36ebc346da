"""DataSHIELD's test studies (CNSIM): a GLM over three studies has the published deviance, and statsmodels' on the pooled rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import unpooled as up
from unpooled.data.federate import federate
from unpooled.datasets import shared

SEEDS = 1  # nothing is drawn
DIFFERS = (
    "DataSHIELD prints the deviance to two decimals; rows with a missing value are left out by both, and a study is a client. "
    "The second row has no published figure: it is checked against statsmodels on the pooled rows, in the tests."
)
PUBLISHED = {"deviance": "8936.32", "residual df": "7798"}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    models = {
        "LAB_TSC on LAB_TRIG": ("normal", "LAB_TSC", ["LAB_TRIG"], PUBLISHED),
        "DIS_DIAB on LAB_TRIG, GENDER": ("binomial", "DIS_DIAB", ["LAB_TRIG", "GENDER"], {}),
    }
    rows = []
    for name, (family, target, columns, published) in models.items():
        say(name)
        model, rounds = fit(family, target, columns)
        found = {"deviance": f"{model.deviance_:.2f}", "residual df": f"{model.df_resid_:.0f}"}
        for figure, ours in found.items():
            row = {"model": name, "figure": figure, "ours": ours, "paper": published.get(figure)}
            rows.append(row | {"rounds": rounds})
    return rows


def fit(family: str, target: str, columns: list[str]) -> tuple[up.GLM, int]:
    """(the model over three studies, rounds it took)."""
    x, y, study = data(target, columns)
    fed = federate(x, y, by=study)
    fed.columns = columns
    model = up.GLM(family, missing="drop").fit(fed)
    return model, len(fed.journal.exchanges)


def data(target: str, columns: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, y, study) of the rows whose target is known."""
    table = {name.strip(): values for name, values in shared.table("cnsim_3studies").items()}
    y = table[target].astype(np.float64)
    known = ~np.isnan(y)
    x = np.column_stack([table[c].astype(np.float64) for c in columns])
    return x[known], y[known], table["study"].astype(str)[known]
