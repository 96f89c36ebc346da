"""A logistic GLM over a node whose table is in PostgreSQL and is read in chunks: seconds per pass, and the memory that it takes.

    python benchmarks/postgres_rows.py [--rows 10000000] [--chunk 100000]

It starts a PostgreSQL of its own on a socket in a temporary folder (Debian: `apt install postgresql`), fills a table of five columns there,
and fits over the wire format of a network, in one process. The peak is that of the node and the coordinator together, above what the
process held before the fit; a quarter of the rows is fitted first, so that growth with rows would show.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "remote"))
from memory import MemoryTransport

from unpooled.models.glm import GLM
from unpooled.node.site import Site
from unpooled.node.source import SqlTable, TableSource
from unpooled.remote import Remote

COLUMNS = ["age", "bmi", "dose", "sex"]
TRUTH = np.array([0.03, -0.05, 0.4, -0.2])
FILL = """
CREATE TABLE patients AS
SELECT age, bmi, dose, sex,
       (random() < 1 / (1 + exp(-(0.03 * (age - 60) - 0.05 * (bmi - 26) + 0.4 * dose - 0.2 * sex))))::int AS ill
FROM (SELECT 40 + 40 * random() AS age, 20 + 12 * random() AS bmi, floor(4 * random()) AS dose, (random() < 0.5)::int AS sex
      FROM generate_series(1, {rows})) AS drawn
"""


def program(name: str) -> str:
    found = shutil.which(name)
    held = found or next((str(p) for p in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if held is None:
        sys.exit(f"there is no {name} here: apt install postgresql")
    return held


@contextmanager
def server() -> Iterator[str]:
    """The url of a PostgreSQL that ends with the block."""
    folder, user = Path(tempfile.mkdtemp(prefix="pg-")), {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(folder, "nobody")
        user = {"user": "nobody"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
    subprocess.run(
        [program("initdb"), "-D", folder / "db", "-U", "tester", "-A", "trust", "--no-sync"], check=True, **quiet
    )
    options = ["-c", "listen_addresses=", "-c", "max_wal_size=8GB", "-F"]
    process = subprocess.Popen([program("postgres"), "-D", folder / "db", "-k", folder, *options], **quiet)
    try:
        url = f"postgresql+psycopg://tester@/postgres?host={folder}"
        wait_for(url)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        shutil.rmtree(folder)


def wait_for(url: str) -> None:
    for _ in range(300):
        try:
            sa.create_engine(url, poolclass=sa.NullPool).connect().close()
            return
        except sa.exc.OperationalError:
            time.sleep(0.1)
    sys.exit("PostgreSQL did not start")


def fill(url: str, rows: int) -> None:
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS patients"))
        connection.execute(sa.text("SELECT setseed(0.5)"))
        connection.execute(sa.text(FILL.format(rows=rows)))


def memory() -> float:
    """The most that this process held so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit(url: str, rows: int, chunk: int) -> None:
    fill(url, rows)
    table = TableSource(
        "node", SqlTable(url, table="patients"), columns={c: c for c in COLUMNS}, label="ill", chunk_rows=chunk
    )
    fed = Remote(MemoryTransport([Site("node", table, {})]), columns=COLUMNS)
    before, start, cpu = memory(), time.perf_counter(), time.process_time()
    model = GLM("binomial").fit(fed)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    away = np.abs(model.coef_ - TRUTH).max()
    passes = len(fed.journal.exchanges)
    errors = (np.abs(model.coef_ - TRUTH) / model.stderr_).max()
    print(
        f"{rows:>10,} rows in chunks of {chunk:,}: {passes} passes, {wall / passes:.1f} s a pass ({cpu / passes:.1f} s CPU here),",
        flush=True,
    )
    print(
        f"{'':>10} {memory() - before:.0f} MiB more than the {before:.0f} MiB before; {model.n_rows_:,.0f} rows fitted,",
        flush=True,
    )
    print(f"{'':>10} coefficients within {away:.4f} of the truth, {errors:.1f} standard errors", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=100_000)
    args = parser.parse_args()
    with server() as url:
        for rows in (args.rows // 4, args.rows):
            fit(url, rows, args.chunk)


if __name__ == "__main__":
    main()
