"""The toy case of figure 3: EM on P(x, y) gives conflicting labels to one model; ConceptEM has a sure model for every row.

Three clients of equally many rows over six inputs and two labels, two models that are plain tables, so every step is
solved exactly. Clients 1 and 3 agree on two inputs and disagree on one; client 2 sees other inputs. EM on P(x, y) puts
together what looks alike, 1 and 3; ConceptEM what does not contradict.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unpooled.learners.mixing import responsibilities

SEEDS = 1
STARTS, STEPS, MODELS, FEW = 200, 1000, 2, 1e-12
CLIENTS = (((0, 0), (1, 1), (2, 0)), ((3, 0), (4, 1), (5, 0)), ((0, 1), (1, 1), (2, 0)))  # (input, label) of each row
DIFFERS = (
    "the numbers of the paper's example are not printed in its text: the three datasets are ours, with the property that its "
    "caption tells of. Of 200 random starts each method's best by its own objective is shown."
)


class Found(NamedTuple):
    sure: np.ndarray  # (starts, clients, rows) sum_k omega_ik P_k(y | x) of each row's own label
    omega: np.ndarray  # (starts, clients, k)
    objective: np.ndarray  # (starts,) mean log sum_k omega_ik P_k(x, y), or ... P_k(y | x) / P_k(y)


def em(concepts: bool, rng: np.random.Generator) -> Found:
    """All starts at once: EM on P(x, y), or ConceptEM."""
    rows = np.array(CLIENTS)  # (clients, rows, 2)
    x, y = rows[..., 0], rows[..., 1]
    cells = np.zeros((*x.shape, x.max() + 1, y.max() + 1))  # one-hot (clients, rows, inputs, labels)
    np.put_along_axis(cells.reshape(*x.shape, -1), (x * cells.shape[-1] + y)[..., None], 1, axis=-1)
    joint = rng.dirichlet(np.ones(cells[0, 0].size), size=(STARTS, MODELS)).reshape(STARTS, MODELS, *cells.shape[2:])
    omega = np.full((STARTS, len(rows), MODELS), 1 / MODELS)
    for _ in range(STEPS):
        given = joint / joint.sum(-1, keepdims=True)  # P_k(y | x)
        score = given / joint.sum(-2, keepdims=True) if concepts else joint
        log_score = np.log(np.einsum("skxy,cnxy->scnk", score, cells))
        r, norm = responsibilities(log_score + np.log(omega)[:, :, None])
        omega = np.maximum(r.mean(2), FEW)
        joint = np.einsum("scnk,cnxy->skxy", r, cells) + FEW
        joint /= joint.sum((-1, -2), keepdims=True)
    sure = np.einsum("sck,skxy,cnxy->scn", omega, joint / joint.sum(-1, keepdims=True), cells)
    return Found(sure, omega, norm.mean((1, 2)))


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    paper = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())["toy"]
    rows = []
    for method, concepts in (("EM on P(x, y)", False), ("ConceptEM", True)):
        found = em(concepts, np.random.default_rng(0))
        best = found.objective.argmax()
        sure = found.sure[best].min(1)
        row = {"method": method, "objective": float(found.objective[best])}
        row |= {f"least P(y given x), client {c}": float(p) for c, p in enumerate(sure, 1)}
        row["weights of model 1"] = " ".join(f"{w:.2f}" for w in found.omega[best, :, 0])
        row["starts with all of them above 0.99"] = f"{(found.sure.min((1, 2)) > 0.99).sum()} of {STARTS}"
        rows.append(row | {"ours": float(sure.min()), "spread": None, "paper": paper.get(method)})
    return rows
