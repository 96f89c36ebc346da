"""The report on concepts: which clients are in which, how certain that is, and how concepts differ. Nothing is sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.report import concepts as pictures
from unpooled.report import markup
from unpooled.report.folder import RunFolder
from unpooled.report.kinds import classifiers, measured
from unpooled.report.markup import Section

DIFFERENT = 0.1  # smallest difference in the share of a label that is reported


def sections(model: Any, run: RunFolder) -> list[Section]:
    """The concepts of a fitted FedConceptEM."""
    figures = pictures.figures(model)
    sentences = figures.pop("Each client in a sentence", "")
    captions = {
        "Label shares of each model": "How often each model gives each label; models that agree in this differ in concept, not in labels.",
        "Share of rows of each model by round": "The share of rows that each model accounts for, by round.",
        "Clients by concept": "The weight of each concept at each client, the least certain clients where there are many.",
    }
    shown = "".join(markup.figure(body, captions.get(title, title)) for title, body in figures.items())
    members = markup.bullets(_members(model))
    if sentences:
        members += markup.folded("Each client in a sentence", sentences)
    return [
        Section("Who is in which concept", members),
        Section("How concepts differ", markup.bullets(_differences(model)) + markup.side_by_side(shown)),
        *measured.classification(run),
        Section("Gain by site", classifiers.gain(model)),
    ]


def _members(model: Any) -> list[str]:
    """One sentence per concept on the clients that have it."""
    known = getattr(model, "concepts_", {})
    lines = []
    for k in range(int(model.n_concepts_)):
        names = [name for name, concept in known.items() if concept == k]
        members = markup.listed(names, 12) if names else "no client has it as its own"
        lines.append(f"Concept {k}: {members}.")
    return lines if known else []


def _differences(model: Any) -> list[str]:
    """In which labels each concept's rows differ from those of all concepts together."""
    shares = to_numpy(model.label_shares_)
    average = shares.mean(0)
    lines = []
    for k, row in enumerate(shares):
        difference = row - average
        words = []
        for j in np.argsort(-np.abs(difference), kind="stable")[:3]:
            if abs(difference[j]) >= DIFFERENT:
                more = "more" if difference[j] > 0 else "less"
                words.append(f"label {model.classes_[j]} {more} often ({row[j]:.0%} against {average[j]:.0%})")
        alike = "labels about as often as the others; what differs is which rows get them"
        lines.append(f"Concept {k} gives {', '.join(words) or alike}.")
    return lines if len(shares) > 1 else []
