"""A model card: the same in Markdown and HTML, with numbers that may be shown only."""

import json
import re

import numpy as np
import pytest
from test_page import MODELS, fitted, words

from unpooled.cli import main
from unpooled.report import card
from unpooled.report import folder as folders

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("model", ["GaussianMixture", "MixtureImputer", "FedGMM", "GLM", "KaplanMeier", "FedConceptEM"])
def test_every_kind_of_model_has_a_card(model, tmp_path, capsys):
    data, label, parameters = MODELS[model]
    run = fitted(tmp_path, model, data(), label, **parameters)
    capsys.readouterr()
    assert main(["card", str(run), "--use", "Tell one from two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["card"] == [str(run / "card.md"), str(run / "card.html")]
    text, page = (run / "card.md").read_text(), (run / "card.html").read_text()
    for title in ("Model", "Intended use", "Data by site", "Metrics", "Privacy", "Limits"):
        assert f"## {title}\n" in text
        assert f">{title}</h2>" in page
    assert "Tell one from two." in text
    for part in card.parts(folders.read(run), "Tell one from two"):
        assert all(sentence in text for sentence in part.sentences)


def test_the_use_is_kept_for_the_next_time(tmp_path):
    run = fitted(tmp_path, "LogisticRegression", words(), "y")
    main(["card", str(run)])
    assert "Not told yet" in (run / "card.md").read_text()
    main(["card", str(run), "--use", "Known now"])
    main(["card", str(run)])
    assert "Known now." in (run / "card.md").read_text()


def test_few_rows_are_not_written_out(tmp_path):
    data = words()
    small = {**data, "tiny": tuple(a[:7] for a in data["client-0"])}
    run = fitted(tmp_path, "LogisticRegression", small, "y")
    main(["card", str(run)])
    text = (run / "card.md").read_text()
    assert "| tiny | fewer than 10 | not shown |" in text
    assert "| tiny | - |" in text
    assert "Fewer than 100 rows at" in text
    assert not re.search(r"\| tiny \|[^\n]*\b7\b", text)


def test_refused_answers_and_single_answers_are_limits_and_risks(tmp_path):
    data, label, parameters = MODELS["OpenMixture"]
    run = fitted(tmp_path, "OpenMixture", data(), label, **parameters)
    rows = folders.lines(run / "ledger.jsonl")
    rows[0]["answered"] -= 1
    (run / "ledger.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    main(["card", str(run)])
    text = (run / "card.md").read_text()
    assert "1 of" in text.split("## Limits")[1]
    assert "GATHER: open_mixture." in text


def test_a_table_in_markdown_keeps_its_cells():
    table = card.Table(("a", "b"), [("x|y", "1\n2")])
    assert card._markdown_table(table).splitlines()[-1] == "| x\\|y | 1 2 |"


def test_a_run_that_has_not_finished_has_a_card_too(tmp_path):
    run = fitted(tmp_path, "GaussianMixture", {"a": np.random.default_rng(0).normal(size=(50, 2))})
    for name in ("summary.json", "model/model.zip"):
        (run / name).unlink()
    main(["card", str(run)])
    assert "The run has not finished" in (run / "card.md").read_text()


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path, capsys):
    assert main(["card", str(tmp_path)]) == 1
    assert "is not a run" in capsys.readouterr().err
