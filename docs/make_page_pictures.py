"""Pictures of a report and of a node's page for the docs, from a real browser: `python docs/make_page_pictures.py` (needs playwright)."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from unpooled.cli import main
from unpooled.node import config
from unpooled.pages import node as node_page

PICTURES = Path(__file__).parent / "pictures"
STUDY = """\
[study]
title = "Kinds of patients in three hospitals"
purpose = "Find groups of patients that need other care"
[participants]
ashford = "SHA256:ash"
birchwood = "SHA256:bir"
dunmore = "SHA256:dun"
[model]
name = "GaussianMixture"
n_components = 3
init_params = "random"
random_state = 0
[data]
columns = ["age", "bmi", "systolic"]
[layers]
secure = true
"""


def report(tab: Page, folder: Path) -> None:
    """The top of the demo's report."""
    main(["demo", "--out", str(folder / "demo"), "--json"])
    tab.goto((folder / "demo" / "report.html").as_uri())
    tab.screenshot(path=PICTURES / "report.png", clip={"x": 100, "y": 0, "width": 1000, "height": 1120})


def node(tab: Page, folder: Path) -> None:
    """A node's page with a study that waits."""
    place = folder / "dunmore"
    main(["node", "init", str(place), "--name", "dunmore", "--json"])
    _write_rows(place / "data.csv")
    (place / "waiting").mkdir()
    (place / "waiting" / "study.toml").write_text(STUDY)
    server = node_page.serve(config.read(place / "node.toml"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    tab.goto(server.address)
    tab.get_by_role("button", name="Approve").wait_for(timeout=120_000)
    tab.screenshot(path=PICTURES / "node-page.png", clip={"x": 100, "y": 0, "width": 1000, "height": 900})
    server.stop()
    thread.join()


def _write_rows(path: Path) -> None:
    from unpooled.data import builtin

    table = builtin.load("hospitals")
    rows = table.clients["dunmore"]
    names = list(table.columns)
    lines = [",".join("" if v != v else f"{v:.2f}" for v in row) for row in rows]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")


def run() -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as made:
        browser = made.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 1200})
        report(tab, Path(place))
        node(tab, Path(place))
        browser.close()


if __name__ == "__main__":
    run()
