"""Built-in sets load without network, always alike, and make clients without a complaint."""

import numpy as np
import pytest

from unpooled.data import builtin
from unpooled.data.tables import clients_from
from unpooled.errors import BadParameter


@pytest.mark.parametrize("name", builtin.NAMES)
def test_every_set_makes_clients_and_is_the_same_twice(name):
    data = builtin.load(name)
    found = clients_from(data)  # warnings are errors here: no constant column, no missing one
    assert found.columns == data.columns
    assert len(found.clients) == len(data.clients) >= 5
    assert all(c.y is not None and len(c.y) >= 2 for c in found.clients)
    again = builtin.load(name)
    for client, x in data.clients.items():
        np.testing.assert_array_equal(x, again.clients[client])


def test_a_set_of_scikit_learn_is_split_without_loss():
    from sklearn.datasets import load_iris

    data = builtin.load("iris", clients=4, alpha=0.5)
    assert len(data.clients) == 4
    rows = np.column_stack([np.concatenate(list(part.values())) for part in (data.clients, data.y)])
    truth = np.column_stack(load_iris(return_X_y=True))
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], truth[np.lexsort(truth.T)])


def test_hospitals_differ_and_miss_what_they_do_not_measure():
    data = builtin.load("hospitals")
    pooled = np.concatenate(list(data.clients.values()))
    assert pooled.shape == (1800, 8)
    assert np.isnan(pooled).mean() == pytest.approx(0.15, abs=0.01)
    ages = [np.nanmean(x[:, data.columns.index("age")]) for x in data.clients.values()]
    assert max(ages) - min(ages) > 15
    assert np.isnan(data.clients["cedar-clinic"][:, data.columns.index("cholesterol")]).mean() > 0.8
    assert np.nanmin(pooled[:, 0]) >= 18
    events = np.concatenate(list(data.y.values()))
    assert set(events) == {0, 1}
    assert 0.1 < events.mean() < 0.3


def test_a_typo_suggests_the_right_name():
    with pytest.raises(BadParameter, match="did you mean 'hospitals'"):
        builtin.load("hospital")
