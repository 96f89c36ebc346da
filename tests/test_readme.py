"""The README's examples run as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def block(language: str) -> str:
    return re.search(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)


def test_ten_lines_of_python():
    done = subprocess.run([sys.executable, "-c", block("python")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loglik" in done.stdout


@pytest.mark.slow
def test_ten_lines_of_shell(tmp_path):
    command = f'export PATH="{Path(sys.executable).parent}:$PATH"; set -e\n' + block("sh")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("report.html", "card.md"):
        assert (tmp_path / "study" / "run" / name).exists()


def test_the_pictures_are_there():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / path).stat().st_size > 1000
