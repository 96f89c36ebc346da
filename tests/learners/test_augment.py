"""Crops and flips: the same draws alone and stacked, the same pixels in NumPy and torch; clipped gradients."""

import numpy as np
import pytest
import torch

import unpooled as up
from unpooled.client import Client
from unpooled.errors import BadParameter
from unpooled.learners import augment
from unpooled.learners.sgd import clipped, minibatches
from unpooled.learners.trainer import Trainer

SIDE = 6


def images(n, channels=3, seed=0):
    return np.random.default_rng(seed).random((n, channels * SIDE * SIDE))


def pixel_by_pixel(image, down, right, mirrored):
    """What `moved` should do to one image (channels, side, side)."""
    out = np.zeros_like(image)
    for i, j in np.ndindex(SIDE, SIDE):
        row, column = i - down, j - right
        column = SIDE - 1 - column if mirrored else column
        if 0 <= row < SIDE and 0 <= column < SIDE:
            out[:, i, j] = image[:, row, column]
    return out


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_moved_and_mirrored(channels):
    x, rng = images(40, channels), np.random.default_rng(1)
    moves = rng.integers([-4, -4, 0], [5, 5, 2], size=(40, 3))
    found = augment.moved(x, moves)
    shape = (channels, SIDE, SIDE)
    for image, result, move in zip(x, found, moves):
        np.testing.assert_array_equal(result.reshape(shape), pixel_by_pixel(image.reshape(shape), *move))
    np.testing.assert_array_equal(augment.moved(torch.tensor(x), torch.tensor(moves)), found)


def test_no_move_is_the_image_itself():
    x = images(5)
    np.testing.assert_array_equal(augment.moved(x, np.zeros((5, 3), int)), x)


def clients(sizes=(9, 20, 4)):
    made = [Client(f"c{i}", images(n, seed=i), np.arange(n) % 2) for i, n in enumerate(sizes)]
    return [c.at(3, 1) for c in made]


def stacked(members):
    width = max(len(c.w) for c in members)
    pad = lambda a: np.concatenate([a, np.zeros((width - len(a), *a.shape[1:]), a.dtype)])  # noqa: E731
    x, y, w = (np.stack([pad(getattr(c, part)) for c in members]) for part in "xyw")
    return Client("stack", x, y, w, moment=(3, 1), stacked=True, members=tuple(c.name for c in members))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_client_sees_the_same_images_alone_and_stacked(device):
    how = Trainer(
        "mlp", 3 * SIDE**2, [0, 1], lr=0.5, batch_size=4, epochs=2, augment="crop-flip", clip=0.3, device=device
    )
    theta = how.start(np.random.default_rng(0), 2)
    together = stacked(clients())
    r = np.full((*together.w.shape, 2), 0.5)
    ours = how.train(theta, together, how.rows(together), r)
    plain = how._replace(augment="none").train(theta, stacked(clients()), how.rows(together), r)
    assert abs(np.asarray(ours) - np.asarray(plain)).max() > 1e-3
    for found, alone in zip(ours, clients()):
        own = how.train(theta, alone, how.rows(alone), np.full((len(alone.w), 2), 0.5))
        np.testing.assert_allclose(found, own, atol=1e-10)


def test_draws_cover_the_range_and_change_with_the_round():
    client = Client("a", images(2000), np.zeros(2000)).at(0, 1)
    moves = augment.draw(client, minibatches(client, 1, 2000).real)[0]
    assert moves.min(0).tolist() == [-4, -4, 0]
    assert moves.max(0).tolist() == [4, 4, 1]
    later = augment.draw(client.at(0, 2), minibatches(client.at(0, 2), 1, 2000).real)[0]
    assert (moves != later).any(1).mean() > 0.9


def test_gradients_are_clipped_model_by_model():
    g = np.array([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(clipped(g, 1.0), [[0.6, 0.8], [0.3, 0.4]])
    np.testing.assert_allclose(clipped(torch.tensor(g), 1.0), clipped(g, 1.0))
    assert clipped(g, 0.0) is g


def test_rows_that_are_no_images_are_refused():
    data = {"a": (np.zeros((8, 5)), np.arange(8) % 2), "b": (np.ones((8, 5)), np.arange(8) % 2)}
    with pytest.raises(BadParameter, match="not square images"):
        up.baselines.FedAvg(learner="mlp", lr=0.1, augment="crop-flip").fit(data)
    with pytest.raises(BadParameter, match="augment"):
        up.baselines.FedAvg(augment="mirror").fit(data)
