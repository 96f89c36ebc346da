"""Feature maps: a name with options (`Spec`), learned parameters (`theta`) and random draws (`omega`). Sends nothing.

Maps work on NumPy and torch arrays, with leading `...` axes of rows and theta: predictions do not need torch, and many
clients can be trained at once. A torch module of the user is one more map, registered by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing import PolynomialFeatures

from unpooled.arrays import Array, Float, namespace
from unpooled.errors import BadParameter, suggest
from unpooled.maths import sum_of_kernels
from unpooled.maths.grids import on_grid
from unpooled.maths.random_features import SPECTRA, exponentials, frequencies, powers, products, waves
from unpooled.tree import message

Leaves = dict[str, Float[Array, "*s"]]
Spec = Mapping[str, Any]  # JSON: it is sent as an option of a question

ADDITIVE_SCALES = np.array([1.0, 0.4, 2.5])  # scales of the frequencies of single columns, used in turn
SHIFTER_INPUTS, SHIFTER_WIDTH = 5, 16  # sizes of the small network from normal draws to frequencies


@message("maths.feature_maps.Kernel")
class Kernel(NamedTuple):
    """The parameters of a feature map."""

    theta: Leaves  # learned
    omega: Leaves  # random draws, the same at all clients


@message("maths.feature_maps.Map")
class Map(NamedTuple):
    """How a feature map is initialised and applied."""

    start: Callable[[Spec, int, np.random.Generator], Kernel]
    apply: Callable[[Spec, Kernel, Array], Array]


def start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """The map's initial parameters, for rows of d columns."""
    return _map(spec).start(spec, d, rng)


def features(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """(..., n, k) features of standardised rows x (..., n, d)."""
    return _map(spec).apply(spec, kernel, x)


def feature_steps(kernel: Kernel) -> np.ndarray | None:  # (k,)
    """The step of each feature that is rounded to a grid; None where features are not rounded."""
    steps = kernel.omega.get("steps", np.zeros(0))
    if not len(steps) or "weights" not in kernel.theta:
        return steps if len(steps) else None
    parts = sum_of_kernels.Parts(**kernel.omega)
    return steps * kernel.theta["weights"][sum_of_kernels.blocks(parts.points.shape[1], parts)]


def _map(spec: Spec) -> Map:
    """The map that a spec names; BadParameter for an unknown name."""
    if spec["map"] not in MAPS:
        raise BadParameter(f"features={spec['map']!r} is not a known feature map: {suggest(spec['map'], MAPS)}")
    return MAPS[spec["map"]]


# ---- monomials: nothing drawn, nothing learned ----


def _monomials(spec: Spec, kernel: Kernel, x: Array) -> np.ndarray:
    """All monomials of x (..., n, d) of degree 1 to `degree`."""
    if spec["degree"] == 1:
        return x
    make = PolynomialFeatures(spec["degree"], include_bias=False)
    flat = make.fit_transform(np.asarray(x).reshape(-1, x.shape[-1]))
    return flat.reshape((*x.shape[:-1], -1))


# ---- random Fourier features of scaled inputs, of a network's outputs, or of both ----


def _ard_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Random Fourier features with a learned length scale per column."""
    return _with_frequencies(spec, d, {"log_scale": np.full(d, 0.5 * np.log(d) + 0.3)}, rng)


def _additive_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Random Fourier features of one column each, the columns in turn, at several scales: an additive model."""
    return Kernel({"log_scale": np.zeros(d)}, {"frequencies": _single_frequencies(spec, d, spec["m"], rng)})


def _single_frequencies(spec: Spec, d: int, m: int, rng: np.random.Generator) -> np.ndarray:  # (d, m)
    """Frequencies (d, m), each of one column alone."""
    turn = np.arange(m)
    drawn = frequencies(spec["spectrum"], m, d, rng) * ADDITIVE_SCALES[turn // d % len(ADDITIVE_SCALES)]
    return np.where(np.arange(d)[:, None] == turn % d, drawn, 0.0)


def _rff_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Random Fourier features with one learned length scale."""
    return _with_frequencies(spec, d, {"log_scale": np.full(1, 0.5 * np.log(d) + 0.3)}, rng)


def _deep_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Random Fourier features of the outputs of a network."""
    return _with_frequencies(spec, spec["latent"], _network_start(spec, d, rng), rng)


def _residual_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Random Fourier features of the scaled inputs and a network's outputs together."""
    net = _network_start(spec, d, rng)
    last = f"w{len(spec['hidden'])}"
    net[last] = 0.1 * net[last]  # starts close to the kernel of the inputs
    return _with_frequencies(spec, d + spec["latent"], net | {"log_scale": np.full(d, 0.5 * np.log(d) + 0.3)}, rng)


def _network_start(spec: Spec, d: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights w0 (in, out), w1, ... and biases b0 (out,), ...: uniform within 1 / sqrt(in)."""
    sizes = [d, *spec["hidden"], spec["latent"]]
    theta = {}
    for i, (a, b) in enumerate(pairwise(sizes)):
        theta[f"w{i}"] = rng.uniform(-1, 1, (a, b)) / np.sqrt(a)
        theta[f"b{i}"] = rng.uniform(-1, 1, b) / np.sqrt(a)
    return theta


def _with_frequencies(spec: Spec, d: int, theta: dict, rng: np.random.Generator) -> Kernel:
    """The kernel with its frequencies.

    They are drawn and fixed, drawn and learned ("free"), or made from draws by a small network ("shifted").
    """
    m = spec["m"]
    mode = spec["frequencies"]
    if mode == "shifted":
        inputs, width = SHIFTER_INPUTS, SHIFTER_WIDTH
        theta["h0"] = rng.standard_normal((inputs, width)) / np.sqrt(inputs)
        theta["h1"] = rng.standard_normal((width, d)) / np.sqrt(width)
        theta["h_straight"] = rng.standard_normal((inputs, d)) / np.sqrt(inputs)
        return Kernel(theta, {"normal": rng.standard_normal((m, inputs))})
    drawn = frequencies(spec["spectrum"], m, d, rng)
    if mode == "free":
        return Kernel(theta | {"frequencies": drawn}, {})
    return Kernel(theta, {"frequencies": drawn})


def _frequencies(kernel: Kernel) -> Array:  # (..., d, m)
    """The frequencies (..., d, m) of a kernel, however they are given."""
    theta, omega = kernel
    if "normal" not in omega:
        return omega["frequencies"] if "frequencies" in omega else theta["frequencies"]
    hidden = namespace(theta["h0"]).tanh(omega["normal"] @ theta["h0"])
    return (hidden @ theta["h1"] + omega["normal"] @ theta["h_straight"]).swapaxes(-1, -2)


def _scaled(theta: Leaves, x: Array) -> Array:
    """x (..., n, d) divided by the learned length scales."""
    return x * namespace(x).exp(-theta["log_scale"])[..., None, :]


def _network(spec: Spec, theta: Leaves, x: Array) -> Array:  # (..., n, latent)
    """Outputs (..., n, latent) of the network at rows x (..., n, d)."""
    act = ACTIVATIONS[spec["activation"]]
    depth = len(spec["hidden"])
    for i in range(depth + 1):
        x = x @ theta[f"w{i}"] + theta[f"b{i}"][..., None, :]
        x = act(x) if i < depth else x
    return x


def _relu(x: Array) -> Array:
    return x * (x > 0)


def _silu(x: Array) -> Array:
    return x * (0.5 + 0.5 * namespace(x).tanh(0.5 * x))


def _tanh(x: Array) -> Array:
    return namespace(x).tanh(x)


ACTIVATIONS = {"tanh": _tanh, "silu": _silu, "relu": _relu}


def _inputs(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """Random Fourier features (..., n, 2 m) of scaled inputs."""
    return on_grid(waves(_scaled(kernel.theta, x) @ _frequencies(kernel)), kernel.omega.get("steps"))


def _deep(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """Random Fourier features (..., n, 2 m) of the network's outputs."""
    return waves(_network(spec, kernel.theta, x) @ _frequencies(kernel))


def _residual(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """Random Fourier features (..., n, 2 m) of scaled inputs and the network's outputs."""
    both = namespace(x).concatenate([_scaled(kernel.theta, x), _network(spec, kernel.theta, x)], -1)
    return waves(both @ _frequencies(kernel))


def _plain_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """A network without random features."""
    return Kernel(_network_start(spec, d, rng), {})


def _latent(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """The network's outputs (..., n, latent)."""
    return _network(spec, kernel.theta, x)


def _only_scaled(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """The scaled inputs (..., n, d)."""
    return _scaled(kernel.theta, x)


def _hidden(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """The network's outputs after the activation, (..., n, latent)."""
    return ACTIVATIONS[spec["activation"]](_network(spec, kernel.theta, x))


# ---- replicated inputs: each frequency has its own noisy copy of the row ----


def _replicated_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """As the deep map, with noise (m, d) for the copy of the row that each frequency sees."""
    theta, omega = _deep_start(spec, d, rng)
    return Kernel(theta, omega | {"noise": rng.standard_normal((spec["m"], d))})


def _replicated(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """Random Fourier features (..., n, 2 m), frequency j applied to the network's output for copy j of the row."""
    copies = x[..., :, None, :] * (1 + kernel.omega["noise"])  # (..., n, m, d)
    flat = copies.reshape((*x.shape[:-2], -1, x.shape[-1]))
    m = kernel.omega["noise"].shape[0]
    latent = _network(spec, kernel.theta, flat)
    latent = latent.reshape((*x.shape[:-1], m, latent.shape[-1]))
    across = _frequencies(kernel).swapaxes(-1, -2)[..., None, :, :]  # (..., 1, m, latent)
    return waves((latent * across).sum(-1))


# ---- non-stationary kernels ----


def _exponential(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """Features of the exponential kernel, (..., n, m)."""
    return exponentials(_scaled(kernel.theta, x) @ _frequencies(kernel))


def _polynomial_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Random monomials of the polynomial kernel, with a learned length scale per column."""
    scale = {"log_scale": np.full(d, 0.5 * np.log(d))}
    return Kernel(scale, {"powers": powers(spec["degree"], spec["m"], d, rng)})


def _polynomial(spec: Spec, kernel: Kernel, x: Array) -> Array:
    """Features of the polynomial kernel, (..., n, m)."""
    return products(_scaled(kernel.theta, x), kernel.omega["powers"], spec["constant"])


# ---- a sum of kernels: linear, additive, and of all columns ----


def _sum_start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
    """Without knots, and with random points: a server that knows the columns places both (`sum_of_kernels.Parts`)."""
    theta = {"log_scale": np.full(d, 0.5 * np.log(d) + 0.3), "weights": np.ones(sum_of_kernels.N_BLOCKS)}
    none = np.zeros(0)
    parts = sum_of_kernels.Parts(none, none, none, rng.standard_normal((spec["m"], d)), np.zeros((0, d)))
    return Kernel(theta, parts._asdict())


def _sum(spec: Spec, kernel: Kernel, x: Array) -> np.ndarray:
    """Features (..., n, k) of the four kernels, side by side; NumPy only."""
    parts = sum_of_kernels.Parts(**kernel.omega)
    return sum_of_kernels.features(kernel.theta["log_scale"], kernel.theta["weights"], parts, x)


MAPS: dict[str, Map] = {
    "monomials": Map(lambda spec, d, rng: Kernel({}, {}), _monomials),
    "rff": Map(_rff_start, _inputs),
    "ard": Map(_ard_start, _inputs),
    "additive": Map(_additive_start, _inputs),
    "sum of kernels": Map(_sum_start, _sum),
    "network": Map(_plain_start, _hidden),
    "latent": Map(_plain_start, _latent),
    "scaled": Map(lambda spec, d, rng: Kernel({"log_scale": np.full(d, 0.5 * np.log(d))}, {}), _only_scaled),
    "deep": Map(_deep_start, _deep),
    "residual": Map(_residual_start, _residual),
    "replicated": Map(_replicated_start, _replicated),
    "exponential": Map(_ard_start, _exponential),
    "polynomial": Map(_polynomial_start, _polynomial),
}
FREQUENCIES = ("fixed", "free", "shifted")
__all__ = ["ACTIVATIONS", "FREQUENCIES", "MAPS", "SPECTRA", "Kernel", "Map", "Spec", "features", "start"]
