"""`unpooled completion`: the scripts know every command and option, and bash completes with them."""

import shutil
import subprocess

import pytest

from unpooled.cli import COMMANDS, main


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_known(shell, capsys):
    text = script(shell, capsys)
    for word in (*COMMANDS, "approve", "admit", "ledger"):
        assert word in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["ve"], {"verify"}),
        (["node", "app"], {"approve"}),
        (["node", "ledger", "ver"], {"verify"}),
        (["serve", "adm"], {"admit"}),
        (["run", "--o"], {"--on", "--out"}),
        (["completion", "fi"], {"fish"}),
    ],
)
def test_bash_completes(typed, expected, tmp_path, capsys):
    words = " ".join(["unpooled", *typed])
    lines = [
        script("bash", capsys),
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}",
        "_unpooled; echo ${COMPREPLY[@]}",
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == expected
