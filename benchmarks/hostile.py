"""Every malformed or hostile message we thought of, against a node and the coordinator: what each was refused with.

python benchmarks/hostile.py
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / place) for place in ("contracts", "flower", "remote")]
from flower_grid import MessageGrid  # noqa: E402
from hostile import MARK, RECORDS_TO_NODE, TO_COORDINATOR, TO_NODE, coordinator, node, send_to_node  # noqa: E402
from toy import Centre, total  # noqa: E402


def main() -> None:
    MessageGrid([])
    MARK.unlink(missing_ok=True)
    refused = 0
    for name, case in {**TO_NODE, **RECORDS_TO_NODE}.items():
        reason = send_to_node(node(Path(tempfile.mkdtemp())), case).get("refused")
        refused += bool(reason)
        print(f"node         {name:40} {reason or 'ANSWERED'}")
    for name, twist in TO_COORDINATOR.items():
        fed = coordinator(twist)
        fed.sum(total, Centre(np.zeros(3)))
        reasons = [r.reason for r in fed.journal.refusals]
        refused += len(reasons)
        print(f"coordinator  {name:40} {reasons[0] if reasons else 'TAKEN'}")
    tried = len(TO_NODE) + len(RECORDS_TO_NODE) + len(TO_COORDINATOR)
    print(json.dumps({"tried": tried, "refused": refused, "executed": MARK.exists()}))


if __name__ == "__main__":
    main()
