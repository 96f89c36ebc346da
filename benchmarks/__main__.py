"""Run every benchmark, or those named: `python -m benchmarks [--write docs/measured/benchmarks.md] [NAME ...]`."""

import argparse
import platform
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks, by file name; all of them if none is given")
    parser.add_argument("--write", type=Path, help="put what they print into this page, each in its own section")
    args = parser.parse_args()
    scripts = {p.stem: p for p in sorted(HERE.glob("*.py")) if not p.stem.startswith("_")}
    unknown = [n for n in args.names if n not in scripts]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}: known are {', '.join(scripts)}")
    codes = []
    for name in args.names or scripts:
        title = scripts[name].read_text().split('"""')[1].strip().splitlines()[0]
        print(f"\n== {name}: {title}", flush=True)
        code, printed = run(scripts[name])
        codes.append(code)
        if args.write and code == 0:
            write(args.write, name, title, printed)
    return max(codes, default=0)


def run(path: Path) -> tuple[int, str]:
    """Run a script, showing what it prints as it comes."""
    lines = []
    with subprocess.Popen([sys.executable, "-u", str(path)], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def write(page: Path, name: str, title: str, printed: str) -> None:
    """Replace a benchmark's section of the page, or add it."""
    text = page.read_text() if page.exists() else "# Printed by benchmarks\n"
    where = f"{date.today()}, {platform.machine()}, Python {platform.python_version()}"
    section = f"\n## {name}\n\n{title} ({where})\n\n```text\n{without_paths(printed).rstrip()}\n```\n"
    old = re.compile(rf"\n## {re.escape(name)}\n.*?```text\n.*?\n```\n", re.S)
    page.write_text(old.sub(lambda _: section, text) if old.search(text) else text + section)


def without_paths(printed: str) -> str:
    """What a benchmark printed, without the folders of this machine."""
    for folder, short in ((HERE.parent, "."), (Path(tempfile.gettempdir()), "TMP"), (Path.home(), "~")):
        printed = printed.replace(str(folder), short)
    return printed


if __name__ == "__main__":
    sys.exit(main())
