"""The convolutional learners `cnn`, `resnet18`, `resnet18_narrow` and `mobilenet_v2`, as torch modules over flat rows. Nothing is sent.

A row of d numbers is an image of one channel if d is a square, and of three channels if d / 3 is. The two large networks
are built for 32x32 images.
"""

from __future__ import annotations

from torch import Tensor, nn

from unpooled.errors import BadParameter
from unpooled.learners.augment import image_shape


def cnn(inputs: int, classes: int) -> nn.Module:
    """Two convolutions with pooling and two dense layers."""
    channels, side, _ = image_shape(inputs)
    if side < 16:
        raise BadParameter(f"images of {side}x{side} are too small for the cnn, which needs 16x16: use learner='mlp'")
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Unflatten(1, (channels, side, side)),
        nn.Conv2d(channels, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(1),
        nn.Linear(32 * left * left, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def _conv(inputs: int, outputs: int, side: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, side, stride, side // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A block whose output is added to its input, mapped by a 1x1 convolution where shapes differ."""

    def __init__(self, body: nn.Module, short: nn.Module, last: nn.Module):
        super().__init__()
        self.body, self.short, self.last = body, short, last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x) + self.short(x))


def resnet18(inputs: int, classes: int, first: int = 64) -> nn.Module:
    """Eight residual blocks of two convolutions; a 3x3 stem without pooling, for small images."""
    channels, side, _ = image_shape(inputs)
    layers = [nn.Unflatten(1, (channels, side, side)), _conv(channels, first), nn.ReLU()]
    before = first
    for width, stride in ((first * 2 ** (i // 2), 2 if i in (2, 4, 6) else 1) for i in range(8)):
        body = nn.Sequential(_conv(before, width, stride=stride), nn.ReLU(), _conv(width, width))
        short = nn.Identity() if before == width and stride == 1 else _conv(before, width, 1, stride)
        layers.append(Residual(body, short, nn.ReLU()))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(before, classes))


def resnet18_narrow(inputs: int, classes: int) -> nn.Module:
    """`resnet18` with a quarter of the channels: a sixteenth of the parameters, for clients of few images."""
    return resnet18(inputs, classes, first=16)


def mobilenet_v2(inputs: int, classes: int) -> nn.Module:
    """Seventeen inverted bottlenecks; three of the strides for 224x224 images are left out, for 32x32 images."""
    channels, side, _ = image_shape(inputs)
    layers = [nn.Unflatten(1, (channels, side, side)), _conv(channels, 32), nn.ReLU6()]
    before = 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for grow, width, repeats, stride in stages:
        for i in range(repeats):
            layers.append(_bottleneck(before, width, grow, stride if i == 0 else 1))
            before = width
    layers += [_conv(before, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(1280, classes)]
    return nn.Sequential(*layers)


def _bottleneck(inputs: int, outputs: int, grow: int, stride: int) -> nn.Module:
    wide = inputs * grow
    widen = [_conv(inputs, wide, 1), nn.ReLU6()] if grow > 1 else []
    body = nn.Sequential(*widen, _conv(wide, wide, stride=stride, groups=wide), nn.ReLU6(), _conv(wide, outputs, 1))
    return Residual(body, nn.Identity(), nn.Identity()) if stride == 1 and inputs == outputs else body
