"""The report on a regression: coefficients with intervals, importance of columns, residuals, calibration. Nothing is sent."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.maths import bayes_linear
from unpooled.report import markup, statistics, svg
from unpooled.report.folder import RunFolder
from unpooled.report.kinds import measured, own_figures
from unpooled.report.markup import Section

MOST_COLUMNS = 40


def sections(model: Any, run: RunFolder) -> list[Section]:
    """The coefficients and errors of a fitted regression."""
    if hasattr(model, "cov_") and hasattr(model, "names_"):
        return [
            Section("Fit", _fit(model)),
            Section("Coefficients", _glm(model)),
            Section("Importance of columns", _strength(model)),
            *_errors(run),
        ]
    return [
        Section("Coefficients", _bayesian(model, run)),
        Section("Importance of columns", _importance(model, run)),
        Section("Fit", _noise(model)),
        *measured.regression(run),
        *own_figures(model),
    ]


def _errors(run: RunFolder) -> list[Section]:
    """Residuals, or accuracy and reliability where the outcome is 0 or 1."""
    is_classifier = run.summary.get("measured", {}).get("kind") == "classifier"
    return measured.classification(run) if is_classifier else measured.regression(run)


def _strength(model: Any) -> str:
    """Each coefficient in units of its standard error."""
    names = [name for name in model.names_ if name != "intercept"]
    errors = to_numpy(model.stderr_)[-len(names) :] if names else np.zeros(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(to_numpy(model.coef_) / errors)
    order = [j for j in np.argsort(-size, kind="stable")[:MOST_COLUMNS] if np.isfinite(size[j])]
    if not order:
        return ""
    picture = svg.bars({names[j]: float(size[j]) for j in order})
    return markup.figure(
        picture, "The size of each coefficient divided by its standard error; below 2 it may be chance."
    )


def _glm(model: Any) -> str:
    """Coefficients with intervals as a picture, and estimates with p-values as a folded table."""
    names = list(model.names_)
    ends = np.asarray(model.conf_int(0.95), dtype=float)
    middle = np.concatenate([[model.intercept_], model.coef_]) if model.fit_intercept else model.coef_
    keep = [j for j, name in enumerate(names) if name != "intercept" and np.isfinite(ends[j]).all()]
    figure = ""
    if keep:
        picture = statistics.intervals([names[j] for j in keep], np.asarray(middle)[keep], ends[keep])
        figure = markup.figure(picture, "Coefficients per unit of each column, with their 95 % confidence intervals.")
    table = next(iter(own_figures(model))).body
    return figure + markup.folded("Estimates, standard errors and p-values", table) if figure else table


def _fit(model: Any) -> str:
    """Deviance, its explained part, information criteria and dispersion."""
    explained = 1 - model.deviance_ / model.null_deviance_ if model.null_deviance_ else np.nan
    return markup.facts(
        {
            "rows": f"{model.n_rows_:,.0f}",
            "deviance": markup.number(model.deviance_, 5),
            "deviance explained": f"{explained:.1%}",
            "AIC": markup.number(model.aic_, 5),
            "BIC": markup.number(model.bic_, 5),
            "dispersion": markup.number(model.scale_),
        }
    )


def _bayesian(model: Any, run: RunFolder) -> str:
    """Coefficients with their posterior standard deviations, where the model is linear in the columns."""
    if not hasattr(model, "coef_"):
        return ""
    coef = np.atleast_1d(np.squeeze(to_numpy(model.coef_)))
    if coef.ndim > 1 or len(coef) != getattr(model, "n_features_in_", 0):  # several outputs, or products of columns
        return ""
    names = run.features[: len(coef)]
    errors = _posterior_errors(model, len(coef))
    if errors is None:
        shown = {name: float(v) for name, v in list(zip(names, coef))[:MOST_COLUMNS]}
        return markup.figure(svg.bars(shown), "Coefficients, per unit of each column.")
    ends = np.stack([coef - 1.96 * errors, coef + 1.96 * errors], 1)
    rows = (
        (escape(n), f"{c:.4g}", f"{e:.3g}", f"{a:.4g}", f"{b:.4g}")
        for n, c, e, (a, b) in zip(names, coef, errors, ends)
    )
    table = markup.table(("column", "mean", "std. deviation", "from", "to"), rows, numbers={1, 2, 3, 4})
    picture = statistics.intervals(names, coef, ends)
    return markup.figure(
        picture, "Posterior means of the coefficients per unit of each column, with 95 % intervals."
    ) + markup.folded("The same in numbers", table)


def _posterior_errors(model: Any, d: int) -> np.ndarray | None:
    """(d,) posterior standard deviations of the coefficients; None where the features are not the d columns."""
    design = getattr(model, "design_", None)
    posterior = getattr(model, "posterior", None)
    if design is None or posterior is None or len(to_numpy(posterior.basis)) != d:
        return None
    variance = to_numpy(posterior.basis) ** 2 @ to_numpy(posterior.axis_variance)[:, 0]
    return np.sqrt(variance)


def _importance(model: Any, run: RunFolder) -> str:
    """The size of a coefficient times its column's spread, or one over the length scale of a kernel."""
    values = importance(model)
    if values is None or len(values) > len(run.features) or not len(values):
        return ""
    order = np.argsort(-values, kind="stable")[:MOST_COLUMNS]
    top = values.max() or 1.0
    shown = {run.features[j]: float(values[j] / top) for j in order}
    picture = svg.bars(shown, notes={name: f"{v:.0%}" for name, v in shown.items()})
    return markup.figure(
        picture, "How much each column moves the prediction over its usual range, the strongest as 100 %."
    )


def importance(model: Any) -> np.ndarray | None:
    """(d,) how much each column matters, by the model's parameters."""
    if hasattr(model, "coef_") and hasattr(model, "stats_"):
        coef = np.squeeze(to_numpy(model.coef_))
        spread = _spreads(model.stats_)
        one_per_column = coef.ndim <= 1 and np.size(coef) == len(spread)
        return np.abs(np.atleast_1d(coef)) * spread if one_per_column else None
    kernel = getattr(getattr(model, "design_", None), "kernel", None)
    theta = getattr(kernel, "theta", {}) or {}
    scales = to_numpy(theta["log_scale"]) if "log_scale" in theta else None
    return np.exp(-scales) if scales is not None and scales.ndim == 1 else None


def _spreads(stats: Any) -> np.ndarray:
    """(d,) standard deviations of the columns, from the sums of the fit."""
    n = float(stats.n)
    mean = to_numpy(stats.z) / float(stats.n)
    second = np.diagonal(bayes_linear.unpack(to_numpy(stats.zz), len(mean))) / n
    return np.sqrt(np.maximum(second - mean**2, 0))


def _noise(model: Any) -> str:
    """Spread of the noise, marginal likelihood and held-out error, where the model has them."""
    noise = np.atleast_1d(to_numpy(getattr(model, "noise_variance_", np.nan)))
    shown = {"standard deviation of the noise": ", ".join(f"{v:.4g}" for v in np.sqrt(noise))}
    if hasattr(model, "log_marginal_likelihood_"):
        shown["log marginal likelihood"] = f"{model.log_marginal_likelihood_:.6g}"
    history = getattr(model, "history_", None) or [{}]
    if "val_rmse" in history[-1]:
        best = min(row["val_rmse"] for row in history if "val_rmse" in row)
        shown["error on held-out rows"] = f"{best:.4g}"
    return markup.facts(shown)
