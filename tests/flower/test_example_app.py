"""The app of examples/flower_app: Flower can pack it, and its two sides understand each other.

`benchmarks/flwr_run.py` starts it with `flwr run` itself, over a SuperLink.
"""

import io
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from flower_grid import MessageGrid
from flwr.app import Context, RecordDict

import unpooled as up

APP = Path(__file__).parents[2] / "examples" / "flower_app"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(APP))
    from mixture import client, server

    yield client, server
    for name in [n for n in sys.modules if n.partition(".")[0] == "mixture"]:
        del sys.modules[name]


def test_flower_packs_it():
    from flwr.cli.build import build_fab_from_disk

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own use of what its libraries have deprecated
        packed = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(APP))).namelist()
    assert {"mixture/client.py", "mixture/server.py", "pyproject.toml"} <= set(packed)


def test_its_server_fits_over_its_clients(example, tmp_path, capsys):
    client, server = example
    grid = MessageGrid([client.app] * 3)
    for number, context in enumerate(grid.contexts.values()):
        context.node_config = {"partition-id": number, "num-partitions": 3}
    wanted = {"components": 3, "min-clients": 3, "rounds": 50, "out": str(tmp_path / "model")}
    server.app(grid, Context(1, 1, {}, RecordDict(), wanted))
    rows = {c.name: c.x for c in map(client.find, grid.contexts.values())}
    here = up.GaussianMixture(3, max_iter=50, random_state=0).fit(rows)
    np.testing.assert_allclose(up.load(tmp_path / "model").means_, here.means_, rtol=1e-12)
    assert "log-likelihood" in capsys.readouterr().out
