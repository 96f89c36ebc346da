"""How far Describe, PCA, Cox and KaplanMeier are from NumPy, scikit-learn and lifelines on the pooled rows; and their exchanges."""

import time
import warnings

import numpy as np
from sklearn.decomposition import PCA as Pooled

import unpooled as up
from unpooled.data.federate import federate
from unpooled.models.describe.quantile_rules import METHODS

SITES = 7


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(ours) - theirs)) / np.max(np.abs(theirs)))


def quantiles(rng: np.random.Generator, n: int = 3000, d: int = 200) -> None:
    """Exact quantiles of many columns at once, by every rule."""
    x = rng.normal(size=(n, d)) * rng.lognormal(0, 3, d)
    x[:, ::4] = x[:, ::4].round(1)
    x[rng.random(x.shape) < 0.02] = np.nan
    p = (0, 0.01, 0.05, 1 / 3, 0.5, 0.95, 1)
    differ = rounds = 0
    start = time.perf_counter()
    for method in METHODS:
        fed = federate({str(i): x[i::SITES] for i in range(SITES)}, mode="one by one")
        about = up.Describe(probabilities=p, method=method, min_count=1, bins=0, correlations=False).fit(fed)
        differ += int((about.quantiles_ != np.nanquantile(x, p, axis=0, method=method)).sum())
        rounds = max(rounds, fed.journal.round)
    seconds = (time.perf_counter() - start) / len(METHODS)
    print(
        f"quantiles, {d} columns x {len(p)} probabilities x {len(METHODS)} rules: {differ} differ from numpy's in any bit;"
    )
    print(f"    {rounds} exchanges at most, {seconds:.1f} s a fit")


def components(rng: np.random.Generator) -> None:
    """Exact at 500 columns, randomised at 20,000."""
    x = rng.normal(size=(2000, 500)) @ rng.normal(size=(500, 500)) + 1e3
    ours, theirs = up.PCA(50).fit(x, by=np.arange(2000) % SITES), Pooled(50, svd_solver="full").fit(x)
    names = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_")
    print(f"PCA, d = 500: {max(apart(getattr(ours, a), getattr(theirs, a)) for a in names):.1e} from scikit-learn's")
    n, d, k = 1000, 20_000, 20
    for decay, name in ((1.0, "slow decay"), (3.0, "fast decay")):
        spectrum = np.arange(1, 101) ** (-decay / 2.0) * 10
        x = (rng.normal(size=(n, 100)) * spectrum) @ rng.normal(size=(100, d)) + rng.normal(size=(n, d))
        model = up.PCA(k, random_state=0).fit(x, by=np.arange(n) % SITES)
        best = np.linalg.eigvalsh((x - x.mean(0)) @ (x - x.mean(0)).T)[-k:].sum() / (n - 1)
        captured = model.transform(x).var(0, ddof=1).sum()
        print(
            f"PCA, d = {d}, {name}: captures {captured / best:.5f} of the best {k} components in {model.n_iter_} rounds"
        )


def survival(rng: np.random.Generator, n: int = 2000) -> None:
    try:
        import lifelines
        import pandas as pd
        from lifelines.statistics import multivariate_logrank_test
    except ImportError:
        print("Cox, Kaplan-Meier: lifelines is not installed")
        return
    x = rng.normal(size=(n, 6))
    time_, censored = rng.exponential(200 * np.exp(-x[:, 0] + x[:, 1] / 2)), rng.exponential(300, n)
    y = np.column_stack([np.ceil(np.minimum(time_, censored)), time_ <= censored])
    site, group = np.arange(n) % SITES, rng.integers(0, 3, n).astype(float)
    frame = pd.DataFrame(x).rename(columns=str).assign(T=y[:, 0], E=y[:, 1])
    fed = federate(x, y, by=site)
    cox = up.Cox().fit(fed)
    peer = lifelines.CoxPHFitter().fit(frame, "T", "E", fit_options={"r_precision": 1e-15, "precision": 1e-14})
    worst = max(apart(cox.coef_, peer.params_), apart(cox.stderr_, peer.standard_errors_))
    same = abs(cox.concordance_ - peer.concordance_index_)
    print(f"Cox, {n} patients, ties: coefficients and errors {worst:.1e}, concordance {same:.1e} from lifelines';")
    print(f"    {cox.n_iter_} Newton steps, {fed.journal.round} exchanges with steps of time and concordance")
    rows = np.column_stack([y, group])
    km = up.KaplanMeier(duration=0, event=1, by=2).fit(rows, by=site)
    peer = lifelines.KaplanMeierFitter().fit(y[group == 1, 0], y[group == 1, 1])
    curve = apart(km.survival_[1], peer.survival_function_at_times(km.times_).to_numpy())
    test = multivariate_logrank_test(y[:, 0], group, y[:, 1]).test_statistic
    print(f"Kaplan-Meier: curve {curve:.1e}, log-rank {abs(km.logrank_['statistic'] / test - 1):.1e} from lifelines'")


def main() -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    quantiles(rng)
    components(rng)
    survival(rng)


if __name__ == "__main__":
    main()
