"""The command itself: mistakes before any command runs, and extras that are not installed."""

import json
import subprocess
import sys
import warnings

import pytest

from unpooled.cli import COMMANDS, main


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "unpooled", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("unpooled ")


@pytest.mark.parametrize("command", [(), *((c,) for c in COMMANDS)])
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    assert "usage: unpooled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["nosuch"], "invalid choice: 'nosuch'"),
        (["run"], "required: file\n"),
        (["run", "a.toml", "--ot", "x"], "unrecognized arguments: --ot"),
        (["demo", "extra"], "unrecognized arguments: extra"),
    ],
)
def test_a_wrong_word_is_told(line, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(line)
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "module"), [("serve", "httpx"), ("node keygen k", "cryptography"), ("serve --link l", "flwr")]
)
def test_an_extra_that_is_not_installed_is_one_sentence(command, module, tmp_path):
    code = f"import sys; sys.modules[{module!r}] = None; from unpooled.cli import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert f"this needs {module}, which is not installed: pip install 'unpooled[flower]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_a_node_is_made_of_is_told_as_json_too(tmp_path, capsys):
    pytest.importorskip("flwr")
    assert main(["node", "init", str(tmp_path / "basel"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"node": str(tmp_path / "basel" / "node.toml"), "key": str(tmp_path / "basel" / "node.pub")}
    assert main(["node", "keygen", str(tmp_path / "k"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"key": str(tmp_path / "k.pub")}
    assert main(["serve", "admit", told["key"], "--link", str(tmp_path / "link"), "--json"]) in (0, 1)
    assert set(json.loads(capsys.readouterr().out)) <= {"admitted", "error"}


def test_a_warning_is_one_line_and_told_once(monkeypatch, capsys):
    def warn(args):
        for text in ("look out", "look out", "and here"):
            warnings.warn(text, UserWarning, stacklevel=1)

    monkeypatch.setattr("unpooled.commands.report.run", warn)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back afterwards
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["report", "run"]) == 0
    assert capsys.readouterr().err == "unpooled: warning: look out\nunpooled: warning: and here\n"
