"""`unpooled check`, and `run` and `predict` on mixed tables."""

import csv
import json
import tomllib

import numpy as np
import pandas as pd
import pytest

from unpooled import load
from unpooled.cli import main
from unpooled.errors import BadParameter


@pytest.fixture(name="folder")
def folder_(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "sites").mkdir()
    for i, site in enumerate(("basel", "bern")):
        n = 80 + 10 * i
        sex = rng.choice(["female", "male"], n)
        frame = pd.DataFrame(
            {"patient": [f"{site}{j}" for j in range(n)], "age": rng.normal(60, 9, n).round(), "sex": sex}
        )
        frame["pain"] = rng.choice(["none", "mild", "strong"], n)
        frame["event"] = np.where(rng.random(n) < 0.3 + 0.4 * (sex == "male"), "yes", "no")
        frame.to_csv(tmp_path / "sites" / f"{site}.csv", index=False)
    return tmp_path


def test_check_writes_columns_that_run_and_predict_go_on_with(folder, capsys):
    sites, kinds = str(folder / "sites"), folder / "columns.toml"
    assert main(["check", sites, "--label", "event", "--toml", str(kinds), "--html", str(folder / "check.html")]) == 0
    assert "The tables match" in capsys.readouterr().out
    assert "<h1>Check of tables</h1>" in (folder / "check.html").read_text()
    columns = tomllib.loads(kinds.read_text())["columns"]
    assert columns["patient"]["kind"] == "id"
    config = f'[model]\nname = "LogisticRegression"\n[data]\npath = "sites"\nlabel = "event"\n\n{kinds.read_text()}'
    (folder / "run.toml").write_text(config)
    assert main(["run", str(folder / "run.toml"), "--out", str(folder / "run")]) == 0
    capsys.readouterr()
    new = folder / "sites" / "bern.csv"
    assert main(["predict", str(folder / "run"), str(new), "--keep"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0]) == ["patient", "event", "prediction", "p_no", "p_yes"]
    assert rows[3]["patient"] == "bern3"
    assert {row["prediction"] for row in rows} == {"no", "yes"}
    assert main(["predict", str(folder / "run"), str(new), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out))[:2] == ["patient", "prediction"]
    assert main(["predict", str(folder / "run"), str(new), "--interval", "0.9"]) == 1
    assert "has no intervals" in capsys.readouterr().err


def test_a_mismatch_stops_a_run_with_the_advice_to_check(folder, capsys):
    path = folder / "sites" / "bern.csv"
    pd.read_csv(path).rename(columns={"age": "Alter"}).to_csv(path, index=False)
    assert main(["check", str(folder / "sites"), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["what"] == "name"
    config = (
        '[model]\nname = "LogisticRegression"\n[data]\npath = "sites"\nlabel = "event"\n[columns]\npatient = "id"\n'
    )
    (folder / "run.toml").write_text(config)
    assert main(["run", str(folder / "run.toml"), "--out", str(folder / "run")]) == 1
    assert "run `unpooled check`" in capsys.readouterr().err
    (folder / "run.toml").write_text(config + '[sites.bern]\nage = "Alter"\n')
    assert main(["check", str(folder / "run.toml")]) == 0
    assert main(["run", str(folder / "run.toml"), "--out", str(folder / "run")]) == 0


def test_intervals_and_columns_by_name(folder, capsys):
    for site in ("basel", "bern"):
        path = folder / "sites" / f"{site}.csv"
        frame = pd.read_csv(path)
        frame["cost"] = frame.age * 2 + (frame.sex == "male") * 10 + np.arange(len(frame)) % 7
        frame.drop(columns="event").to_csv(path, index=False)
    config = '[model]\nname = "BayesianRegression"\n[data]\npath = "sites"\nlabel = "cost"\n[columns]\npatient = "id"\n'
    (folder / "run.toml").write_text(config)
    assert main(["run", str(folder / "run.toml"), "--out", str(folder / "run")]) == 0
    capsys.readouterr()
    assert (
        main(["predict", str(folder / "run"), str(folder / "sites" / "bern.csv"), "--interval", "0.9", "--id", "sex"])
        == 0
    )
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0]) == ["patient", "sex", "prediction", "std", "lower", "upper"]
    assert all(float(r["lower"]) < float(r["prediction"]) < float(r["upper"]) for r in rows)


def test_intervals_of_an_imputer_stand_beside_the_numbers_it_filled_in(folder, capsys):
    path = folder / "sites" / "bern.csv"
    frame = pd.read_csv(path)
    frame["dose"] = frame.age / 10 + np.arange(len(frame)) % 7
    frame.loc[0, ["age", "sex"]] = None
    frame.to_csv(path, index=False)
    config = '[model]\nname = "MixtureImputer"\nn_components = 1\nrandom_state = 0\n[data]\npath = "sites/bern.csv"\n'
    (folder / "run.toml").write_text(f'{config}columns = ["age", "sex", "dose"]\n')
    assert main(["run", str(folder / "run.toml"), "--out", str(folder / "run")]) == 0
    capsys.readouterr()
    assert main(["predict", str(folder / "run"), str(path), "--interval", "0.9"]) == 0
    first, second, *_ = csv.DictReader(capsys.readouterr().out.splitlines())
    assert list(first)[-4:] == ["age_lower", "age_upper", "dose_lower", "dose_upper"]
    assert float(first["age_lower"]) < float(first["age"]) < float(first["age_upper"])
    assert first["dose_lower"] == second["age_upper"] == ""


def test_nothing_to_check_is_one_sentence(capsys):
    assert main(["check"]) == 1
    assert "nothing to check" in capsys.readouterr().err


def test_columns_whose_names_have_spaces_are_written_and_read_again(tmp_path, capsys):
    (tmp_path / "sites").mkdir()
    rows = "\n".join(f"{i},{i % 3}" for i in range(30))
    for site in ("basel", "bern"):
        (tmp_path / "sites" / f"{site}.csv").write_text(f'mean radius,"the ""grade"""\n{rows}\n')
    kinds = tmp_path / "columns.toml"
    main(["check", str(tmp_path / "sites"), "--toml", str(kinds)])
    assert set(tomllib.loads(kinds.read_text())["columns"]) == {"mean radius", 'the "grade"'}
    settings = f'[model]\nname = "PCA"\nn_components = 1\n[data]\npath = "sites"\n\n{kinds.read_text()}'
    (tmp_path / "run.toml").write_text(settings)
    assert main(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run")]) == 0
    assert set(tomllib.loads((tmp_path / "run" / "config.toml").read_text())["columns"]) == {
        "mean radius",
        'the "grade"',
    }


MESSY = """
[model]
name = "LogisticRegression"
missing = "drop"
[data]
path = "sites"
label = "event"
columns = ["age", "sex"]
[columns]
patient = "id"
age = {kind = "real", missing = [-9]}
sex = {kind = "binary", levels = ["female", "male"]}
[sites.bern]
sex = {levels = {F = "female", M = "male"}}
age = {name = "months", factor = 0.08333333333333333}
"""


warned = pytest.mark.filterwarnings("default::unpooled.errors.DataWarning")


@pytest.fixture(name="messy")
def messy_(folder):
    """Bern writes ages in months, sexes as F and M, and -9 for what is missing."""
    path = folder / "sites" / "bern.csv"
    table = pd.read_csv(path)
    table["sex"] = table.sex.map({"female": "F", "male": "M"})
    table["months"] = table.pop("age") * 12
    table.loc[:2, "months"] = -9
    table.to_csv(path, index=False)
    (folder / "run.toml").write_text(MESSY)
    assert main(["run", str(folder / "run.toml"), "--out", str(folder / "run")]) == 0
    return folder


@warned
def test_a_file_is_predicted_as_its_site_writes_it(messy, capsys):
    capsys.readouterr()
    assert main(["predict", str(messy / "run"), str(messy / "sites" / "bern.csv")]) == 0
    told = capsys.readouterr()
    assert "have missing values, which LogisticRegression cannot predict: their answers are empty" in told.err
    assert "[sites.bern]" in told.err
    rows = list(csv.DictReader(told.out.splitlines()))
    assert [row["prediction"] for row in rows[:3]] == ["", "", ""]
    table = pd.read_csv(messy / "sites" / "bern.csv")
    plain = pd.DataFrame({"age": table.months / 12, "sex": table.sex.map({"F": "female", "M": "male"})})
    expected = load(messy / "run").predict_proba(plain[3:])[:, 1]
    np.testing.assert_allclose([float(row["p_yes"]) for row in rows[3:]], expected)


@warned
def test_another_file_of_a_site_is_named_with_site(messy, capsys):
    (messy / "sites" / "bern.csv").rename(messy / "new.csv")
    assert main(["predict", str(messy / "run"), str(messy / "new.csv"), "--site", "bern"]) == 0
    assert main(["predict", str(messy / "run"), str(messy / "new.csv"), "--site", "brn"]) == 1
    assert "has no [sites.brn]: did you mean 'bern'?" in capsys.readouterr().err


def test_baselines_are_models_of_a_config_too():
    from unpooled import config

    assert config.model_class("FedAvg") is config.model_class("baselines.FedAvg")
    with pytest.raises(BadParameter, match=r"there is no model 'FedAvgg': did you mean 'FedAvg'\?"):
        config.model_class("FedAvgg")
