"""`compare`: tests, held-out losses and pages from a config file."""

import json

import numpy as np
import pytest

from unpooled.cli import main
from unpooled.saving import load


@pytest.fixture(name="folder")
def folder_(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "clients").mkdir()
    for i in range(4):
        x = rng.normal(size=(60, 2))
        y = (rng.random(60) < 1 / (1 + np.exp(-2 * (i % 2) - x[:, 0]))).astype(int)
        rows = np.column_stack([x, y])
        np.savetxt(tmp_path / "clients" / f"site {i}.csv", rows, delimiter=",", header="a,b,ill", comments="")
    return tmp_path


def config(folder, model):
    path = folder / "compare.toml"
    path.write_text(f'{model}\n[data]\npath = "clients/*.csv"\nlabel = "ill"\n')
    return str(path)


MODELS = [
    "",
    '[model]\nname = "LogisticRegression"',
    '[model]\nname = "GLM"\nfamily = "binomial"',
    '[model]\nname = "FedAvg"',
]


@pytest.mark.parametrize("model", MODELS)
def test_it_says_who_gains(folder, capsys, model):
    family = [] if model else ["family=binomial"]
    out = folder / "run"
    assert main(["compare", config(folder, model), "em_rounds=2", *family, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Recommended:" in said
    assert "own intercepts" in said
    page = (out / "sites" / "site_2.txt").read_text()
    assert "What you gave" in page
    assert "Pooling" in (out / "report.html").read_text()
    assert load(out).family == "binomial"


def test_it_speaks_json(folder, capsys):
    model = '[model]\nname = "Pooling"\nfamily = "binomial"\nsites = false\nem_rounds = 2\nrandom_state = 1'
    assert main(["compare", config(folder, model), "--out", str(folder / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["recommended"] in found["losses"]
    assert found["pages"] == []
    assert 0 <= found["tests"]["P(x)"]["score"]["p_value"] <= 1


def test_a_study_of_another_model_is_refused(folder, capsys):
    path = folder / "study.toml"
    path.write_text(
        '[study]\ntitle = "t"\nmin_cohort = 1\n[participants]\na = ""\n[model]\nname = "GLM"\nrandom_state = 0\n'
        '[data]\ncolumns = ["a", "b"]\nlabel = "ill"\n'
    )
    assert main(["compare", str(path)]) == 1
    assert 'approve one with name = "Pooling"' in capsys.readouterr().err
