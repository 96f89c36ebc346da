"""The network tutorial, followed to the letter: its own commands and files, in a new folder, with processes for terminals.

    python benchmarks/tutorial_network.py

Everything up to "Other tables" comes from docs/tutorial-network.md: a step that does not work as written fails here. Installation is left
out, and the address 127.0.0.1:9092 is changed to a free one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import unpooled as up
from unpooled.data import builtin

PAGE = Path(__file__).parents[1] / "docs" / "tutorial-network.md"
WAITS = ("unpooled serve --link", "unpooled node start")  # commands that a reader leaves in their terminal
NOT_HERE = ("python3 -m venv", "~/unpooled-env", "export ", "mkdir ~", "cd ~")  # installation, and the folder
SITES = {"basel": "ashford", "geneva": "dunmore", "zurich": "eastgate"}


class Reader:
    """Someone who types what the page says."""

    def __init__(self, folder: Path, changes: dict[str, str], stack: ExitStack):
        self.folder, self.changes, self.stack, self.count = folder, changes, stack, 0
        self.marks: list[str] = []  # fingerprints that the sites sent, as lines of a study
        own = {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, **own, "PATH": path}

    def adapted(self, text: str) -> str:
        for old, new in self.changes.items():
            text = text.replace(old, new)
        return text

    def type(self, block: str) -> None:
        for line in self.adapted(block).strip().splitlines():
            if line.startswith(NOT_HERE):
                continue
            print(f"$ {line}", flush=True)
            if line.startswith(WAITS):
                self.leave(line)
            elif line.startswith("unpooled node fingerprint"):
                done = subprocess.run(
                    line, shell=True, cwd=self.folder, env=self.env, check=True, capture_output=True, text=True
                )
                self.marks.append(done.stdout.strip())
            else:
                subprocess.run(line, shell=True, cwd=self.folder, env=self.env, check=True)

    def leave(self, line: str) -> None:
        """A terminal of its own, closed with Ctrl-C at the end."""
        self.count += 1
        log = open(self.folder / f"terminal-{self.count}.log", "wb")  # noqa: SIM115  # closed by the child's end
        process = subprocess.Popen(line.split(), cwd=self.folder, env=self.env, stdout=log, stderr=log)
        log.close()
        self.stack.callback(closed, process, line)
        end = time.monotonic() + 120
        while not Path(log.name).read_text() and time.monotonic() < end:  # both commands say when they are there
            time.sleep(0.2)

    def run_python(self, block: str) -> None:
        subprocess.run([sys.executable, "-c", self.adapted(block)], cwd=self.folder, env=self.env, check=True)


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


def closed(process: subprocess.Popen, line: str) -> None:
    process.send_signal(signal.SIGINT)
    code = process.wait(30)
    print(f"{line}: Ctrl-C ends it with {code}")
    assert code == 0, line


def blocks(until: str) -> list[tuple[str, str]]:
    """(language, text) of the page's blocks, up to a heading."""
    text = PAGE.read_text()
    return re.findall(r"```(sh|python|toml)\n(.*?)```", text[: text.index(until)], re.S)


def follow(reader: Reader) -> None:
    for language, block in blocks("## Other tables"):
        if language == "sh":
            reader.type(block)
        elif language == "python":
            reader.run_python(block)
        else:
            lines = [line for line in block.splitlines() if "SHA256:..." not in line]
            lines[lines.index("[participants]") + 1 : lines.index("[participants]") + 1] = reader.marks
            (reader.folder / "study.toml").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("out/tutorial_network.json"))
    args = parser.parse_args()
    folder, begin = args.folder or Path(tempfile.mkdtemp(prefix="tutorial-")), time.perf_counter()
    changes = {"127.0.0.1:9092": f"127.0.0.1:{free_port()}"}
    with ExitStack() as stack:
        follow(Reader(folder, changes, stack))
    hospitals, there = builtin.load("hospitals"), up.load(folder / "run")
    rows = {site: hospitals.clients[name] for site, name in SITES.items()}
    here = up.GaussianMixture(n_components=3, random_state=0).fit(rows)
    apart = float(np.abs(here.means_ / there.means_ - 1).max())
    told = {"seconds": time.perf_counter() - begin, "rounds": there.n_iter_, "apart": apart}
    print(json.dumps(told))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
