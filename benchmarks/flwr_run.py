"""`flwr run` as a user types it: the app of examples/flower_app over a stock SuperLink and three of our nodes, beside the fit in process.

    python benchmarks/flwr_run.py

Flower packs the app, ships it, starts its server's side and streams its words; the model it saves must be the one fitted here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))
from conftest import make_tables, write_tables
from network import NodeProcess, free_port, started, write_node

import unpooled as up

APP = Path(__file__).parents[1] / "examples" / "flower_app"
BIN = Path(sys.executable).parent
ROUNDS = 4


@contextmanager
def stock_superlink(folder: Path, port: int, env: dict[str, str]) -> Iterator[None]:
    command = [BIN / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port]
    command += ["--disable-runtime-dependency-installation"]
    command += ["--control-api-address", "127.0.0.1:0", "--fleet-api-address", "127.0.0.1:0"]
    with open(folder / "superlink.log", "wb") as log:
        process = subprocess.Popen([str(c) for c in command], env=env, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def environment(folder: Path, address: str) -> dict[str, str]:
    """Flower's own home with one connection in it."""
    (folder / "flwr").mkdir()
    (folder / "flwr" / "config.toml").write_text(f'[superlink.here]\naddress = "{address}"\ninsecure = true\n')
    own = {"FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return {**os.environ, **own, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def flwr_run(folder: Path, env: dict[str, str]) -> float:
    """Seconds from the command to its end; the model is in folder/model."""
    begin = time.perf_counter()
    settings = f'out="{folder / "model"}" rounds={ROUNDS}'
    command = [str(BIN / "flwr"), "run", str(APP), "here", "--stream", "--run-config", settings]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"flwr run failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/flwr_run.json"))
    args = parser.parse_args()
    folder, port = Path(tempfile.mkdtemp(prefix="flwr-run-")), free_port()
    tables, address = make_tables(), f"127.0.0.1:{port}"
    sections, env = write_tables(folder, tables), environment(folder, address)
    paths = [write_node(folder / n, n, address, folder / "link", text) for n, text in sections.items()]
    nodes = [NodeProcess(path, "--insecure") for path in paths]
    with stock_superlink(folder, port, env), started(*nodes):
        for node in nodes:
            node.said("connected", 120)
        seconds = flwr_run(folder, env)
    warnings.simplefilter("ignore")  # a few rounds do not converge, and say so
    here, there = up.GaussianMixture(3, max_iter=ROUNDS, random_state=0).fit(tables), up.load(folder / "model")
    apart = max(
        float(np.abs(getattr(here, n) - getattr(there, n)).max()) for n in ("weights_", "means_", "covariances_")
    )
    told = {"seconds": seconds, "rounds": there.n_iter_, "apart": apart, "load": os.getloadavg()[0]}
    print(json.dumps(told))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
