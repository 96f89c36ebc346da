"""FedBNR's last layer over 100 clients against exact Gaussian processes on the pooled rows, at N = 9000: seconds and errors.

Kernels are learned first and not timed by turns: ours on all rows, the exact one on as many as are asked for (a step on all 9000 costs
n^3: minutes of a GPU in all, hours without one); GPyTorch is given the same. What is timed is what a user calls once the kernel is
known (and with it the noise, for all), from rows to the means at new rows: one SUM and the posterior;
scikit-learn's `fit` and `predict`; a prediction of GPyTorch with
its own settings (conjugate gradients), and with Cholesky factors. CPU seconds by turns, one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from _alternate import alternate, compare
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

import unpooled as up
from unpooled.baselines.central_gp import CentralGP
from unpooled.datasets import shared
from unpooled.maths import bayes_linear
from unpooled.metrics.regression import rmse
from unpooled.models.regression.design import statistics

CLIENTS = 100
ROWS = {"ccpp": 9_000, "bike": 8_000, "synthetic": 9_000}  # the rest are to test on
RESIDUAL = {
    "features": "residual",
    "frequencies": "free",
    "hidden": (64, 64),
    "optimizer": "adam",
    "learning_rate": 0.05,
}
DEEP = {"features": "deep", "n_frequencies": 50, "frequencies": "shifted", "activation": "silu", "learning_rate": 0.03}
SETTINGS = {"ccpp": RESIDUAL, "bike": DEEP, "synthetic": RESIDUAL}
ROUNDS = {"max_iter": 58, "patience": 58, "recalibrate": False}
LABELS = {"ours": "FedBNR's last layer", "sklearn": "scikit-learn's exact GP", "gpytorch": "GPyTorch's exact GP",
          "gpytorch-cholesky": "GPyTorch's, by Cholesky"}  # fmt: skip


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if name != "synthetic":
        data = {"ccpp": shared.ccpp, "bike": shared.seoul_bike}[name]()
        order = rng.permutation(len(data.y))
        return data.x[order][:, np.ptp(data.x, axis=0) > 0], data.y[order].astype(float)
    x = rng.uniform(-2, 2, size=(ROWS[name] + 568, 4))
    return x, np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2 + np.abs(x[:, 3]) + 0.1 * rng.normal(size=len(x))


def learned_kernel(x: np.ndarray, y: np.ndarray, device: str) -> ConstantKernel:
    """Length scales, signal and noise that make the rows most probable."""
    found = CentralGP(device=device).fit(x, y)
    scale, signal, noise = (np.exp(p.cpu().numpy()) for p in found.model_.shape)
    variance = found.unit_**2  # it standardises the rows it is given, which are some of those standardised here
    return ConstantKernel(variance * float(signal)) * RBF(found.scaler_.scale_ * scale) + WhiteKernel(
        variance * float(noise)
    )


def gpytorch_mean(kernel: ConstantKernel, x: np.ndarray, y: np.ndarray, new: np.ndarray, fast: bool) -> np.ndarray:
    """The mean at new rows by GPyTorch's exact process with the same kernel."""
    import gpytorch
    import torch

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.set_num_threads(1)
    x, y, new = (torch.as_tensor(a) for a in (x, y, new))
    model = Exact(x, y, gpytorch.likelihoods.GaussianLikelihood()).double().eval()
    model.covar_module.outputscale = kernel.k1.k1.constant_value
    model.covar_module.base_kernel.lengthscale = torch.as_tensor(kernel.k1.k2.length_scale)
    model.likelihood.noise = kernel.k2.noise_level
    with torch.no_grad(), gpytorch.settings.fast_computations(*3 * (fast,)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # conjugate gradients that stop early say so
        return model(new).mean.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--learn-on", type=int, default=1000)
    parser.add_argument("--data", choices=list(ROWS), default="synthetic" if shared.folder() is None else "ccpp")
    parser.add_argument("--device", default="cpu", help="where the exact process learns its kernel")
    parser.add_argument("--peers", default="sklearn,gpytorch,gpytorch-cholesky")
    args = parser.parse_args()
    (x, y), n = rows(args.data), ROWS[args.data]
    x_new, y_new, x, y = x[n:], y[n:], x[:n], y[:n]
    mean, std, low, scale = x.mean(0), x.std(0), y.mean(), y.std()
    sx, sy, s_new = (x - mean) / std, (y - low) / scale, (x_new - mean) / std
    with threadpool_limits(1):
        fed = up.federate(x, y, by=np.arange(n) % CLIENTS, threads=1)
        model, ours = timed(lambda: up.FedBNR("exact", random_state=0, **SETTINGS[args.data], **ROUNDS).fit(fed))
        kernel, theirs = timed(lambda: learned_kernel(sx[: args.learn_on], sy[: args.learn_on], args.device))
        gp = GaussianProcessRegressor(kernel, optimizer=None)

        known = {name: getattr(model.posterior, name) for name in ("noise", "prior", "ratio")}

        def last_layer() -> np.ndarray:
            stats = fed.sum(statistics.using(**model._asks() | {"share": 0.0}), model.design_)
            post = bayes_linear.posterior(stats, **known)
            return bayes_linear.predict(post, model._features(x_new), model._group(x_new))[0][:, 0]

        work = {"ours": last_layer, "sklearn": lambda: gp.fit(sx, sy).predict(s_new)}
        if find_spec("gpytorch"):
            work |= {
                "gpytorch": lambda: gpytorch_mean(kernel, sx, sy, s_new, True),
                "gpytorch-cholesky": lambda: gpytorch_mean(kernel, sx, sy, s_new, False),
            }
        means: dict[str, np.ndarray] = {}
        chosen = {who: kept(f, means, who) for who, f in work.items() if who in ("ours", *args.peers.split(","))}
        seconds = alternate(chosen, args.turns, warm=0)
    errors = {who: rmse(y_new, low + scale * mean) for who, mean in means.items()}
    print(
        f"{args.data}, {n} rows, {len(y_new)} to test on, {CLIENTS} clients, {model.stats_.zy.shape[0]} features, "
        f"{len(model.stats_.group_n)} groups"
    )
    for who, (cpu, _) in seconds.items():
        more = 100 * (errors["ours"] / errors[who] - 1)
        print(
            f"{LABELS[who]:<25}{np.median(cpu):8.2f} CPU s ({cpu.min():.2f} to {cpu.max():.2f}), RMSE {errors[who]:.3f}"
            + ("" if who == "ours" else f": ours is {compare(seconds, who, 'ours')['cpu']} times faster, {more:+.1f} %")
        )
    print(
        f"learning the kernel: ours {ours:.0f} CPU s on all rows, the exact one's {theirs:.0f} on {min(args.learn_on, n)} of them "
        f"({args.device})"
    )


def kept(work: Callable[[], np.ndarray], means: dict[str, np.ndarray], who: str) -> Callable[[], None]:
    return lambda: means.update({who: work()})


def timed(work: Callable) -> tuple:
    start = time.process_time()
    return work(), time.process_time() - start


if __name__ == "__main__":
    main()
