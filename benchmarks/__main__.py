"""Run every benchmark, or those named: `python -m benchmarks [NAME ...]`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    scripts = {p.stem: p for p in sorted(HERE.glob("*.py")) if not p.stem.startswith("_")}
    unknown = [n for n in names if n not in scripts]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}: known are {', '.join(scripts)}", file=sys.stderr)
        return 1
    codes = [_run(name, scripts[name]) for name in names or scripts]
    return max(codes, default=0)


def _run(name: str, path: Path) -> int:
    title = path.read_text().split('"""')[1].strip().splitlines()[0]
    print(f"\n== {name}: {title}", flush=True)
    return subprocess.run([sys.executable, str(path)]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
