"""The shift builder does what it says it did: labels, inputs and concepts of every client against the truth."""

import numpy as np
import pytest

from unpooled.datasets import shift
from unpooled.errors import BadParameter


def table(n=3000, classes=5, d=4, seed=0):
    """Rows whose first column is their own number: what became of each can be found out."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x[:, 0] = np.arange(n)
    return x, rng.integers(classes, size=n)


def test_every_row_is_given_once_with_the_label_of_its_clients_concept():
    x, y = table()
    made = shift.build(x, y, 20, rows=100, concepts=(0.5, 0.3, 0.2), corrupted=0.0, random_state=1)
    numbers = np.concatenate([np.append(made.train[c][0][:, 0], made.test[c][0][:, 0]) for c in made.train])
    assert len(np.unique(numbers)) == len(numbers) == 2000
    for name, (rows, labels) in made.train.items():
        true = y[rows[:, 0].astype(int)]
        np.testing.assert_array_equal(labels, made.maps[made.concepts[name]][true])
        np.testing.assert_array_equal(rows, x[rows[:, 0].astype(int)])
    assert np.bincount(list(made.concepts.values())).tolist() == [10, 6, 4]
    assert {len(v[1]) for v in made.test.values()} == {10}


def test_label_maps_are_the_papers():
    np.testing.assert_array_equal(
        shift.label_maps(4, 5), [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 2, 3, 4, 0], [2, 3, 4, 0, 1]]
    )
    with pytest.raises(BadParameter, match="concepts of 2 classes are not all different"):
        shift.label_maps(3, 2)


@pytest.mark.parametrize(("skew", "alpha"), [("lda", 1.0), ("lda", 100.0), ("lda_prior", 1.0), ("lda", np.inf)])
def test_clients_hold_the_labels_that_were_drawn_for_them(skew, alpha):
    y = np.random.default_rng(3).integers(10, size=60_000)
    places, wanted = shift.deal(y, 50, 200, alpha, skew, np.random.default_rng(0))
    found = np.stack([np.bincount(y[rows], minlength=10) / 200 for rows in places])
    assert np.abs(found - wanted).max() < 0.15  # 5 standard deviations of a share of 200 rows
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > (0.9 if np.isfinite(alpha) and alpha < 10 else -1)


def test_the_public_variant_is_more_skewed():
    y = np.random.default_rng(3).integers(10, size=20_000)
    largest = {}
    for skew in shift.SKEWS:
        _, wanted = shift.deal(y, 200, 50, 1.0, skew, np.random.default_rng(0))
        largest[skew] = wanted.max(1).mean()
    assert largest["lda"] < 0.45 < 0.6 < largest["lda_prior"]


def test_a_class_that_runs_out_is_replaced():
    y = np.repeat([0, 1], [30, 970])
    places, _ = shift.deal(y, 10, 100, 5.0, "lda", np.random.default_rng(0))
    assert len(np.unique(places)) == 1000


def test_the_asked_share_of_clients_is_corrupted_and_says_how():
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(1200, 12, 12), dtype=np.uint8), np.arange(1200) % 4
    made = shift.build(
        x, y, 40, rows=30, concepts=(0.5, 0.5), corrupted=(0.5, 0.1), severity=(2, 4), test_share=0.0, random_state=0
    )
    by_concept = [[made.corruptions[c] for c in made.concepts if made.concepts[c] == k] for k in (0, 1)]
    assert [sum(map(bool, each)) for each in by_concept] == [10, 2]
    assert {word.split()[1] for each in by_concept for word in each if word} <= {"2", "3", "4"}
    images = {row.tobytes() for row in (x / 255).astype(np.float32).reshape(len(x), -1)}
    untouched = {c: all(row.tobytes() in images for row in rows) for c, (rows, _) in made.train.items()}
    assert untouched == {c: not made.corruptions[c] for c in made.train}


def test_unseen_clients_have_every_concept_on_the_same_rows():
    x, y = table(50)
    maps = shift.label_maps(3, 5)
    clients = shift.unseen(x, y, maps)
    assert len(clients) == 3
    np.testing.assert_array_equal(clients[2][1], (y + 1) % 5)
    np.testing.assert_array_equal(clients[0][0], x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skew": "dirichlet"}, "skew='dirichlet' is not known: use one of 'lda', 'lda_prior'"),
        ({"rows": 1000}, "cannot make 10 clients of 1000 rows"),
        ({"alpha": 0.0}, "should be above 0"),
        ({"corrupted": 2.0}, "corrupted between 0 and 1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(options, message):
    with pytest.raises(BadParameter, match=message):
        shift.build(*table(), 10, **options)


def test_rows_of_colour_images_hold_one_channel_after_the_other():
    x = np.random.default_rng(0).integers(256, size=(60, 4, 4, 3), dtype=np.uint8)
    (rows, _), *_ = shift.unseen(x, np.arange(60) % 3, shift.label_maps(1, 3))
    np.testing.assert_allclose(rows.reshape(60, 3, 4, 4)[:, 2], x[..., 2] / 255, rtol=1e-6)


@pytest.mark.parametrize("damage", ["rotate 5", "shift 4", "contrast 3"])
def test_other_images_are_made_like_those_of_a_client(damage):
    rng = np.random.default_rng(0)
    x, y = rng.random((120, 8, 8, 3)).astype(np.float32), rng.integers(5, size=120)
    made = shift.build(x, y, 4, rows=30, concepts=2, corrupted=0.0, random_state=0)
    name = next(iter(made.train))
    known = made._replace(corruptions=made.corruptions | {name: damage})
    first, labels = shift.like(known, name, x[:10], y[:10])
    more, _ = shift.like(known, name, x[:50], y[:50])
    np.testing.assert_array_equal(first, more[:10])  # the same direction, however many images
    np.testing.assert_array_equal(labels, made.maps[made.concepts[name]][y[:10]])
    assert np.abs(first - shift.like(made, name, x[:10], y[:10])[0]).max() > 0.1


def test_like_repeats_the_corruption_of_a_clients_own_images():
    rng = np.random.default_rng(1)
    x = np.broadcast_to(rng.random((8, 8, 3)), (60, 8, 8, 3)).astype(np.float32)  # the same image everywhere
    for seed in range(5):
        made = shift.build(x, np.arange(60) % 3, 2, rows=30, concepts=1, corrupted=1.0, random_state=seed)
        for name, damage in made.corruptions.items():
            if damage.startswith(("shift", "rotate", "contrast", "blur")):
                np.testing.assert_array_equal(shift.like(made, name, x[:1], [0])[0][0], made.train[name][0][0])
