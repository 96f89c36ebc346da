"""The experiments' rounds with all clients in one array are the library's rounds, given the same draws."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.client import generator
from unpooled.layers.compression.quantisers import Identity
from unpooled.models.fedem import client as fedem_client
from unpooled.models.fedem import families
from unpooled.models.fedem.families.common import Params

FOLDER = Path(__file__).parents[2] / "experiments" / "fedem"
CLIENTS, ROWS, ROUNDS, SEED = 12, 32, 25, 3  # a power of two: messages are rounded to float32 times the rows
FAMILY = families.CommonCovariance(2, "known")


class LibraryDraws:
    """What the library draws, client by client."""

    def __init__(self, begin: int):
        self.begin, self.names = begin, [str(c) for c in range(CLIENTS)]

    def cohort(self, round, fraction):
        return generator(SEED, self.begin + round).random(CLIENTS) < fraction

    def batch(self, round, size, rows):
        p = np.full(rows, 1 / rows)
        return np.stack([self._of(round, name).choice(rows, size=size, p=p) for name in self.names])

    def kept(self, round, share, q):
        return np.stack([self._of(round, f"{name}, sent").random(q) < share for name in self.names])

    def _of(self, round, name):
        return generator(SEED, self.begin + round + 1, name)


@pytest.mark.parametrize("epoch", [0, 6], ids=["FedEM", "VR-FedEM"])
def test_the_same_draws_give_the_same_rounds(epoch, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import _together

    monkeypatch.setattr(fedem_client, "FINE", Identity())  # the array version starts its memory at h_c(S_0) itself
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CLIENTS * ROWS, 2)) + 3.0 * (rng.random((CLIENTS * ROWS, 1)) < 0.6)
    shift, unit = x.mean(axis=0), x.std(axis=0)
    start = Params(
        np.array([0.5, 0.5]), np.array([[0.5, 0.0], [2.0, 3.5]]), np.diag([1.0, 2.0]), np.zeros(2), np.eye(2)
    )
    options = {"omega": 1.0, "step_size": 0.1, "alpha": 0.3, "fraction": 0.7, "batch_size": 5, "memory": "field"}
    how = options | {"params_init": start, "tol": 0, "max_iter": ROUNDS, "random_state": SEED}
    model = up.VRFedEM(FAMILY, epoch=epoch, **how) if epoch else up.FedEM(FAMILY, **how)
    fed = up.federate(x, by=np.repeat(np.arange(CLIENTS), ROWS))
    moments = list(model.rounds(fed))

    options["batch"] = options.pop("batch_size")
    del options["memory"]
    setting = _together.Setting(epoch=epoch, **options)
    framed = ((x - shift) / unit).reshape(CLIENTS, ROWS, 2)
    begin = FAMILY.unscale(start, -shift / unit, 1 / unit)
    points = _together.rounds(FAMILY, framed, begin, setting, LibraryDraws(moments[0].round), every=1)
    points = [next(points) for _ in range(ROUNDS)]
    assert_allclose([p.field for p in points], [row["field"] for row in model.history_], rtol=1e-9)
    assert_allclose([p.params.means for p in points[1:]], [m.state.params.means for m in moments[1:-1]], rtol=1e-9)
    assert points[-1].work == sum(row["work"] for row in model.history_)
    assert not any(row["halved"] for row in model.history_)
