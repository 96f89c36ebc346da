"""The report on a mixture: size, profile and position of each cluster, the sites that have it, and how many clusters there are.

Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.report import markup, svg
from unpooled.report.folder import RunFolder
from unpooled.report.kinds import measured
from unpooled.report.kinds import parts as shapes
from unpooled.report.kinds.parts import Parts
from unpooled.report.markup import Section

MOST_CLIENTS = 40  # shown in a figure
MOST_LEAVES = 60  # of a dendrogram
MOST_DISCRETE = 12  # columns with levels
MOST_LEVELS = 20  # of such a column
GAUSSIAN = ("real", "positive")  # kinds of columns with means and covariances


def sections(model: Any, run: RunFolder) -> list[Section]:
    """The clusters of a fitted mixture."""
    parts = shapes.parts_of(model)
    if parts is None:
        return [Section("Parameters", _parameters(model))]
    columns = _gaussian_columns(model, run)[: parts.means.shape[1]]
    return [
        Section("The clusters", _clusters(parts, columns, rows_of(model, run))),
        Section(
            "What tells them apart",
            markup.side_by_side(_profiles(parts, columns), _map(parts, columns)) + _numbers(parts, columns),
        ),
        Section("Categories and counts", _discrete(model, len(parts.weights))),
        Section("Who holds what", markup.side_by_side(_weights(model, run), _holdings(model)) + _holders(model)),
        Section("How many clusters", markup.side_by_side(_certainty(model), _dendrogram(model))),
        *measured.density(run),
    ]


def _gaussian_columns(model: Any, run: RunFolder) -> list[str]:
    """The columns that the Gaussians are of, in their order: all of them, or those of numbers where others hold levels or counts."""
    own = getattr(model, "gaussian_columns_", None)
    kinds = getattr(model, "kinds_", None) or []
    if own is None and len(kinds) == len(run.columns):
        own = [name for name, kind in zip(run.columns, kinds) if kind in GAUSSIAN]
    return run.columns if own is None else [str(c) for c in own]


def rows_of(model: Any, run: RunFolder) -> float | None:
    """The number of rows of all clients, where it is known."""
    known = getattr(model, "rows_", None) or getattr(model, "n_rows_", None)
    if known is not None:
        return float(known)
    counts = [c["rows"] for c in run.clients.values()]
    return float(sum(counts)) if counts and None not in counts else None


def _clusters(parts: Parts, columns: list[str], rows: float | None) -> str:
    """The list of clusters: share, rows, and what tells each apart in words."""
    means, _ = shapes.standardised(parts)
    share = parts.weights / parts.weights.sum()
    table = (
        (
            _swatch(k),
            f"{share[k]:.1%}",
            "-" if rows is None else f"{share[k] * rows:,.0f}",
            f'<span class="long">{escape(shapes.in_words(means[k], columns))}</span>',
        )
        for k in range(len(share))
    )
    note = (
        "High and low are half a standard deviation or more from the mean of all rows, very high and very low 1.5 or more. "
        "Predictions count from 0: cluster 1 is prediction 0."
    )
    head = ("cluster", "share of rows", "rows, about", "what tells it apart")
    return markup.table(head, table, numbers={1, 2}, caption=note)


def _swatch(k: int) -> str:
    """The cluster's number with its colour."""
    box = f'<rect width="12" height="12" rx="2" fill="{svg.PALETTE[k % len(svg.PALETTE)]}"/>'
    return f'<svg width="12" height="12" aria-hidden="true" class="inline">{box}</svg> {k + 1}'


def _profiles(parts: Parts, columns: list[str]) -> str:
    """Means and spreads by column, for the columns that differ most between clusters."""
    if not columns:
        return ""
    means, spreads = shapes.standardised(parts)
    chosen = shapes.most_telling(means, parts.weights / parts.weights.sum())
    names = [columns[j] for j in chosen]
    left_out = "" if len(chosen) == len(columns) else f" The {len(chosen)} of {len(columns)} columns that differ most."
    picture = svg.profiles(names, means[:, chosen], spreads[:, chosen])
    caption = (
        "For each column a dot at the mean of each cluster and a line one standard deviation to either side, in standard "
        f"deviations about the mean of all rows. Colours as in the list of clusters, from the first at the top.{left_out}"
    )
    return markup.figure(picture, caption)


def _discrete(model: Any, k: int) -> str:
    """Probabilities of levels and mean counts in each cluster, for a mixture with columns of categories or counts."""
    heads = [f"cluster {i + 1}" for i in range(k)]
    pictures = []
    probabilities = getattr(model, "level_probabilities_", None) or {}
    for name, by_cluster in list(probabilities.items())[:MOST_DISCRETE]:
        share = to_numpy(by_cluster).T[:MOST_LEVELS]  # (levels, k)
        labels = _level_names(model, name, len(share))
        caption = f"{escape(str(name))}: the share of each level in each cluster."
        pictures.append(markup.figure(svg.shades(labels, heads, share), caption))
    counted = [str(c) for c in getattr(model, "count_columns_", [])]
    rows = ((escape(name), *(f"{v:.3g}" for v in to_numpy(model.count_means_)[:, j])) for j, name in enumerate(counted))
    table = markup.table(
        ("count", *heads), rows, numbers=range(1, len(heads) + 1), caption="Mean counts in each cluster."
    )
    return markup.side_by_side(*pictures) + (table if counted else "")


def _level_names(model: Any, name: Any, count: int) -> list[str]:
    """The names of a column's levels where the model knows them."""
    levels = {c["name"]: c.get("levels") or [] for c in getattr(model, "schema_", [])}
    known = levels.get(name, [])
    if len(known) < count:
        return [f"level {i}" for i in range(count)]
    return [str(v) for v in list(known)[:count]]


def _numbers(parts: Parts, columns: list[str]) -> str:
    """Means and standard deviations as a folded table."""
    if not columns:
        return ""
    head = ("column", *(f"cluster {k + 1}" for k in range(len(parts.weights))))
    rows = (
        (escape(name), *(f"{m:.4g} ± {s:.3g}" for m, s in zip(parts.means[:, j], parts.spreads[:, j])))
        for j, name in enumerate(columns)
    )
    table = markup.table(head, rows, numbers=range(1, len(head)), caption="Mean ± standard deviation in each cluster.")
    return markup.folded("Means and standard deviations in numbers", table)


def _map(parts: Parts, columns: list[str]) -> str:
    """Clusters as ellipses in the plane of the two principal axes."""
    if len(columns) < 2:
        return ""
    centres, covs, axes, share = shapes.plane(parts)
    names = [shapes.axis_name(axes[i], share[i], i + 1, columns) for i in range(2)]
    picture = svg.ellipses(centres, covs, parts.weights, *names)
    caption = (
        "Clusters in the plane of the two principal axes of all rows: ellipses at one and two standard deviations, drawn from "
        f"the model's parameters, not from rows. The axes show {share[0]:.0%} and {share[1]:.0%} of the variance of the scaled columns."
    )
    return markup.figure(picture, caption)


def site_weights(model: Any, run: RunFolder) -> dict[str, np.ndarray]:
    """Client -> its own weights of the clusters, where they are known."""
    shares = getattr(model, "client_shares_", None)
    if shares:
        return {name: to_numpy(w) for name, w in shares.items()}
    if hasattr(model, "super_clusters_"):
        return _summed(model)
    return {name: np.asarray(w) for name, w in (run.summary.get("weights") or {}).items()}


def _summed(model: Any) -> dict[str, np.ndarray]:
    """FedGEM: weights of local clusters, added up by the cluster that they belong to."""
    found = {}
    for name, own in model.client_weights_.items():
        found[name] = np.zeros(int(model.n_components_))
        np.add.at(found[name], to_numpy(model.super_clusters_[name]), to_numpy(own))
    return found


def _weights(model: Any, run: RunFolder) -> str:
    """Shares of clusters at each site, as stacked bars."""
    weights = dict(list(site_weights(model, run).items())[:MOST_CLIENTS])
    if not weights:
        return ""
    shares = np.array(list(weights.values()))
    numbers = [str(k + 1) for k in range(shares.shape[1])]
    picture = svg.stacked(list(weights), shares, parts_names=numbers)
    return markup.figure(picture, "The share of each cluster among the rows of each site.")


def _holdings(model: Any) -> str:
    """Expected rows of each cluster at each site, as a heat map."""
    held = {name: to_numpy(h) for name, h in getattr(model, "holdings_", {}).items()}
    if not held:
        return ""
    names = list(held)[:MOST_CLIENTS]
    counts = np.array([held[name] for name in names])
    texts = [[f"{v:,.0f}" if v >= 0.5 else "" for v in row] for row in counts]
    picture = svg.shades(names, [f"cluster {k + 1}" for k in range(counts.shape[1])], _shares(counts), texts)
    caption = "Expected rows of each cluster at each site; darker is a larger share of the site's rows."
    return markup.figure(picture, caption)


def _holders(model: Any) -> str:
    """Each cluster's sites in a sentence."""
    held = {name: to_numpy(h) for name, h in getattr(model, "holdings_", {}).items()}
    if not held:
        return ""
    return markup.bullets(f"Cluster {k + 1} is {_who(held, k)}." for k in range(int(model.n_components_)))


def _shares(counts: np.ndarray) -> np.ndarray:
    """Each row divided by its sum."""
    return counts / np.maximum(counts.sum(1, keepdims=True), 1e-300)


def _who(held: Mapping[str, np.ndarray], k: int) -> str:
    """Which sites hold cluster `k`, the largest first."""
    holders = sorted((name for name in held if held[name][k] >= 0.5), key=lambda name: -held[name][k])
    return f"held by {markup.listed(holders)}" if holders else "held by no site with enough rows to tell"


def _certainty(model: Any) -> str:
    """How probable each number of clusters is, or the BIC of each."""
    probability = {str(k): float(v) for k, v in (getattr(model, "certainty_", None) or {}).items()}
    if probability:
        shown = {k: v for k, v in sorted(probability.items(), key=lambda pair: int(pair[0])) if v >= 0.001}
        picture = svg.bars(
            {_clusters_word(k): v for k, v in shown.items()},
            notes={_clusters_word(k): f"{v:.1%}" for k, v in shown.items()},
        )
        return markup.figure(picture, "Probability of each number of clusters, among those that were tried.")
    bics = {int(k): float(v) for k, v in (getattr(model, "bics_", None) or {}).items()}
    if len(bics) < 2:
        return ""
    numbers = sorted(bics)
    picture = svg.line(numbers, [bics[k] for k in numbers], "clusters", "BIC")
    best = min(bics, key=bics.__getitem__)
    return markup.figure(picture, f"BIC by number of clusters, smaller is better; {best} was chosen.")


def _clusters_word(k: str) -> str:
    """The number of clusters in words: "1 cluster", "2 clusters"."""
    return f"{k} cluster{'s' if k != '1' else ''}"


def _dendrogram(model: Any) -> str:
    """Which clusters would be joined first."""
    merges = getattr(model, "merges_", None)
    if merges is None or not 2 <= int(merges.leaves) <= MOST_LEAVES:
        return ""
    leaves = int(merges.leaves)
    if leaves == int(model.n_components_):
        word = "cluster"
    elif leaves == len(to_numpy(model.weights_)):
        word = "Gaussian"
    else:
        word = "local part"
    labels = [f"{word} {i + 1}" for i in range(leaves)]
    cost = -np.asarray(merges.gain, dtype=float)
    heights = np.maximum.accumulate(cost - min(float(cost.min()), 0.0))
    picture = svg.dendrogram(labels, merges.left, merges.right, heights)
    return markup.figure(
        picture, "Which would be joined first if there were fewer clusters; further right costs more likelihood."
    )


def _parameters(model: Any) -> str:
    """The parameters of a family without means and covariances, by their names."""
    params = getattr(model, "params_", None)
    fields = getattr(params, "_fields", ())
    rows = (
        (escape(f), escape(np.array2string(to_numpy(getattr(params, f)), precision=4, threshold=40))) for f in fields
    )
    return markup.table(("parameter", "value"), rows) if fields else ""
