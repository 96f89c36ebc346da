"""Every public estimator over three nodes with TLS and keys, beside the same fit in process: how far the two models are apart.

    python benchmarks/flower_models.py [--only GaussianMixture,FedGMM]

Promised: 1e-12 for closed-form models, 1e-6 for gradient models, relative to the largest number of each fitted attribute.
Nothing is promised of VRFedEM, since a node draws its batches from a secret of its own. Nodes allow more candidates per question than the
shipped policy does, since OpenMixture asks about up to 40.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from itertools import groupby
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / place) for place in ("contracts", "flower")]
from conftest import COLUMNS, make_tables  # noqa: E402
from model_cases import build, case, clients, distance, estimators  # noqa: E402
from network import OPEN_POLICY, NodeProcess, free_port, save_rows, started, write_node  # noqa: E402

from unpooled.flower import connect  # noqa: E402
from unpooled.flower.server import serving  # noqa: E402
from unpooled.local import Local  # noqa: E402

DRAWN = ("VRFedEM",)  # its batches come from a secret of each node
POLICY = OPEN_POLICY.replace("candidates = 16", "candidates = 64")


def write(folder: Path, name: str) -> dict[str, str]:
    """One csv for each client, with the label the model wants; name -> its [data] section."""
    sections = {}
    for c in clients(name, make_tables()):
        table = c.x if c.y is None else np.column_stack([c.x, c.y])
        columns = [*COLUMNS, "time", "event"] if case(name).life else COLUMNS
        header = ",".join(columns if c.y is None else [*columns, "label"])
        np.savetxt(folder / f"{c.name}.csv", table, "%.17g", ",", header=header, comments="")
        sections[c.name] = f'path = "{folder / f"{c.name}.csv"}"' + ("" if c.y is None else '\nlabel = "label"')
    return sections


def compare(name: str, link) -> dict:
    row = {"model": name, "apart": None, "promised": case(name).rtol, "kept": False, "exchanges": 0, "refusals": ""}
    try:
        here = build(name).fit(Local(clients(name, make_tables()), mode="one by one", threads=1))
        with connect(link, min_clients=3, wait=300) as fed:
            there = build(name).fit(fed)
            apart = distance(here, there)
        row |= {"apart": apart, "kept": apart <= case(name).rtol, "exchanges": len(fed.journal.exchanges)}
        return row | {"refusals": len(fed.journal.refusals)}
    except Exception as error:
        return row | {"refusals": f"{type(error).__name__}: {error}"[:300]}


def over_nodes(names: list[str]) -> list[dict]:
    """Models that want the same tables share one network."""
    folder, address = Path(tempfile.mkdtemp(prefix="models-")), f"127.0.0.1:{free_port()}"
    link, rows = folder / "link", []
    tables = write(folder, names[0])
    nodes = [NodeProcess(write_node(folder / n, n, address, link, t, policy=POLICY)) for n, t in tables.items()]
    with serving(link, address) as opened, started(*nodes):
        for name in names:
            rows.append(compare(name, opened))
            print(told(rows[-1]), flush=True)
    return rows


def told(row: dict) -> str:
    if row["apart"] is None:
        return f"{row['model']:28} FAILED: {row['refusals']}"
    counts = f"{row['exchanges']} exchanges, {row['refusals']} refusals"
    if row["model"] in DRAWN:
        return f"{row['model']:28} {row['apart']:.1e} apart, by batches of each node's own drawing ({counts})"
    verdict = "kept" if row["kept"] else "MISSED"
    return f"{row['model']:28} {row['apart']:.1e} apart, promised {row['promised']:.0e}: {verdict} ({counts})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("out/flower_models.csv"))
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(estimators())
    kind = lambda name: (case(name).label or "", case(name).visits, case(name).life)  # noqa: E731
    warnings.simplefilter("ignore")  # few rounds: some do not converge, and say so
    rows = []
    for _, group in groupby(sorted(names, key=kind), key=kind):
        rows += over_nodes(list(group))
    save_rows(args.out, rows)


if __name__ == "__main__":
    main()
