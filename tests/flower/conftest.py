"""One SuperLink and three nodes (csv, parquet, SQLite) for all tests of this folder; three tables with the same rows in process."""

import sqlite3
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

COLUMNS = ["age", "chol", "thalach"]


class Network(NamedTuple):
    link: object
    folder: Path
    tables: dict  # name -> (n, 3), in the order of names
    nodes: dict  # name -> NodeProcess


def make_tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0, 0], [5, 5, 0], [-4, 6, 3]])
    sizes = {"basel": (90, 10, 30), "geneva": (20, 100, 20), "zurich": (40, 40, 80)}
    return {
        name: np.concatenate([rng.normal(c, 1.0, (n, 3)) for c, n in zip(centres, per)]).round(6)
        for name, per in sizes.items()
    }


def write_tables(folder: Path, tables: dict[str, np.ndarray]) -> dict[str, str]:
    """Three sites that keep their rows in three ways, two of them under other names and in another order."""
    import pyarrow as pa
    from pyarrow import parquet

    basel, geneva, zurich = tables["basel"], tables["geneva"], tables["zurich"]
    np.savetxt(folder / "basel.csv", basel, "%.17g", ",", header=",".join(COLUMNS), comments="")
    parquet.write_table(
        pa.table({c: geneva[:, j] for j, c in reversed(list(enumerate(COLUMNS)))}), folder / "geneva.parquet"
    )
    with sqlite3.connect(folder / "zurich.db") as db:
        db.execute("create table patienten (id integer primary key, alter_ real, chol real, puls real, name text)")
        db.executemany(
            "insert into patienten values (?, ?, ?, ?, 'N.N.')", [(i, *map(float, row)) for i, row in enumerate(zurich)]
        )
    db.close()
    mapped = '[data.columns]\nage = "alter_"\nchol = "chol"\nthalach = "puls"'
    return {
        "basel": f'path = "{folder / "basel.csv"}"',
        "geneva": f'path = "{folder / "geneva.parquet"}"',
        "zurich": f'url = "sqlite:///{folder / "zurich.db"}"\ntable = "patienten"\norder = "id"\n{mapped}',
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows what nodes and SuperLink wrote."""
    report = yield
    found = getattr(item, "funcargs", {}).get("network")
    if report.failed and found is not None:
        for log in [*sorted(found.folder.glob("*/node.log")), found.folder / "link" / "superlink.log"]:
            report.sections.append((str(log.relative_to(found.folder)), log.read_text(errors="replace")[-3000:]))
    return report


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    from network import NodeProcess, free_port, started, write_node

    from unpooled.flower.server import serving

    folder, address = tmp_path_factory.mktemp("network"), f"127.0.0.1:{free_port()}"
    tables = make_tables()
    sections = write_tables(folder, tables)
    configs = {n: write_node(folder / n, n, address, folder / "link", text) for n, text in sections.items()}
    nodes = {name: NodeProcess(path) for name, path in configs.items()}
    with serving(folder / "link", address) as link, started(*nodes.values()):
        yield Network(link, folder, tables, nodes)
