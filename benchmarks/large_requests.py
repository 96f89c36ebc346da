"""Memory of a SuperLink to which 600 MB are sent without a key, in each of five ways.

A real SuperLink with TLS in a process of its own. Each way is a connection that sends until 600 MB are sent or the other side closes;
the highest resident memory of the SuperLink meanwhile is shown beside what it was before.

    python benchmarks/large_requests.py
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))

import flood
from network import free_port

from unpooled.flower.server import serving

MB = 2**20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "link", f"127.0.0.1:{free_port()}") as link:
        for name, (head, part, _) in flood.WAYS.items():
            before = flood.memory()
            answer, highest = flood.send(link, head, part, 600 * MB)
            status = answer.splitlines()[0].decode(errors="replace")
            print(f"{name:18s} {before / MB:5.0f} MB before, {highest / MB:5.0f} MB at most   {status}", flush=True)


if __name__ == "__main__":
    main()
