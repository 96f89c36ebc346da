"""Labels of any kind become codes; what is not known is refused in a sentence; tensors are made once."""

import gc

import numpy as np
import pytest

from unpooled.client import Client
from unpooled.errors import BadData
from unpooled.learners import find_classes, labels, rows
from unpooled.learners.labels import codes
from unpooled.local import Local


def federation(*labels):
    rng = np.random.default_rng(0)
    return Local(
        [
            Client(f"c{i}", rng.normal(size=(len(y), 3)), None if y is None else np.asarray(y))
            for i, y in enumerate(labels)
        ]
    )


def test_classes_are_the_union_of_the_clients():
    assert find_classes(federation([3, 1], [7], [1, 7])) == ([1, 3, 7], 3)
    assert find_classes(federation(["cat", "dog"], ["eel"])) == (["cat", "dog", "eel"], 3)


def test_known_classes_may_be_more_than_clients_have_but_not_fewer():
    assert find_classes(federation([3, 1], [7]), classes=[7, 3, 1, 9]) == ([1, 3, 7, 9], 3)
    with pytest.raises(BadData, match="client 'c1' has the label 7: correct it, or add it to classes"):
        find_classes(federation([3, 1], [7, 1]), classes=[1, 3])


def test_codes_and_back():
    labels = ["ant", "bee", "wasp"]
    given = np.array(["wasp", "ant", "bee", "ant"])
    assert np.array(labels)[codes(given, labels)].tolist() == given.tolist()
    assert codes(np.array([2.0, 5.0]), [2.0, 5.0]).tolist() == [0, 1]


def test_a_label_outside_the_classes_is_named_unless_it_is_padding():
    with pytest.raises(BadData, match="label 4 is outside the known classes"):
        codes(np.array([1, 4]), [1, 3, 7])
    assert codes(np.array([1, 0]), [1, 3, 7], np.array([1.0, 0.0])).tolist() == [0, 0]
    with pytest.raises(BadData, match="label 'cow'"):
        codes(np.array(["cow"]), ["ant", "bee"])


def test_one_class_or_none_is_refused_in_a_sentence():
    with pytest.raises(BadData, match="at least two classes"):
        find_classes(federation([1, 1], [1]))
    with pytest.raises(BadData, match="strings and others are numbers"):
        find_classes(federation([1, 2], ["a"]))
    unlabelled = Local([Client("c0", np.zeros((2, 3)))])
    with pytest.raises(BadData, match="'c0' has no labels"):
        find_classes(unlabelled)
    with pytest.raises(BadData, match=r"labels have shape \(2, 1\).*: give a vector, such as y.ravel\(\)"):
        find_classes(federation([[1], [2]]))


def test_measurements_are_no_classes_unless_they_are_named():
    with pytest.raises(BadData, match=r"labels such as 0.5 are continuous.* FedBNR"):
        find_classes(federation([0.5, 1.5], [1.5]))
    assert find_classes(federation([0.5, 1.5], [1.5]), [0.5, 1.5]) == ([0.5, 1.5], 3)


def test_rows_are_moved_once_and_forgotten_with_their_client():
    client = Client("a", np.ones((4, 2)), np.array([0, 1, 0, 1]))
    first, second = (rows.rows(client, [0, 1], "cpu", "float32").x for _ in range(2))
    assert first is second
    count = len(rows._TENSORS)
    del client
    gc.collect()
    assert len(rows._TENSORS) < count


@pytest.mark.parametrize(
    "sent", [b"", b"[1, 2", b"3", b"\xff", b'[{"a": 1}, 2]', b"[" * 5000], ids=lambda sent: str(sent[:8])
)
def test_a_list_of_classes_that_cannot_be_read_is_refused_by_name(sent, monkeypatch):
    summary = labels.TableSummary(np.frombuffer(sent, np.uint8), np.asarray(3), np.asarray(0))
    fed = remote([1, 2], [1])
    monkeypatch.setattr(fed, "gather", lambda ask, down: {"north": summary})
    with pytest.raises(BadData, match="client 'north' sent a list of classes that cannot be read"):
        find_classes(fed)


# ---- what is sent ----


class Remote(Local):
    """Clients that the server cannot look at, as over a network."""

    def here(self):
        return []


def remote(*labels):
    return Remote(federation(*labels).clients)


@pytest.mark.parametrize("given", [([3, 1], [7], [1, 7]), (["cat", "doge"], ["eel"])])
def test_the_classes_are_the_same_in_process_and_over_a_network(given):
    feds = federation(*given), remote(*given), remote(*given)
    known = sorted({label for own in given for label in own})
    found = [find_classes(fed, classes) for fed, classes in zip(feds, (None, None, known))]
    assert found == [(known, 3)] * 3
    asked = [[(e.question, e.kind) for e in fed.journal.exchanges] for fed in feds]
    counts, names = [("learners.label_counts", "sum")], [("learners.table_summary", "gather")]
    assert asked == [counts, names, counts]  # one exchange each, so that later draws are the same


@pytest.mark.parametrize("mode", ["auto", "stacked", "one by one"])
def test_label_counts_are_rows_per_class(mode):
    fed = Local(federation([3, 1, 1], [7]).clients, mode=mode)
    fed.clients[0].x[0, 0] = np.nan
    total = fed.sum(labels.label_counts.using(labels=[1, 3]), None)
    assert total.counts.tolist() == [2, 1]
    assert (total.rows, total.outside, total.missing, total.columns, total.columns_squared) == (4, 1, 1, 12, 36)


def test_over_a_network_totals_are_refused_without_naming_a_client():
    with pytest.raises(BadData, match=r"1 rows have labels outside classes=\[1, 3\]"):
        find_classes(remote([3, 1], [7, 1]), [1, 3])
    fed = remote([3, 1], [1])
    fed.clients[0].x[0, 0] = np.nan
    with pytest.raises(BadData, match="1 rows have missing values, and learners need complete rows"):
        find_classes(fed, [1, 3])
    assert find_classes(fed, [1, 3], allow_missing=True) == ([1, 3], 3)
    wider = Client("c2", np.zeros((2, 4)), np.array([1, 3]))
    with pytest.raises(BadData, match="different widths"):
        find_classes(Remote([*fed.clients, wider], mode="one by one"), [1, 3], allow_missing=True)


def test_a_longer_string_is_not_taken_for_a_class_it_begins_with():
    with pytest.raises(BadData, match="label 'wasps' is outside"):
        codes(np.array(["wasps"]), ["bee", "wasp"])
