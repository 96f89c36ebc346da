"""How long a node's page takes to open with a ledger of 10,000 lines: `python benchmarks/ledger_page.py`."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from unpooled.cli import main
from unpooled.node import config, ledger
from unpooled.node.ledger import Ledger, Line
from unpooled.pages import node as node_page

LINES = 10_000


def write_ledger(path: Path, lines: int) -> None:
    """A whole ledger, without waiting for the disk after every line."""
    book = Ledger(path)
    texts: list[str] = []
    book._append = texts.append  # type: ignore[method-assign]
    for i in range(lines):
        mark = hashlib.sha256(str(i).encode()).hexdigest()
        what = [["[0].n", [3], "float64"], ["[0].x", [3, 8], "float64"]]
        book.note(Line("run", i, "mixture.e_step", "sum", [], what, 27, 400, mark, node="here", study="ab" * 32))
    path.write_text("".join(texts))


def run() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "node"
        main(["node", "init", str(folder), "--name", "here", "--json"])
        write_ledger(folder / "ledger.jsonl", LINES)
        start = time.perf_counter()
        server = node_page.serve(config.read(folder / "node.toml"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        _seconds("the page opens after", server.address, start)
        server.page.ledger.ready.wait()
        print(f"all {len(server.page.ledger.lines):,} lines are checked after {time.perf_counter() - start:.2f} s")
        _seconds("the page again", server.address, time.perf_counter())
        _seconds("its 100th page of lines", f"{server.address}ledger?page=100", time.perf_counter())
        server.stop()
        thread.join()
        start = time.perf_counter()
        for _ in ledger.entries(folder / "ledger.jsonl"):
            pass
        print(f"checking the hashes alone: {time.perf_counter() - start:.2f} s")


def _seconds(what: str, address: str, start: float) -> None:
    size = len(urllib.request.urlopen(address).read())
    print(f"{what} {time.perf_counter() - start:.2f} s ({size / 1000:.0f} kB)")


if __name__ == "__main__":
    run()
