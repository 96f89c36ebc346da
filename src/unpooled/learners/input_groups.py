"""Groups of clients whose inputs have the same means, for models of clients without labels. SUMs of means only.

`learners.input_axes` (one SUM per step) finds principal axes of all rows by subspace iteration. `learners.input_moments` (one SUM)
gives the covariance within clients, which makes the noise of a client's mean the same in every direction. `learners.group_moments`
(one SUM per step) then has, for each group, the first and second moments of its clients' means: a group whose clients lie further
apart than the noise of their means is divided along the direction in which they vary most (Boley 1998), and clients move to the
nearest centre. A client's group follows from what it is sent and never leaves it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.tree import message

AXES = 20  # principal axes that are looked at
AXES_STEPS = 3  # of subspace iteration
MOST_GROUPS = 12
APART = 4.0  # squared distance of means, in units of their sampling variance, above which a group is divided
CENTRE_STEPS = 2  # steps of k-means after each division


@message("learners.InputAxes")
class InputAxes(NamedTuple):
    """Directions in the space of the columns."""

    mean: Float[Array, "d"]
    axes: Float[Array, "d a"]


@message("learners.AxesProduct")
class AxesProduct(NamedTuple):
    """The covariance times some axes, for principal axes of wide inputs."""

    xx: Float[Array, "d a"]  # sum of (x - mean) (x - mean)' axes


@message("learners.InputMoments")
class InputMoments(NamedTuple):
    """Second moments of rows, and of clients' means, on the axes."""

    n: Float[Array, "", ">=0 rows"]
    zz: Float[Array, "t"]  # packed sum of z z' over rows
    between: Float[Array, "t"]  # packed sum over clients of rows x mean mean'


@message("learners.GroupCentres")
class GroupCentres(NamedTuple):
    """Where the groups are, in units of the spread of a client's rows."""

    space: InputAxes
    centres: Float[Array, "g a"]


@message("learners.GroupMoments")
class GroupMoments(NamedTuple):
    """Of the clients nearest to each centre."""

    clients: Float[Array, "g", ">=0"]
    n: Float[Array, "g", ">=0 rows"]
    z: Float[Array, "g a"]  # sum of rows x mean
    zz: Float[Array, "g t"]  # packed sum of rows x (mean - centre)(mean - centre)'


# ---- questions ----


@client("learners.input_axes", SUM, adds=True)
def input_axes(down: InputAxes, client: Client) -> AxesProduct:
    """Second moments of the columns times the axes."""
    x = to_numpy(client.x)
    w = to_numpy(client.w)
    centred = (x - down.mean.astype(x.dtype)) * np.sqrt(w)[..., None].astype(x.dtype)
    product = np.swapaxes(centred, -1, -2) @ (centred @ to_numpy(down.axes).astype(x.dtype))
    return AxesProduct(product.astype(np.float64))


@client("learners.input_moments", SUM, batched=False)
def input_moments(down: InputAxes, client: Client) -> InputMoments:
    """Second moments along the axes: of rows, and of the client's mean."""
    z = along(down, client.x)
    w = to_numpy(client.w).astype(np.float64)
    n = w.sum()
    mean = (w @ z) / max(n, 1e-300)
    return InputMoments(n, pack_triangle((z * w[:, None]).T @ z), pack_triangle(n * np.outer(mean, mean)))


@client("learners.group_moments", SUM, batched=False)
def group_moments(down: GroupCentres, client: Client) -> GroupMoments:
    """Rows and mean of the client at the nearest centre, zeros at the others; the client keeps the number of its group."""
    mean, n = client_mean(down.space, client)
    apart = mean - to_numpy(down.centres)  # (g, a)
    nearest = int((apart**2).sum(1).argmin())
    client.state["input_group"] = np.asarray(nearest)
    hit = (np.arange(len(apart)) == nearest).astype(np.float64)
    packed = pack_triangle(n * np.outer(apart[nearest], apart[nearest]))
    return GroupMoments(hit, hit * n, np.outer(hit, n * mean), np.outer(hit, packed))


def along(space: InputAxes, x: Array) -> np.ndarray:  # (n, a)
    """Rows (n, d) along the axes."""
    x = to_numpy(x)
    return ((x - space.mean.astype(x.dtype)) @ space.axes.astype(x.dtype)).astype(np.float64)


def client_mean(space: InputAxes, client: Client) -> tuple[np.ndarray, float]:
    """(mean of the client's rows along the axes (a,), its rows)."""
    axes, mean, n = client.memo.get("input_mean", (None, None, 0.0))
    if axes is None or not np.array_equal(axes, space.axes):
        w = to_numpy(client.w).astype(np.float64)
        n = float(w.sum())
        mean = (w @ along(space, client.x)) / max(n, 1e-300)
        client.memo["input_mean"] = to_numpy(space.axes), mean, n
    return mean, n


# ---- the server ----


@message("learners.InputGroups")
class InputGroups(NamedTuple):
    """What tells groups apart, for a new client."""

    mean: np.ndarray  # (d,)
    axes: np.ndarray  # (d, a) in units of the spread of a client's rows
    centres: np.ndarray  # (g, a)
    spread: np.ndarray  # () variance of the means of a group's clients along an axis, beyond their sampling variance
    rows: np.ndarray  # (g,)

    def probabilities(self, x: np.ndarray) -> np.ndarray:  # (g,)
        """The probability of each group, from the mean of a new client's rows x (n, d)."""
        mean = along(InputAxes(self.mean, self.axes), x).mean(0)
        variance = self.spread + APART / len(x) + APART / np.maximum(self.rows, 1.0)
        squared = ((mean - self.centres) ** 2).sum(1)
        log_p = -0.5 * squared / variance - 0.5 * len(mean) * np.log(variance) + np.log(self.rows / self.rows.sum())
        p = np.exp(log_p - log_p.max())
        return p / p.sum()


def find_groups(fed: Federation, mean: np.ndarray, rng: np.random.Generator) -> InputGroups:
    """Groups of clients whose inputs have the same means; every client keeps the number of its group, `input_group`."""
    space = fit_space(fed, mean, rng)
    centres = np.zeros((1, space.axes.shape[1]))
    total = fed.sum(group_moments, GroupCentres(space, centres))
    while len(centres) < min(MOST_GROUPS, len(fed.names)):
        divided = divide(centres, total)
        if len(divided) == len(centres):
            break
        centres = divided
        for _ in range(CENTRE_STEPS):
            total = fed.sum(group_moments, GroupCentres(space, centres))
            centres = moved(centres, total)
        live = to_numpy(total.n) > 0
        centres = centres[live]
        total = fed.sum(group_moments, GroupCentres(space, centres))
    scatter = scatters(centres, total)
    clients = to_numpy(total.clients)
    rows = to_numpy(total.n)
    degrees = max(float((clients - 1).clip(min=0).sum()) * centres.shape[1], 1.0)
    excess = max(float(scatter.sum()) / degrees - 1.0, 0.0)  # of the variance of means, in units of 1 / rows
    spread = excess * len(fed.names) / max(float(rows.sum()), 1.0)
    return InputGroups(to_numpy(space.mean), to_numpy(space.axes), centres, np.asarray(spread), rows)


def fit_space(fed: Federation, mean: np.ndarray, rng: np.random.Generator) -> InputAxes:
    """Principal axes of all rows, scaled so that a client's rows have unit variance in every direction."""
    axes = np.linalg.qr(rng.normal(size=(len(mean), min(AXES, len(mean)))))[0]
    for _ in range(AXES_STEPS):
        product = to_numpy(fed.sum(input_axes, InputAxes(mean, axes)).xx)
        axes = np.linalg.qr(product)[0]
    moments = fed.sum(input_moments, InputAxes(mean, axes))
    within = unpack_triangle(to_numpy(moments.zz) - to_numpy(moments.between)) / max(float(moments.n), 1.0)
    values, vectors = np.linalg.eigh(within)
    floor = 1e-3 * max(float(values.mean()), 1e-12)
    return InputAxes(mean, (axes @ vectors) / np.sqrt(np.maximum(values, floor)))


def scatters(centres: np.ndarray, total: GroupMoments) -> np.ndarray:  # (g,)
    """Squared distances of the clients' means from the mean of their group, times rows."""
    n = to_numpy(total.n)
    shift = to_numpy(total.z) / np.maximum(n, 1e-300)[:, None] - centres
    squares = np.array([np.trace(unpack_triangle(packed)) for packed in to_numpy(total.zz)])
    return np.maximum(squares - n * (shift**2).sum(1) * (n > 0), 0.0)


def moved(centres: np.ndarray, total: GroupMoments) -> np.ndarray:
    """Centres at the means of their clients; one without clients stays."""
    n = to_numpy(total.n)[:, None]
    return np.where(n > 0, to_numpy(total.z) / np.maximum(n, 1e-300), centres)


def divide(centres: np.ndarray, total: GroupMoments) -> np.ndarray:
    """Centres after every group whose clients lie too far apart was divided, those furthest apart first."""
    clients = to_numpy(total.clients)
    n = to_numpy(total.n)
    at = moved(centres, total)
    ratio = scatters(centres, total) / np.maximum((clients - 1) * centres.shape[1], 1.0)
    wide = [g for g in np.argsort(-ratio) if clients[g] > 1 and ratio[g] > APART]
    out = list(at)
    for g in wide[: MOST_GROUPS - len(out)]:
        shift = at[g] - centres[g]
        cov = unpack_triangle(to_numpy(total.zz)[g]) / n[g] - np.outer(shift, shift)
        values, vectors = np.linalg.eigh(cov)
        step = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
        out[g] = at[g] + step
        out.append(at[g] - step)
    return np.array(out)
