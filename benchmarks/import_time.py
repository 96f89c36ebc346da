"""CPU seconds of `import unpooled`, and of first using its mixture, each in fresh processes."""

import resource
import statistics
import subprocess
import sys

STATEMENTS = {
    "python alone": "pass",
    "import numpy": "import numpy",
    "import sklearn.mixture": "import sklearn.mixture",
    "import unpooled": "import unpooled",
    "unpooled.GaussianMixture": "import unpooled; unpooled.GaussianMixture",
}


def cpu_seconds(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(repeats: int = 9) -> None:
    found: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(repeats):  # alternating, so that a slow moment of the machine falls on all
        for name, statement in STATEMENTS.items():
            found[name].append(cpu_seconds(statement))
    for name, seconds in found.items():
        print(f"{name:<28}{statistics.median(seconds):.3f} s CPU (from {min(seconds):.3f} to {max(seconds):.3f})")


if __name__ == "__main__":
    main()
