"""`unit`, `max_rows_per_unit` and bounds by column: what a budget does to the rows before any question sees them."""

import csv

import numpy as np
import pytest

from unpooled.errors import BadData, BadParameter
from unpooled.models.private import ColumnMoments
from unpooled.node import config, policy
from unpooled.node.budget import Budget, preparation_of
from unpooled.node.preparation import Preparation, limit_units
from unpooled.node.source import FileTable, TableSource

RNG = np.random.default_rng(0)
PATIENTS = RNG.integers(0, 40, size=300)
VALUES = RNG.normal(60, 20, size=300)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.csv"
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["alter", "patient"])
        out.writerows([f"{v:.3f}", f"P{p}"] for v, p in zip(VALUES, PATIENTS))
    return path


def rows_of(path, preparation, chunk_rows=0):
    source = TableSource(
        "basel", FileTable(path), columns={"age": "alter"}, chunk_rows=chunk_rows, preparation=preparation
    )
    return np.concatenate([part.x[:, 0] for part in source.open(None).parts()])


def first_rows(most):
    """The plain loop."""
    seen, kept = {}, []
    for i, patient in enumerate(PATIENTS):
        seen[patient] = seen.get(patient, 0) + 1
        if seen[patient] <= most:
            kept.append(i)
    return kept


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("chunk_rows", [0, 7, 64])
def test_a_unit_keeps_its_first_rows_also_in_chunks(path, most, chunk_rows):
    found = rows_of(path, Preparation("patient", most), chunk_rows)
    assert np.allclose(found, np.round(VALUES, 3)[first_rows(most)])


def test_the_unit_is_no_feature(path):
    source = TableSource("basel", FileTable(path), preparation=Preparation("patient", 2))
    assert source.columns == ["alter"]


def test_values_are_moved_into_the_bounds(path):
    found = rows_of(path, Preparation(bounds={"age": (40.0, 80.0)}))
    assert np.allclose(found, np.clip(np.round(VALUES, 3), 40, 80))


@pytest.mark.parametrize("missing", [None, np.nan, ""])
def test_a_row_of_nobody_is_refused(missing):
    chunk = {"patient": np.array(["a", missing], dtype=object), "age": np.ones(2)}
    with pytest.raises(BadData, match="1 rows without 'patient'"):
        list(limit_units([chunk], Preparation("patient", 1), "rows.csv"))


def test_the_section_says_what_is_wrong(tmp_path):
    path = tmp_path / "policy.toml"
    for text, why in (
        ('unit = "p"', "belong together"),
        ("max_rows_per_unit = 3", "belong together"),
        ('unit = "p"\nmax_rows_per_unit = 0', "whole number of 1 or more"),
        ("unit = 3\nmax_rows_per_unit = 1", "name of a column"),
        ("[privacy.bounds]\nage = [110, 0]", "reversed"),
        ("[privacy.bounds]\nage = [1, 1]", "equal"),
        ("bounds = 3", r"written \[privacy.bounds\]"),
    ):
        path.write_text(f"[privacy]\nepsilon = 1.0\ndelta = 1e-6\n{text}\n")
        with pytest.raises(BadParameter, match=why):
            policy.read(path)


def node(tmp_path, path, privacy):
    folder = tmp_path / "node"
    folder.mkdir(exist_ok=True)
    (folder / "node.toml").write_text(f'name = "basel"\n[data]\npath = "{path}"\n[data.columns]\nage = "alter"\n')
    (folder / "policy.toml").write_text(f"trust_coordinator = true\n[privacy]\nepsilon = 9.0\ndelta = 1e-6\n{privacy}")
    return config.site(config.read(folder / "node.toml"))


def mean_by_looks(site):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
    from memory import MemoryTransport

    from unpooled.layers.private.nodes import PrivateNodes
    from unpooled.remote import Remote

    fed = Remote(MemoryTransport([site]), names=["basel"], columns=["age"], wait=2, timeout=2)
    fed = PrivateNodes(fed, epsilon=1.0, delta=1e-6, bounds={"age": (0.0, 120.0)}, masked=False)
    return ColumnMoments().fit(fed), fed


def test_a_look_at_a_person_costs_the_square_of_their_rows(tmp_path, path):
    site = node(tmp_path, path, 'unit = "patient"\nmax_rows_per_unit = 3\n')
    _, fed = mean_by_looks(site)
    assert sum(site.ledger.looks.values()) == pytest.approx(9 * fed.accountant.mu2_total)


def test_a_unit_changed_while_the_node_runs_needs_a_restart(tmp_path, path):
    from unpooled.errors import TooFewClients

    site = node(tmp_path, path, "")
    with open(tmp_path / "node" / "policy.toml", "a") as file:
        file.write('unit = "patient"\nmax_rows_per_unit = 3\n')
    with pytest.raises(TooFewClients, match="restart the node"):
        mean_by_looks(site)


def test_delta_must_be_below_one_over_the_rows(tmp_path, path):
    from unpooled.errors import TooFewClients

    site = node(tmp_path, path, "")
    text = (tmp_path / "node" / "policy.toml").read_text()
    (tmp_path / "node" / "policy.toml").write_text(text.replace("1e-6", "0.004"))
    with pytest.raises(TooFewClients, match="not below one over its rows"):
        mean_by_looks(site)


def test_a_budget_without_a_unit_asks_for_nothing():
    assert preparation_of(None) == preparation_of(Budget(1.0, 1e-6)) == Preparation()
