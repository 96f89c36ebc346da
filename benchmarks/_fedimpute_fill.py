"""Fill a table by fedimpute, in an environment that has it: reads rows and sites from one .npz, writes the filled table to another.

    PYTHON benchmarks/_fedimpute_fill.py GIVEN.npz FILLED.npz mice em missforest

GIVEN has `x` (n, e), numbers with NaN for gaps, and `site` (n,). FILLED has one table per method that ended without an error. Columns are
scaled to 0 to 1, as fedimpute's examples do; nothing of the hidden values is given, so that its early stopping uses its own loss.
"""

from __future__ import annotations

import sys
import tempfile
import traceback

import loguru
import numpy as np
import pandas as pd
from fedimpute.execution_environment import FedImputeEnv

STRATEGY = {"mice": "fedmice", "em": "fedem", "missforest": "fedtree", "gain": "fedavg", "miwae": "fedavg"}


def filled(x: np.ndarray, site: np.ndarray, method: str) -> np.ndarray:
    """The table with its gaps filled by one method over the sites."""
    low, high = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
    scale = np.where(high > low, high - low, 1.0)
    columns = [f"x{j}" for j in range(x.shape[1])]
    rows = [np.flatnonzero(site == s) for s in np.unique(site)]
    gaps = [pd.DataFrame((x[r] - low) / scale, columns=columns) for r in rows]
    whole = [table.assign(label=np.arange(len(table)) % 2) for table in gaps]
    some = pd.concat(whole).head(20)
    config = {"target": "label", "task_type": "classification", "num_cols": x.shape[1], "natural_partition": True}
    with tempfile.TemporaryDirectory() as folder:
        env = FedImputeEnv()
        loguru.logger.remove()
        env.configuration(method, STRATEGY[method], seed=0, save_dir_path=folder)
        env.setup_from_data(whole, [some] * len(whole), gaps, some, config)
        env.run_fed_imputation()
    out = np.array(x)
    for r, client in zip(rows, env.clients):
        out[r] = client.X_train_imp * scale + low
    return np.where(np.isnan(x), out, x)


def main() -> None:
    given = np.load(sys.argv[1])
    tables = {}
    for method in sys.argv[3:]:
        try:
            tables[method] = filled(given["x"], given["site"], method)
        except Exception:
            traceback.print_exc()
    np.savez(sys.argv[2], **tables)


if __name__ == "__main__":
    main()
