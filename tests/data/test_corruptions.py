"""Corruptions keep the shape and range, grow with severity, and do what their names say."""

from itertools import pairwise

import numpy as np
import pytest

from unpooled.datasets import corruptions, shared
from unpooled.datasets.corruptions import corrupt
from unpooled.errors import BadParameter


def images():
    """Bright squares and bars on dark ground, (8, 28, 28)."""
    rng = np.random.default_rng(0)
    x = np.zeros((8, 28, 28))
    for image in x:
        i, j = rng.integers(4, 14, size=2)
        image[i : i + 9, j : j + 6] = rng.uniform(0.5, 1.0)
    return x


def rows():
    return np.random.default_rng(1).normal(size=(500, 4)) * [1.0, 5.0, 0.1, 20.0] + [0, 3, -1, 100]


@pytest.mark.parametrize("name", corruptions.IMAGES)
def test_images_are_damaged_more_the_more_severe(name):
    x = images()
    damaged = [corrupt(x, name, s, np.random.default_rng(5)) for s in range(1, 6)]
    assert all(d.shape == x.shape and d.min() >= -1e-9 and d.max() <= 1 + 1e-9 for d in damaged)
    apart = [np.abs(d - x).mean() for d in damaged]
    assert apart[0] > 0
    assert all(b > a for a, b in pairwise(apart)), apart


@pytest.mark.parametrize("name", corruptions.TABLES)
def test_tables_are_damaged_more_the_more_severe(name):
    x = rows()
    apart = [(np.abs(corrupt(x, name, s, np.random.default_rng(5)) - x) / x.std(0)).mean() for s in range(1, 6)]
    assert apart[0] > 0
    assert all(b > a for a, b in pairwise(apart)), apart


def test_brightness_contrast_and_blur_are_what_they_say():
    x, rng = images(), np.random.default_rng(0)
    np.testing.assert_allclose(corrupt(x, "brightness", 2, rng), np.minimum(x + 0.2, 1))
    low = corrupt(x, "contrast", 5, rng)
    np.testing.assert_allclose(low.mean((1, 2)), x.mean((1, 2)))
    np.testing.assert_allclose(low.std((1, 2)), 0.15 * x.std((1, 2)))
    smeared = corrupt(x, "motion_blur", 2, rng)  # three neighbours in a row, squares far from the edge
    wanted = (x + np.roll(x, 1, 2) + np.roll(x, -1, 2)) / 3
    np.testing.assert_allclose(smeared[:, :, 2:-2], wanted[:, :, 2:-2], atol=1e-12)


def test_noise_has_the_standard_deviation_of_its_severity():
    grey = np.full((50, 28, 28), 0.5)
    noisy = corrupt(grey, "gaussian_noise", 2, np.random.default_rng(0))
    assert (noisy - 0.5).std() == pytest.approx(0.12, rel=0.02)
    hit = corrupt(grey, "impulse_noise", 3, np.random.default_rng(0)) != 0.5
    assert hit.mean() == pytest.approx(0.09, rel=0.05)


def test_pixelate_leaves_blocks_of_one_value():
    coarse = corrupt(images(), "pixelate", 3, np.random.default_rng(0))  # 14 x 14 blocks of 2 x 2
    np.testing.assert_array_equal(coarse[:, ::2, ::2], coarse[:, 1::2, 1::2])


def test_what_cannot_be_done_is_one_sentence():
    with pytest.raises(BadParameter, match="no corruption 'blurr' of images: did you mean 'blur'"):
        corrupt(images(), "blurr", 1, np.random.default_rng(0))
    with pytest.raises(BadParameter, match="no corruption 'blur' of tables"):
        corrupt(rows(), "blur", 1, np.random.default_rng(0))
    with pytest.raises(BadParameter, match="severity=6"):
        corrupt(images(), "blur", 6, np.random.default_rng(0))


@pytest.mark.skipif(shared.folder() is None, reason="needs the shared data: set UNPOOLED_DATA")
def test_real_images_stay_images():
    x = shared.fashion_mnist().x_test[:20] / 255
    for name in corruptions.IMAGES:
        damaged = corrupt(x, name, 5, np.random.default_rng(0))
        assert 0.1 < np.corrcoef(damaged.ravel(), x.ravel())[0, 1] < 1, name


@pytest.mark.parametrize("name", corruptions.IMAGES)
def test_colour_images_are_corrupted_in_every_channel(name):
    grey = images()
    x = np.stack([grey, grey, grey], axis=-1)
    damaged = corrupt(x, name, 3, np.random.default_rng(5))
    assert damaged.shape == x.shape
    assert (np.abs(damaged - x).mean((0, 1, 2)) > 0).all()
    alike = np.array_equal(damaged[..., 0], damaged[..., 1])
    assert alike == (name not in ("gaussian_noise", "shot_noise", "impulse_noise")), (
        "geometry is the same, noise is not"
    )
