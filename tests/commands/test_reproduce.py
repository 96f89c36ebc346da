"""`unpooled reproduce` lists the experiments of a checkout."""

from pathlib import Path

from unpooled.cli import main


def test_experiments_are_listed(monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(["reproduce"]) == 0
    assert "foundation/exactness" in capsys.readouterr().out


def test_outside_a_checkout_it_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
