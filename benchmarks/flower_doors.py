"""Who is turned away at a link: a key that was not admitted, a certificate of another authority, an expired one, a wrong token.

python benchmarks/flower_doors.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))
from network import answer_once, free_port

from unpooled.errors import RunError
from unpooled.flower import Link, connect, fleet, server
from unpooled.remote import keys


def refusal(call: Callable[[], object]) -> str:
    """What is said, or that nothing was."""
    try:
        call()
    except RunError as error:
        return f"refused: {error}"
    return "LET IN"


def use(link: Link) -> None:
    with connect(link):
        pass


def expired(folder: Path) -> str:
    """What the coordinator says of a certificate that ended an hour ago and cannot be renewed; a node waits for a new one."""
    keys.make_authority(folder, ["127.0.0.1"], valid=timedelta(hours=-1))
    (folder / "ca.key").unlink()  # or `serve` would renew it
    link = server.prepare(folder, f"127.0.0.1:{free_port()}", [], insecure=False)
    process = server._start(link)
    try:
        return refusal(lambda: server._wait(link, process))
    finally:
        server.stop(process)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="doors-"))
    keys.make_node_key(folder / "node.key")
    keys.make_authority(folder / "other", ["127.0.0.1"])
    fleet.REFUSED = 2.0  # seconds of refusals before a node gives up
    with server.serving(folder / "link", f"127.0.0.1:{free_port()}") as link:
        other = Link(link.address, (folder / "other" / "ca.crt").read_bytes())
        print("a key not admitted  ", refusal(lambda: answer_once(Link(link.address, link.ca), folder / "node.key")))
        print("another authority   ", refusal(lambda: answer_once(other, folder / "node.key")))
        print("a wrong token       ", refusal(lambda: use(Link(link.address, link.ca, "0" * 64))))
    print("expired certificate ", expired(folder / "late"))


if __name__ == "__main__":
    main()
