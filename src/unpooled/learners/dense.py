"""Fully connected learners, many at once: batched products and explicit gradients in NumPy or torch. Nothing is sent.

`linear` has no hidden layer, `mlp` has some; a linear learner of two classes is `Logistic`. Parameters are flat,
(..., k, p): for each layer its (out, in + 1) matrix, bias last. Activations are (..., k, units, n): rows last, so that
sums over few classes run over long contiguous rows.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace


class Dense:
    """k networks of one architecture per client: ReLU layers of the given widths, then class scores."""

    needs_torch = False
    local: tuple[int, ...] = ()  # indices of parameters that never leave a client: none

    def __init__(self, inputs: int, classes: int, hidden: tuple[int, ...] = ()):
        """Layers from inputs over hidden widths to classes."""
        self.shapes = [(b, a + 1) for a, b in pairwise((inputs, *hidden, classes))]
        self.size = self.trained = sum(a * b for a, b in self.shapes)

    def start(self, rng: np.random.Generator, k: int) -> np.ndarray:
        """(k, p) drawn as torch draws its linear layers: uniform within 1 / sqrt(inputs of the layer)."""
        layers = [rng.uniform(-1, 1, (k, out * wide)) / np.sqrt(wide - 1) for out, wide in self.shapes]
        return np.concatenate(layers, axis=-1)

    def layers(self, theta: Array) -> list[Array]:
        """(..., k, p) -> one view (..., k, out, in + 1) per layer."""
        cuts = np.cumsum([0, *(a * b for a, b in self.shapes)])
        return [theta[..., a:b].reshape(*theta.shape[:-1], *s) for a, b, s in zip(cuts, cuts[1:], self.shapes)]

    def logits(self, theta: Array, x: Array) -> Array:
        """Class scores (..., k, classes, n) of rows x (..., n, d) under theta (..., k, p) or (k, p)."""
        return self._forward(self.layers(theta), x)[-1]

    def gradient(self, theta: Array, x: Array, y: Array, s: Array) -> Array:
        """The gradient (..., k, p) of sum_i s_ik CE_k(x_i, y_i); y (..., b) codes, s (..., b, k), theta (..., k, p)."""
        layers = self.layers(theta)
        *hidden, scores = self._forward(layers, x)
        delta = self._error(scores, y, s)
        parts: list[Array] = []
        for weights, h in zip(layers[:0:-1], hidden[::-1]):
            parts.append(_outer(delta, h))
            delta = (_t(weights[..., :-1]) @ delta) * (h > 0)
        parts.append(_first_outer(delta, x))
        flat = [g.reshape(*g.shape[:-2], -1) for g in reversed(parts)]
        return namespace(x).concatenate(flat, axis=-1) if len(flat) > 1 else flat[0]

    def _forward(self, layers: list[Array], x: Array) -> list[Array]:
        """The hidden activations and, last, the scores, each (..., k, units, n)."""
        first, *rest = layers
        k, out, wide = first.shape[-3:]
        flat = first.reshape(*first.shape[:-3], k * out, wide)  # one product serves all k learners
        h = flat[..., :-1] @ _t(x) + flat[..., -1:]
        active = [h.reshape(*h.shape[:-2], k, out, h.shape[-1])]
        for weights in rest:
            active[-1] = active[-1].clip(min=0)
            active.append(weights[..., :-1] @ active[-1] + weights[..., -1:])
        return active

    @staticmethod
    def _error(scores: Array, y: Array, s: Array) -> Array:
        """The derivative (..., k, classes, b) of the weighted loss with respect to the scores."""
        xp = namespace(scores)
        p = xp.exp(scores - xp.amax(scores, axis=-2, keepdims=True))
        p = p / p.sum(-2)[..., None, :]
        codes = xp.arange(scores.shape[-2], **({"device": y.device} if xp is not np else {}))
        is_class = like(y[..., None, None, :] == codes[:, None], p)
        return (p - is_class) * _t(s)[..., None, :]


class Logistic(Dense):
    """Linear learners of two classes. The softmax of two scores is the sigmoid of their difference: half the work."""

    def __init__(self, inputs: int):
        """A linear learner of two classes."""
        super().__init__(inputs, 2)

    def margins(self, theta: Array, x: Array) -> Array:
        """Score of the second class minus that of the first, (..., k, n)."""
        (weights,) = self.layers(theta)
        w = weights[..., 1, :] - weights[..., 0, :]  # (..., k, d + 1)
        return _rows_last(x @ _t(w[..., :-1])) + w[..., -1:]

    def logits(self, theta: Array, x: Array) -> Array:
        """Class scores (..., k, 2, n), shifted so that the first class has 0."""
        margins = self.margins(theta, x)
        return namespace(x).stack([0 * margins, margins], -2)

    def gradient(self, theta: Array, x: Array, y: Array, s: Array) -> Array:
        """The gradient of the weighted log-loss, of both classes' scores."""
        h = self.margins(theta, x)
        p = 0.5 * namespace(h).tanh(0.5 * h) + 0.5  # unlike exp(-h), tanh never overflows
        g = _outer((p - like(y, h)[..., None, :]) * _t(s), _t(x))
        return namespace(x).concatenate([-g, g], axis=-1)


def _t(a: Array) -> Array:
    """The last two axes swapped."""
    return namespace(a).swapaxes(a, -1, -2)


def _rows_last(a: Array) -> Array:
    """(..., n, k) as (..., k, n), contiguous: BLAS is slow to write a few long rows itself."""
    return _t(a).contiguous() if is_torch(a) else np.ascontiguousarray(_t(a))


def _outer(delta: Array, h: Array) -> Array:
    """(..., k, out, in + 1): the gradient of a layer with inputs h (..., k, in, b)."""
    return namespace(h).concatenate([delta @ _t(h), delta.sum(-1)[..., None]], axis=-1)


def _first_outer(delta: Array, x: Array) -> Array:
    """The same for the first layer, whose inputs x (..., b, d) all k learners share."""
    flat = delta.reshape(*delta.shape[:-3], -1, delta.shape[-1])
    g = namespace(x).concatenate([flat @ x, flat.sum(-1)[..., None]], axis=-1)
    return g.reshape(*delta.shape[:-1], -1)
