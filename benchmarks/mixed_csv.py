"""A large csv per site: reading and fitting numbers alone beside as many columns with texts, truth values and dates.

python benchmarks/mixed_csv.py [rows per site, default 5000000] [columns, default 10] [sites, default 3]

Each case runs in a process of its own; seconds (of all cores together, which other work on the machine does not change) and
peak memory are those of `federate` and of one fit of LogisticRegression.
With "chunks" a node reads the file in chunks of 100,000 rows, as it does for a table larger than memory.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

KINDS = {f"k{j}": {"kind": "category", "levels": ["a", "b", "c", "d"]} for j in range(3)}
KINDS |= {"flag": {"kind": "binary", "levels": ["false", "true"]}, "day": {"kind": "date"}}


def write(path: Path, rows: int, columns: int, mixed: bool, seed: int) -> None:
    """A table of numbers and a label; mixed: three of the columns are texts, one truth values, one dates."""
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(seed)
    table = {f"x{j}": rng.normal(size=rows).round(4) for j in range(columns - 5 if mixed else columns)}
    if mixed:
        texts = np.array(["a", "b", "c", "d"], dtype=object)
        table |= {f"k{j}": texts[rng.integers(0, 4, rows)] for j in range(3)}
        table["flag"] = np.array(["false", "true"], dtype=object)[rng.integers(0, 2, rows)]
        table["day"] = np.datetime64("2020-01-01") + rng.integers(0, 1000, rows).astype("timedelta64[D]")
    table["y"] = rng.integers(0, 2, rows)
    csv.write_csv(pa.table(table), path)


def in_process(folder: Path) -> None:
    import unpooled as up

    fed = up.federate(str(folder), label="y")
    up.LogisticRegression(max_iter=3, tol=1e9).fit(fed)


def in_chunks(folder: Path, mixed: bool) -> None:
    from unpooled.data.schema import Schema, Wanted
    from unpooled.node.source import FileTable, TableSource

    for path in sorted(folder.glob("*.csv")):
        source = TableSource(path.stem, FileTable(path), label="y", chunk_rows=100_000)
        names = [c for c in source.columns if c != "y"]
        kinds = Schema.from_toml({c: KINDS.get(c, "real") for c in names})
        rows = source.open(names, Wanted(kinds if mixed else None))
        total = sum(float(np.nansum(part.x)) for part in rows.parts())
        assert np.isfinite(total)


def measured(how: str, folder: Path, mixed: bool) -> tuple[float, float]:
    """(seconds, gigabytes at most) of one case in a process of its own."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import mixed_csv as m; from pathlib import Path; "
    call = f"m.in_process(Path({str(folder)!r}))" if how == "whole" else f"m.in_chunks(Path({str(folder)!r}), {mixed})"
    tell = (
        "import resource as r; used = r.getrusage(r.RUSAGE_SELF); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    out = subprocess.run([sys.executable, "-c", f"{code}{call}; {tell}"], capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, out.stdout.split()[-2:])
    return seconds, kilobytes / 1e6


def main() -> None:
    rows, columns, sites = (int(a) for a in [*sys.argv[1:], *("5000000", "10", "3")[len(sys.argv) - 1 :]])
    print(f"{sites} sites of {rows} rows, {columns} columns")
    with tempfile.TemporaryDirectory() as place:
        found: dict[tuple[str, bool], tuple[float, float]] = {}
        for mixed in (False, True):
            folder = Path(place) / str(mixed)
            folder.mkdir()
            for i in range(sites):
                write(folder / f"site{i}.csv", rows, columns, mixed, i)
            for how in ("whole", "chunks"):
                found[how, mixed] = measured(how, folder, mixed)
                seconds, gigabytes = found[how, mixed]
                print(
                    f"  {'mixed' if mixed else 'numbers':<8} {how:<7} {seconds:7.1f} s  {gigabytes:6.2f} GB", flush=True
                )
            for path in folder.glob("*"):
                path.unlink()
        for how in ("whole", "chunks"):
            (a, b), (c, d) = found[how, True], found[how, False]
            print(f"  mixed over numbers, {how}: {a / c:.2f} times the seconds, {b / d:.2f} times the memory")


if __name__ == "__main__":
    main()
