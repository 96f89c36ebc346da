"""FedBNR's last layer over 100 clients against scikit-learn's exact Gaussian process on the pooled rows, 9000 of them.

Both at a kernel learned before the clock starts (ours by 58 exact rounds over all rows, the peer's by its own optimiser on
a part of the rows, as on all of them it would take hours); timed is the fit at that kernel. Power plant data (CCPP) where
they are found, else a function of four variables. One thread, CPU seconds, by turns.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from _alternate import alternate, compare
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

import unpooled as up
from unpooled.data import shared
from unpooled.maths import bayes_linear
from unpooled.metrics.regression import rmse
from unpooled.models.last_layer import statistics

ROWS, CLIENTS = 9_000, 100
SETTINGS = {"features": "residual", "frequencies": "free", "hidden": (64, 64), "optimizer": "adam", "learning_rate": 0.05,
            "max_iter": 58, "patience": 58, "recalibrate": False}  # fmt: skip


def rows() -> tuple[str, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if shared.folder() is not None:
        data = shared.ccpp()
        order = rng.permutation(len(data.y))
        return "CCPP", data.x[order], data.y[order].astype(float)
    x = rng.uniform(-2, 2, size=(ROWS + 568, 4))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2 + np.abs(x[:, 3]) + 0.1 * rng.normal(size=len(x))
    return "synthetic", x, y


def exact_gp(x: np.ndarray, y: np.ndarray, learn_on: int) -> GaussianProcessRegressor:
    """A process whose kernel was learned on some of the rows, ready to be fitted to all."""
    kernel = ConstantKernel() * RBF(np.full(x.shape[1], 2.0)) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned = GaussianProcessRegressor(kernel, random_state=0).fit(x[:learn_on], y[:learn_on])
    return GaussianProcessRegressor(learned.kernel_, optimizer=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--learn-on", type=int, default=1500)
    args = parser.parse_args()
    name, x, y = rows()
    x_new, y_new, x, y = x[ROWS:], y[ROWS:], x[:ROWS], y[:ROWS]
    fed = up.federate(x, y, by=np.arange(ROWS) % CLIENTS, threads=1)
    with threadpool_limits(1):
        model = up.FedBNR("exact", random_state=0, **SETTINGS).fit(fed)
        mean, std, low, scale = x.mean(0), x.std(0), y.mean(), y.std()
        gp = exact_gp((x - mean) / std, (y - low) / scale, args.learn_on)
        ask = statistics.using(**model._asks())
        work = {
            "ours": lambda: bayes_linear.posterior(fed.sum(ask, model.design_)),
            "exact": lambda: gp.fit((x - mean) / std, (y - low) / scale),
        }
        seconds = alternate(work, args.turns, warm=0)
    errors = rmse(y_new, model.predict(x_new)), rmse(y_new, low + scale * gp.predict((x_new - mean) / std))
    print(f"{name}, {ROWS} rows, {len(y_new)} to test on, {CLIENTS} clients, {model.stats_.zy.shape[0]} features")
    for who, label in (("ours", "FedBNR's last layer"), ("exact", "scikit-learn's exact GP")):
        print(
            f"{label}: {np.median(seconds[who].cpu):.2f} CPU s ({seconds[who].cpu.min():.2f} to {seconds[who].cpu.max():.2f})"
        )
    print(f"times faster, CPU: {compare(seconds, 'exact', 'ours')['cpu']}")
    print(f"RMSE: ours {errors[0]:.3f}, exact GP {errors[1]:.3f}: ours is {100 * (errors[0] / errors[1] - 1):+.1f} %")


if __name__ == "__main__":
    main()
