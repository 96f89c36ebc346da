"""Pages and reports in a real browser: clicks, the keyboard, a phone's width, contrast, names for screen readers, no outside request.

Skipped where playwright or a Chromium is not installed: `make test-browser` says what is missing.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("cryptography")
pytest.importorskip("playwright", reason="pip install playwright, and a Chromium")

from itertools import pairwise

from place import STUDY, make_node, make_run, node_server, serving
from playwright import sync_api

from unpooled import study
from unpooled.cli import main
from unpooled.node import approval, config, policy
from unpooled.pages import watch
from unpooled.pages.server import Server

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, LAPTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 800}


@pytest.fixture(name="browser", scope="module")
def browser_():
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    with sync_api.sync_playwright() as made:
        try:
            browser = made.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium could be started: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(name="tab")
def tab_(browser):
    """A tab that notes what it asks for and what goes wrong."""
    tab = browser.new_page(viewport=LAPTOP)
    tab.asked, tab.wrong = [], []
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.on("console", lambda message: tab.wrong.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: tab.wrong.append(str(error)))
    yield tab
    tab.close()


@pytest.fixture(name="folder")
def folder_(tmp_path):
    return make_node(tmp_path / "zurich")


@pytest.fixture(name="server")
def server_(folder):
    with node_server(folder) as server:
        yield server


def approved(folder):
    return list(policy.read(folder / "policy.toml").studies)


# ---- a node's decisions ----


def test_approving_by_a_click(tab, server, folder):
    tab.goto(server.address)
    tab.get_by_role("button", name="Approve Heart & <clusters>").click(timeout=60_000)
    tab.get_by_role("button", name="Revoke Heart & <clusters>").wait_for()
    assert approved(folder) == [study.read(folder / "waiting" / "heart.toml").digest]
    assert tab.get_by_text("No study waits for a decision.").is_visible()
    assert tab.wrong == []


def test_refusing_by_a_click(tab, server, folder):
    tab.goto(server.address)
    tab.get_by_role("button", name="Refuse Heart & <clusters>").click()
    tab.get_by_text("No study waits for a decision.").wait_for()
    assert approved(folder) == []
    assert [d.decision for d in approval.decisions(config.read(folder / "node.toml"))] == ["refused"]
    assert tab.get_by_role("cell", name="refused").is_visible()


def test_approving_and_revoking_by_the_keyboard_alone(tab, server, folder):
    tab.goto(server.address)
    tab.get_by_role("button", name="Approve").wait_for(timeout=60_000)
    assert _press_until(tab, "Skip to the content")
    assert _press_until(tab, "Approve")
    tab.keyboard.press("Enter")
    tab.get_by_role("button", name="Revoke").wait_for()
    assert len(approved(folder)) == 1
    assert _press_until(tab, "Revoke")
    tab.keyboard.press("Space")
    tab.get_by_text("revoked").wait_for()
    assert approved(folder) == []


def _press_until(tab, text, most=30):
    """Whether so many tabs reach an element of this text, with an outline that can be seen."""
    for _ in range(most):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent").strip().startswith(text):
            outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            return outline != "none"
    return False


def test_a_study_is_handed_in_and_shows_by_itself(tab, server, folder, tmp_path):
    tab.goto(server.address)
    (tmp_path / "new.toml").write_text(STUDY.format(seed=3).replace("Heart & <clusters>", "Another study"))
    tab.get_by_label("Add a study file").set_input_files(tmp_path / "new.toml")
    tab.get_by_text("Another study waits for review.").wait_for()
    tab.evaluate("document.activeElement.blur()")
    tab.get_by_role("heading", name="Another study").wait_for()
    assert tab.wrong == []


def test_another_site_cannot_approve_through_the_browser(browser, server, folder, tmp_path):
    """A page from elsewhere posts the very form, with the tokens of the address and of the form known to it."""
    tab = browser.new_page()
    digest = study.read(folder / "waiting" / "heart.toml").digest
    fields = {"form": server.page.form_token, "study": digest}
    inputs = "".join(f'<input name="{k}" value="{v}">' for k, v in fields.items())
    form = f'<form method="post" action="{server.address}approve">{inputs}</form><script>document.forms[0].submit()</script>'
    (tmp_path / "evil.html").write_text(form)
    tab.goto((tmp_path / "evil.html").as_uri())
    tab.wait_for_timeout(500)
    assert approved(folder) == []
    tab.close()


# ---- a run, while it goes on ----


@pytest.fixture(name="run")
def run_(tmp_path):
    return make_run(tmp_path, "run")


def test_the_page_of_a_run_follows_by_itself(tab, run):
    for name in ("summary.json", "model/model.zip"):
        (run / name).unlink()
    rows = (run / "history.jsonl").read_text().splitlines(keepends=True)
    (run / "history.jsonl").write_text("".join(rows[:3]))
    with serving(Server(watch.RunPage(run), watch.routes(lambda request: run), look_every=0.1)) as server:
        tab.goto(server.address)
        tab.get_by_text("Round 3 of at most 6 is done").wait_for()
        (run / "history.jsonl").write_text("".join(rows))
        tab.get_by_text("Round 6 of at most 6 is done").wait_for()
        late = {"client": "south", "round": 4, "question": "mixture.e_step", "reason": "no answer within 3 s"}
        (run / "refusals.jsonl").write_text(json.dumps(late) + "\n")
        tab.get_by_text("no answer within 3 s").wait_for()
        assert tab.wrong == []
        assert all(url.startswith((server.address, "data:")) for url in tab.asked)


def test_the_report_opens_from_the_page(tab, run):
    with serving(Server(watch.RunPage(run), watch.routes(lambda request: run))) as server:
        tab.goto(server.address)
        tab.get_by_role("link", name="Open the report").click()
        tab.get_by_role("heading", name="What left each client").wait_for()
        assert tab.wrong == []


# ---- every page: by width, by contrast, by name ----

CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = (c) => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2]);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg") || !e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.push(e.tagName + " " + e.textContent.slice(0, 40));
  }
  return found; }"""
UNNAMED = """() => [...document.querySelectorAll("svg[role=img], img, button, input:not([type=hidden]), a, progress, [role=group]")]
  .filter((e) => !(e.getAttribute("aria-label") || e.getAttribute("alt") || e.textContent.trim() || (e.labels && e.labels.length)))
  .filter((e) => e.tagName !== "svg" || !e.getAttribute("aria-label")).map((e) => e.outerHTML.slice(0, 80))"""
PICTURES = """() => [...document.querySelectorAll("svg")]
  .filter((e) => !e.getAttribute("aria-label") && e.getAttribute("aria-hidden") !== "true")
  .map((e) => e.outerHTML.slice(0, 80))"""
LEVELS = """() => [...document.querySelectorAll("h1,h2,h3,h4")].map((e) => Number(e.tagName[1]))"""


def look_through(tab, address):
    """What every page must keep, on a laptop and on a phone."""
    for size in (LAPTOP, PHONE):
        tab.set_viewport_size(size)
        tab.goto(address)
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert tab.evaluate("document.documentElement.lang") == "en"
        assert tab.evaluate(CONTRAST) == []
        assert tab.evaluate(UNNAMED) == []
        assert tab.evaluate(PICTURES) == []
        levels = tab.evaluate(LEVELS)
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
    assert tab.wrong == []


def test_a_nodes_page_can_be_read_by_anybody(tab, server):
    tab.goto(server.address)
    tab.get_by_role("button", name="Approve").wait_for(timeout=60_000)
    look_through(tab, server.address)
    assert all(url.startswith((server.address, "data:")) for url in tab.asked)


def test_the_page_of_a_run_can_be_read_by_anybody(tab, run):
    with serving(Server(watch.RunPage(run))) as server:
        look_through(tab, server.address)


@pytest.mark.parametrize(
    "model",
    [
        "OpenMixture",
        "MixtureImputer",
        "FedGMM",
        "FedConceptEM",
        "GLM",
        "BayesianRegression",
        "KaplanMeier",
        "Describe",
        "PCA",
    ],
)
def test_a_report_can_be_read_by_anybody_and_asks_for_nothing(tab, tmp_path, model):
    from test_page import MODELS, fitted

    data, label, parameters = MODELS[model]
    run = fitted(tmp_path, model, data(), label, **parameters)
    main(["card", str(run), "--use", "a test"])
    for name in ("report.html", "card.html"):
        look_through(tab, (run / name).as_uri())
    assert {url.rpartition("/")[2].partition("#")[0] for url in tab.asked} == {"report.html", "card.html"}
