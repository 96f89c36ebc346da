"""Chaos: nodes and coordinator are killed at random, restarted at once, and the final model must have the bits of a run left in peace.

    python benchmarks/chaos.py --runs 20 --minutes 10

Each run is `unpooled run FILE.toml --on LINK`, resumed by `unpooled resume` after each kill; every node is `unpooled node start`.
Checked after each run: the model's bytes, one line in each node's ledger for every exchange of the run (for a masked study: its
certificate), no process left over.
A run's line is written when it ends; started again with the same --out, runs that stand there are not run again.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))
from conftest import make_tables, write_tables
from network import NodeProcess, free_port, save_rows, started, write_node

import unpooled
from unpooled import load
from unpooled.certificate import verify as verify_run
from unpooled.flower.server import serving
from unpooled.node.config import read, table_source
from unpooled.node.ledger import entries, verify
from unpooled.node.secrets import read_identity
from unpooled.secure import fingerprint, identity_bytes

MODELS = {
    "em": 'name = "GaussianMixture"\nn_components = 8\nmax_iter = 240\ntol = 1e-300\nrandom_state = {seed}\n',
    "vr-fedem": 'name = "GaussianMixture"\nsolver = "vr-fedem"\nn_components = 8\nmax_iter = 80\ntol = 0\nrandom_state = {seed}\n',
}


MASKED = "masked"  # a study that nodes approved, follow along and mask
STUDY = """[study]
title = "Chaos {seed}"
[participants]
{participants}
[model]
name = "GaussianMixture"
n_components = 4
init_params = "random"
max_iter = 60
tol = 1e-300
random_state = {seed}
[data]
columns = {columns}
[layers]
secure = true
[federation]
wait = 600
"""


def write_study(path: Path, seed: int, folder: Path, names: list[str]) -> None:
    """A masked study, approved by every node."""
    marks = {n: fingerprint(identity_bytes(read_identity(folder / n / "node.key"))) for n in names}
    participants = "\n".join(f'{n} = "{mark}"' for n, mark in marks.items())
    source = table_source(read(folder / names[0] / "node.toml"))
    path.write_text(STUDY.format(seed=seed, participants=participants, columns=json.dumps(source.columns)))
    for name in names:
        approve = ["node", "approve", str(path), "--node", str(folder / name / "node.toml")]
        subprocess.run([sys.executable, "-m", "unpooled.cli", *approve], check=True, stdout=subprocess.DEVNULL)


class Coordinator:
    """`unpooled run`, then `unpooled resume` until it ends well."""

    def __init__(self, config: Path, link: Path, out: Path):
        self.start_command = ["run", str(config), "--on", str(link), "--out", str(out), "--json"]
        self.out, self.process = out, None

    def start(self) -> None:
        command = ["resume", str(self.out), "--json"] if (self.out / "config.toml").exists() else self.start_command
        log = open(self.out.with_suffix(".log"), "ab")  # noqa: SIM115  # closed by the child's end
        self.process = subprocess.Popen([sys.executable, "-m", "unpooled.cli", *command], stdout=log, stderr=log)
        log.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def done(self) -> bool:
        """Whether the run has ended well; one that ended otherwise, or was killed, is started again."""
        if self.process.poll() is None:
            return False
        if self.process.returncode == 0:
            return True
        self.start()
        return False


def finish(
    coordinator: Coordinator, nodes: dict[str, NodeProcess], every: float, rng: random.Random, limit: float
) -> dict:
    """Run to the end, killing something every so many seconds on average; what was killed, and how long it took."""
    kills, start = {"node": 0, "coordinator": 0}, time.monotonic()
    coordinator.start()
    next_kill = start + rng.expovariate(1 / every) if every else float("inf")
    while not coordinator.done():
        now = time.monotonic()
        if now - start > limit:
            coordinator.kill()
            return {**kills, "seconds": now - start, "ended": False}
        if now >= next_kill:
            victim = rng.choice([coordinator, *nodes.values()])
            if victim.process.poll() is None:
                victim.kill()
                victim.start()
                kills["coordinator" if victim is coordinator else "node"] += 1
            next_kill = now + rng.expovariate(1 / every)
        time.sleep(0.05)
    return {**kills, "seconds": time.monotonic() - start, "ended": True}


def model_bits(folder: Path) -> bytes:
    model = load(folder)
    return b"".join(np.asarray(getattr(model, n)).tobytes() for n in ("weights_", "means_", "covariances_"))


def ledger_faults(folder: Path, out: Path, names: list[str]) -> int:
    """Lines missing or double in the nodes' ledgers, against the coordinator's own record of the run."""
    asked = sorted(
        (e["round"], e["question"]) for e in map(json.loads, (out / "ledger.jsonl").read_text().splitlines())
    )
    faults = 0
    for name in names:
        verify(folder / name / "ledger.jsonl")
        rows = list(entries(folder / name / "ledger.jsonl"))
        lines = sorted((e["round"], e["question"]) for e in rows if e["run"] == rows[-1]["run"])
        faults += len(set(asked) ^ set(lines)) + len(lines) - len(set(lines))
    return faults


def one_run(number: int, kind: str, every: float, link: Path, folder: Path, nodes: dict, limit: float) -> dict:
    """A run in peace, the same run in chaos, and what the second has that the first has not."""
    config = folder / f"{kind}.toml"
    if kind == MASKED:
        write_study(config, number, folder, sorted(nodes))
    else:
        config.write_text(f"[model]\n{MODELS[kind].format(seed=number)}[federation]\nmin_clients = 3\nwait = 600\n")
    peace, chaos = (Coordinator(config, link, folder / f"{number}-{kind}-{how}") for how in ("peace", "chaos"))
    finish(peace, nodes, 0, random.Random(), limit)
    told = finish(chaos, nodes, every, random.Random(number), limit)
    same = told["ended"] and model_bits(peace.out) == model_bits(chaos.out)
    if kind == MASKED:
        findings = verify_run(chaos.out, [folder / n / "ledger.jsonl" for n in nodes]) if told["ended"] else []
        faults = sum(bool(f.wrong) for f in findings) if told["ended"] else None
    else:
        faults = ledger_faults(folder, chaos.out, list(nodes)) if told["ended"] else None
    left = len(processes(folder)) - len(nodes) - 1  # all nodes and the SuperLink are there
    return {"run": number, "model": kind, **told, "same_bits": same, "ledger_faults": faults, "processes_left": left}


def processes(folder: Path) -> list[psutil.Process]:
    """Every process that works in the folder, whoever started it."""
    found = [p for p in psutil.process_iter(["cmdline", "status"]) if p.info["status"] != psutil.STATUS_ZOMBIE]
    return [p for p in found if any(str(folder) in word for word in p.info["cmdline"] or ())]


def source() -> str:
    """Digest of the package that runs: rows of two versions are not to be mixed."""
    files = sorted(Path(unpooled.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


def done(path: Path) -> list[dict]:
    """Rows of an earlier start with the same source."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file) if row["source"] == source()]


def told(row: dict) -> str:
    """A run in one line."""
    kills = f"{row['node']:>3} nodes and {row['coordinator']:>2} coordinators killed in {float(row['seconds']):5.0f} s"
    ended = "OTHER BITS" if str(row["ended"]) == "True" else "did not end in time"
    bits = "same bits" if str(row["same_bits"]) == "True" else ended
    faults = f"{row['ledger_faults']} ledger faults, {row['processes_left']} processes left"
    return f"{row['run']:>3} {row['model']:9} {kills}: {bits}, {faults} (source {row['source']})"


def summary(rows: list[dict]) -> dict:
    total = lambda key: sum(int(float(r[key] or 0)) for r in rows)  # noqa: E731
    same = sum(str(r["same_bits"]) == "True" for r in rows)
    left = max([int(r["processes_left"]) for r in rows], default=0)
    kills = total("node") + total("coordinator")
    return {"runs": len(rows), "same_bits": same, "kills": kills, "of_the_coordinator": total("coordinator"),
            "ledger_faults": total("ledger_faults"), "processes_left": left}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number, and seed, of the first run")
    parser.add_argument("--minutes", type=float, default=10, help="start no new run after so many minutes")
    parser.add_argument("--every", type=float, default=5, help="seconds between kills, on average")
    parser.add_argument("--out", type=Path, default=Path("out/chaos.csv"))
    parser.add_argument("--kinds", default=",".join((*MODELS, MASKED)))
    args = parser.parse_args()
    rows, end, kinds = done(args.out), time.monotonic() + 60 * args.minutes, args.kinds.split(",")
    wanted = [n for n in range(args.first, args.first + args.runs) if str(n) not in {r["run"] for r in rows}]
    folder, address = Path(tempfile.mkdtemp(prefix="chaos-")), f"127.0.0.1:{free_port()}"
    sections, link = write_tables(folder, make_tables()), folder / "link"
    nodes = {n: NodeProcess(write_node(folder / n, n, address, link, text)) for n, text in sections.items()}
    with serving(link, address), started(*nodes.values()):
        for number in wanted:
            if time.monotonic() > end:
                break
            row = one_run(number, kinds[number % len(kinds)], args.every, link, folder, nodes, limit=900)
            rows.append({**row, "source": source()})
            print(told(rows[-1]), file=sys.stderr, flush=True)
            save_rows(args.out, rows)
    for row in sorted(rows, key=lambda r: int(r["run"])):
        print(told(row))
    print(json.dumps({**summary(rows), "left_at_the_end": len(processes(folder))}))


if __name__ == "__main__":
    main()
