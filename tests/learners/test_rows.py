"""Labels of any kind become codes; what is not known is refused in a sentence; tensors are made once."""

import gc

import numpy as np
import pytest

from unpooled.client import Client
from unpooled.errors import BadData, TooFewClients
from unpooled.learners import rows
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
    assert rows.kinds(federation([3, 1], [7], [1, 7])) == ([1, 3, 7], 3)
    assert rows.kinds(federation(["cat", "dog"], ["eel"])) == (["cat", "dog", "eel"], 3)


def test_known_classes_may_be_more_than_clients_have_but_not_fewer():
    assert rows.kinds(federation([3, 1], [7]), known=[7, 3, 1, 9]) == ([1, 3, 7, 9], 3)
    with pytest.raises(BadData, match="client 'c1' has the label 7: correct it, or add it to classes"):
        rows.kinds(federation([3, 1], [7, 1]), known=[1, 3])


def test_codes_and_back():
    labels = ["ant", "bee", "wasp"]
    given = np.array(["wasp", "ant", "bee", "ant"])
    assert np.array(labels)[rows.codes(given, labels)].tolist() == given.tolist()
    assert rows.codes(np.array([2.0, 5.0]), [2.0, 5.0]).tolist() == [0, 1]


def test_a_label_outside_the_classes_is_named_unless_it_is_padding():
    with pytest.raises(BadData, match="label 4 is outside the known classes"):
        rows.codes(np.array([1, 4]), [1, 3, 7])
    assert rows.codes(np.array([1, 0]), [1, 3, 7], np.array([1.0, 0.0])).tolist() == [0, 0]
    with pytest.raises(BadData, match="label 'cow'"):
        rows.codes(np.array(["cow"]), ["ant", "bee"])


def test_one_class_or_none_is_refused_in_a_sentence():
    with pytest.raises(BadData, match="at least two classes"):
        rows.kinds(federation([1, 1], [1]))
    with pytest.raises(BadData, match="words and others' are numbers"):
        rows.kinds(federation([1, 2], ["a"]))
    unlabelled = Local([Client("c0", np.zeros((2, 3)))])
    with pytest.raises(TooFewClients, match="'c0' has no labels"):
        rows.kinds(unlabelled)


def test_measurements_are_no_classes_unless_they_are_named():
    with pytest.raises(BadData, match=r"labels such as 0.5 are measurements, not classes.* FedBNR"):
        rows.kinds(federation([0.5, 1.5], [1.5]))
    assert rows.kinds(federation([0.5, 1.5], [1.5]), [0.5, 1.5]) == ([0.5, 1.5], 3)


def test_rows_are_moved_once_and_forgotten_with_their_client():
    client = Client("a", np.ones((4, 2)), np.array([0, 1, 0, 1]))
    first, second = (rows.rows(client, [0, 1], "cpu", "float32").x for _ in range(2))
    assert first is second
    count = len(rows._KEPT)
    del client
    gc.collect()
    assert len(rows._KEPT) < count


@pytest.mark.parametrize(
    "told", [b"", b"[1, 2", b"3", b"\xff", b'[{"a": 1}, 2]', b"[" * 5000], ids=lambda told: str(told[:8])
)
def test_classes_that_cannot_be_read_are_refused_by_name(told, monkeypatch):
    kind = rows.Kind(np.frombuffer(told, np.uint8), np.asarray(3), np.asarray(0))
    fed = federation([1, 2], [1])
    monkeypatch.setattr(fed, "gather", lambda ask, down: {"north": kind})
    with pytest.raises(BadData, match="client 'north' tells of its classes cannot be read"):
        rows.kinds(fed)
