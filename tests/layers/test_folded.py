"""A fold's federation is the federation of the rows outside of it, on every engine."""

import numpy as np
import pytest
from flower_grid import flower
from memory import MemoryTransport

from unpooled.client import Client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.layers.folds import Folded, training_rows
from unpooled.local import Local
from unpooled.maths.folds import fold_of
from unpooled.models.initialization import column_sums
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Remote

RNG = np.random.default_rng(0)
ROWS = {name: (RNG.normal(size=(n, 2)), RNG.integers(0, 2, n)) for name, n in (("a", 40), ("b", 25), ("c", 70))}


def clients():
    return [Client(name, x, y) for name, (x, y) in ROWS.items()]


@pytest.mark.parametrize("engine", [Local, flower], ids=["local", "flower"])
@pytest.mark.parametrize("folds", [2, 5, 10])
def test_training_rows_and_the_fold_are_all_rows(engine, folds):
    whole = engine(clients()).sum(column_sums, None)
    parts = [Folded(engine(clients()), folds, fold).sum(column_sums, None) for fold in range(folds)]
    np.testing.assert_allclose(sum(p.x for p in parts), (folds - 1) * whole.x, rtol=1e-12)
    kept = [x[fold_of(x, y, folds) != 0] for x, y in ROWS.values()]
    np.testing.assert_allclose(parts[0].x, np.concatenate(kept).sum(0), rtol=1e-12)


def test_other_folds_are_refused():
    with pytest.raises(TooFewClients, match="folds=3 must be one of 2, 5, 10"):
        Folded(Local(clients()), 3, 0).sum(column_sums, None)


def test_a_node_leaves_out_no_fewer_rows_than_its_policy_demands():
    sites = [Site(c.name, Source(c), {}, policy=lambda: Policy(min_rows=10)) for c in clients()]
    fed = Remote(MemoryTransport(sites))
    total = Folded(fed, 5, 0).sum(column_sums, None)  # of 8, 5 and 14 rows left out, the third is enough
    np.testing.assert_allclose(total.x, ROWS["c"][0][fold_of(*ROWS["c"], 5) != 0].sum(0))
    assert all("would leave out fewer rows than the 10" in r.reason for r in fed.journal.refusals)
    assert len(fed.journal.refusals) == 2


def test_a_view_is_no_question():
    fed = Remote(MemoryTransport([Site(c.name, Source(c), {}) for c in clients()]))
    with pytest.raises((TypeError, BadParameter, TooFewClients)):
        fed.sum(training_rows, None)
