"""Report of a run that found concepts: the concept of each client, how certain it is, and what would change it.

Figures are SVG text; `shares` and `right` compare with known concepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from unpooled.report import svg

MOST_CLIENTS = 40  # shown one by one in a figure
MOST_ROUNDS = 12


def figures(model: Any) -> dict[str, str]:
    """The figures of a fitted FedConceptEM, by title."""
    out = {
        "Label shares of each model": label_figure(model),
        "Share of rows of each model by round": rounds_figure(model),
    }
    if model.clients_:
        out["Clients by concept"] = clients_figure(model)
        out["Each client in a sentence"] = sentences(model)
    return {title: body for title, body in out.items() if body}


def label_figure(model: Any) -> str:
    """P_k(y): with balanced rows a model stands for a concept, not for some of the labels."""
    return svg.shades(model_names(model), [str(c) for c in model.classes_], model.label_shares_)


def rounds_figure(model: Any) -> str:
    """The share of rows of each model by round; models that were removed come last, in grey."""
    kept = [row for row in model.history_ if "shares" in row]
    if not kept:
        return ""
    some = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, MOST_ROUNDS).astype(int))]
    shares = np.array([row["shares"] for row in some])
    order = [*model.kept_, *np.delete(np.arange(shares.shape[1]), model.kept_)]
    return svg.stacked([f"round {row['round']}" for row in some], shares[:, order], len(order) - model.n_concepts_)


def clients_figure(model: Any) -> str:
    """The weights of the models at each client, sorted by concept; the least certain ones if there are many."""
    names = sorted(model.clients_, key=lambda name: (model.concepts_[name], -model.certainty_[name]))
    if len(names) > MOST_CLIENTS:
        least = sorted(names, key=model.certainty_.get)[:MOST_CLIENTS]
        names = [name for name in names if name in least]
    weights = np.array([model.clients_[name]["omega"] for name in names])
    return svg.shades(names, model_names(model), weights)


def shares(model: Any, truth: Mapping[str, int]) -> np.ndarray:
    """(true concepts, models): mean weights of the clients of each concept; a row sums to one."""
    kinds = sorted(set(truth.values()))
    return np.array(
        [np.mean([model.clients_[n]["omega"] for n in model.clients_ if truth[n] == c], axis=0) for c in kinds]
    )


def right(model: Any, truth: Mapping[str, int]) -> float:
    """The share of clients in the right concept: those whose model is the one most clients of their concept have,
    matched so that no two concepts have the same model.
    """
    from scipy.optimize import linear_sum_assignment

    kinds = sorted(set(truth.values()))
    counts = np.zeros((len(kinds), model.n_concepts_))
    for name, k in model.concepts_.items():
        counts[kinds.index(truth[name]), k] += 1
    return float(counts[linear_sum_assignment(-counts)].sum() / counts.sum())


def sentences(model: Any) -> str:
    """One sentence per client on its concept."""
    lines = (escape(sentence(name, own)) for name, own in model.clients_.items())
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def sentence(name: str, own: Mapping[str, np.ndarray]) -> str:
    """The concept of a client, how certain it is, and what would change it."""
    omega = own["omega"]
    fit = own["fit"]
    votes = own["votes"]
    best = int(omega.argmax())
    start = f"{name}: concept {best}, {_sure(float(omega[best]))} ({omega[best]:.1%} of its rows)"
    if len(omega) == 1:
        return f"{start}; there is no other."
    other = int(np.argsort(np.where(np.arange(len(fit)) == best, -np.inf, fit))[-1])
    rows = max(1, int(np.ceil((votes[best] - votes[other]) / 2)))
    return (
        f"{start}; concept {other} comes next, {fit[best] - fit[other]:.2f} nats per row behind; it would change if about "
        f"{rows} of its {votes.sum():.0f} rows were labelled as concept {other} labels them."
    )


def _sure(share: float) -> str:
    """How certain a share is, in a word."""
    if share > 0.95:
        return "certain"
    return "likely" if share > 0.75 else "in doubt"


def model_names(model: Any) -> list[str]:
    """Names of the concepts' models."""
    return [f"model {k}" for k in range(model.n_concepts_)]
