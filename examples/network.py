"""A network on one machine: a coordinator, three nodes, one approved study with masked sums.

Each node is a process of its own with its own table, key, policy and ledger. The study is a file;
every node reviews and approves it. The coordinator sees masked numbers that mean nothing by
themselves, and totals. The fit is compared with the same fit in one process. Needs
`unpooled[flower]`; the network tutorial goes through the same steps by hand.
"""

# %% Three tables, in a folder that is removed at the end
import atexit
import contextlib
import io
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import unpooled as up
from unpooled.cli import main
from unpooled.data import builtin

hospitals = builtin.load("hospitals")
sites = {"basel": "ashford", "geneva": "dunmore", "zurich": "eastgate"}
columns = ["age", "bmi", "systolic", "diastolic", "glucose"]
used = [hospitals.columns.index(name) for name in columns]
tables = {site: hospitals.clients[name][:, used] for site, name in sites.items()}
folder = tempfile.TemporaryDirectory(prefix="unpooled-network-")
atexit.register(folder.cleanup)
work = Path(folder.name)
for site, rows in tables.items():
    lines = [",".join("" if np.isnan(value) else f"{value:g}" for value in row) for row in rows]
    (work / f"{site}.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")


def unpooled(*words):
    """Run a command of the command line in this process, and return what it printed."""
    printed = io.StringIO()
    with contextlib.chdir(work), contextlib.redirect_stdout(printed):
        failed = main([str(word) for word in words])
    if failed:
        raise SystemExit(f"unpooled {' '.join(words)} did not succeed")
    return printed.getvalue()


def start(log, *words):
    """Start a command that stays, in a process of its own."""
    with open(work / log, "wb") as output:
        command = [sys.executable, "-m", "unpooled.cli", *words]
        process = subprocess.Popen(command, cwd=work, stdout=output, stderr=output)
    atexit.register(process.wait)
    atexit.register(process.terminate)  # before the wait: what was registered last is called first
    return process


def wait_for(process, log):
    """Wait until a command that stays says that it is there."""
    while not (work / log).read_text() and process.poll() is None:
        time.sleep(0.1)


# %% The coordinator's link; each site's node, its key admitted
with socket.socket() as door:
    door.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{door.getsockname()[1]}"
running = {"link.log": start("link.log", "serve", "--link", "link", "--address", address)}
wait_for(running["link.log"], "link.log")
for site in sites:
    unpooled("node", "init", site, "--data", f"../{site}.csv", "--on", address)
    (work / site / "ca.crt").write_bytes((work / "link" / "ca.crt").read_bytes())
    unpooled("serve", "admit", f"{site}/node.pub", "--link", "link", "--name", site)
    running[f"{site}.log"] = start(f"{site}.log", "node", "start", f"{site}/node.toml")

# %% The study, and its approval by every site
participants = "".join(unpooled("node", "fingerprint", "--node", f"{site}/node.toml") for site in sites)
study = f"""
[study]
title = "Kinds of patients"
purpose = "An example"
min_cohort = 3
[participants]
{participants}
[model]
name = "GaussianMixture"
n_components = 2
random_state = 0
[data]
columns = {json.dumps(columns)}
[layers]
secure = true
[federation]
timeout = 60
"""
(work / "study.toml").write_text(study)
print(unpooled("node", "review", "study.toml", "--node", "basel/node.toml"))
for site in sites:
    unpooled("node", "approve", "study.toml", "--node", f"{site}/node.toml")

# %% The fit over the network, its check against the ledgers, and the same fit in one process
for log, process in running.items():
    wait_for(process, log)
unpooled("run", "study.toml", "--on", "link", "--out", "run")
ledgers = [word for site in sites for word in ("--ledger", f"{site}/ledger.jsonl")]
print(unpooled("verify", "run", *ledgers))
there = up.load(work / "run")
here = up.GaussianMixture(2, random_state=0).fit(tables)
apart = np.abs(there.means_ / here.means_ - 1).max()
exchanges = [json.loads(line) for line in (work / "run" / "ledger.jsonl").read_text().splitlines()]

# %% The picture: the fit, and what was sent for it
WORDS = {
    "initialization.look": "rows and column sums",
    "initialization.spread": "spread of columns",
    "initialization.cells": "small regions, for the start",
    "mixture.e_step": "EM: sums per component",
}
sent = dict.fromkeys([*WORDS.values(), "keys and shares of masks"], 0.0)
for exchange in exchanges:
    sent[WORDS.get(exchange["question"], "keys and shares of masks")] += exchange["bytes_up"] / 1000
rows = np.concatenate(list(tables.values()))
mean, spread = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for k, colour in enumerate(["#3b6fb6", "#d1603d"]):
    left.plot((here.means_[k] - mean) / spread, range(5), "o", ms=13, mfc="none", color="#999999")
    left.plot((there.means_[k] - mean) / spread, range(5), "o-", color=colour, label=f"kind {k + 1}")
left.plot([], [], "o", ms=13, mfc="none", color="#999999", label="the same fit in one process")
left.set_yticks(range(5), columns)
left.invert_yaxis()
left.legend(fontsize=9)
left.set(xlabel="standard deviations from the mean of all")
left.set_title(f"masked sums over three nodes: difference of means {apart:.0g}")
bars = right.barh(list(sent), list(sent.values()), color="#8aa9d6")
right.bar_label(bars, fmt="%.0f kB", padding=3)
right.invert_yaxis()
right.set(xlabel="kB sent by the three nodes together", title="what was sent", xlim=(0, max(sent.values()) * 1.2))
figure.savefig("network.png", dpi=110)
