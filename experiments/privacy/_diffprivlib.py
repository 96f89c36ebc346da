"""IBM's diffprivlib as a peer. It does not import beside scikit-learn 1.9, so it runs in a Python of its own.

Make one and name it before the experiment:

    python -m venv peer && peer/bin/pip install diffprivlib "scikit-learn<1.7"
    export UNPOOLED_DIFFPRIVLIB=peer/bin/python
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def errors(train: tuple, test: tuple, bounds: np.ndarray, epsilons: Sequence[float], seed: int) -> list[float]:
    """Held-out RMSE of its linear regression for each epsilon; NaN where no such Python is named."""
    python = os.environ.get("UNPOOLED_DIFFPRIVLIB")
    if not python:
        return [float("nan")] * len(epsilons)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, x=train[0], y=train[1], x_test=test[0], y_test=test[1], bounds=bounds, epsilons=epsilons)
        done = subprocess.run([python, __file__, str(path), str(seed)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main(path: str, seed: int) -> None:
    """What the other Python runs."""
    from diffprivlib.models import LinearRegression

    held = np.load(path)
    limits = held["bounds"]
    found = []
    for epsilon in held["epsilons"]:
        bounds_x, bounds_y = (limits[:-1, 0], limits[:-1, 1]), tuple(limits[-1])
        model = LinearRegression(epsilon=float(epsilon), bounds_X=bounds_x, bounds_y=bounds_y, random_state=seed)
        model.fit(held["x"], held["y"])
        found.append(float(np.sqrt(np.mean((model.predict(held["x_test"]) - held["y_test"]) ** 2))))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
