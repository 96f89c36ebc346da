"""`unpooled doctor`: versions, extras, GPU, disk, clock, ports and certificate dates of this machine; changes nothing."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.commands import EXTRAS, add_json
from unpooled.remote.link import FOLDER

NEEDED = ("numpy", "scipy", "scikit-learn", "threadpoolctl", "rich")
OK, WARN, BAD, NONE = "ok", "!", "X", "-"
FREE_SPACE = 1e9  # bytes that runs, checkpoints and ledgers should have at least
DAYS_LEFT = 30  # of a certificate, below which it is time to renew
RELEASED = datetime(2026, 1, 1, tzinfo=UTC)  # a clock before this is wrong


class Finding(NamedTuple):
    """What one check found."""

    mark: str  # OK, WARN (works, but look), BAD (does not work), NONE (not installed or not set up, and not needed)
    what: str
    text: str

    def __str__(self) -> str:
        """One line: mark, what was looked at, and what was found."""
        return f"{self.mark:<3}{self.what}: {self.text}"


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled doctor`."""
    parser = commands.add_parser("doctor", help="check this machine's installation", description=__doc__)
    parser.add_argument("--link", type=Path, default=FOLDER, metavar="FOLDER", help=f"a coordinator's link ({FOLDER})")
    parser.add_argument("--node", type=Path, metavar="node.toml", help="a site's node to check as well")
    add_json(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print every finding; 1 when one of them is a problem."""
    findings = list(check(args.link.expanduser(), args.node))
    broken = [f for f in findings if f.mark == BAD]
    if args.json:
        print(json.dumps({"ok": not broken, "findings": [f._asdict() for f in findings]}))
        return 1 if broken else 0
    for finding in findings:
        print(finding)
    print(f"{len(broken)} problems" if broken else "no problems")
    return 1 if broken else 0


def check(link: Path, node: Path | None) -> Iterator[Finding]:
    """All findings, in the order in which they are shown."""
    yield from versions()
    yield from extras()
    yield gpu()
    yield disk(Path.cwd())
    yield clock()
    yield from coordinator(link)
    if node is not None:
        yield from site(node)


# ---- this machine ----


def versions() -> Iterator[Finding]:
    """Python, unpooled and the packages that it needs."""
    from unpooled import __version__

    mark = OK if sys.version_info >= (3, 11) else BAD
    yield Finding(mark, "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Finding(OK, "unpooled", f"{__version__} in {Path(__file__).parents[1]}")
    for name in NEEDED:
        yield package(name, BAD, "pip install unpooled")


def extras() -> Iterator[Finding]:
    """The packages of every extra."""
    for name, extra in EXTRAS.items():
        yield package(name, NONE, f"pip install 'unpooled[{extra}]' if you need it, or '.[{extra}]' in a checkout")


def package(name: str, if_missing: str, remedy: str) -> Finding:
    """The version of a package, or how to install it."""
    try:
        return Finding(OK, name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(if_missing, name, f"not installed: {remedy}")


def gpu() -> Finding:
    """Whether torch sees an accelerator."""
    try:
        import torch
    except ImportError:
        return Finding(NONE, "GPU", "not looked for, since torch is not installed")
    if torch.cuda.is_available():
        return Finding(OK, "GPU", torch.cuda.get_device_name(0))
    if torch.backends.mps.is_available():
        return Finding(OK, "GPU", "Apple's, as device 'mps'")
    return Finding(NONE, "GPU", "none that torch can use: everything runs on the CPU")


def disk(folder: Path) -> Finding:
    """Free space in the folder of runs."""
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free in {folder}"
    if free < FREE_SPACE:
        return Finding(WARN, "disk", f"{text}: runs keep checkpoints and ledgers, make room")
    return Finding(OK, "disk", text)


def clock() -> Finding:
    """Certificates and ledgers need a clock that is about right."""
    now = datetime.now(UTC)
    text = f"{now:%Y-%m-%d %H:%M} UTC"
    if now < RELEASED:
        return Finding(BAD, "clock", f"{text} lies in the past: set it, or certificates are refused")
    return Finding(OK, "clock", text)


# ---- the coordinator's link ----


def coordinator(folder: Path) -> Iterator[Finding]:
    """The link in a folder: its address and its certificates. Without a link: whether its usual port is free."""
    if not (folder / "link.json").is_file():
        yield Finding(NONE, "link", f"none in {folder}: only a coordinator needs one, see `unpooled serve`")
        yield port(9092)
        return
    address = str(json.loads((folder / "link.json").read_text())["address"])
    yield reachable("link", address, f"`unpooled serve --link {folder}` starts it", if_not=WARN)
    yield certificate(folder / "server.crt", f"`unpooled serve renew --link {folder}` makes a new one")
    yield certificate(folder / "ca.crt", "delete *.crt and *.key there for a new one, and send ca.crt to the nodes")
    yield secret(folder / "token")


def port(number: int) -> Finding:
    """Whether the port of `unpooled serve` is free."""
    with socket.socket() as door:
        try:
            door.bind(("127.0.0.1", number))
        except OSError:
            return Finding(WARN, "port", f"{number} is in use: give `unpooled serve` another one with --address")
    return Finding(OK, "port", f"{number} is free for `unpooled serve`")


def reachable(what: str, address: str, remedy: str, if_not: str) -> Finding:
    """Whether something answers at HOST:PORT."""
    host, _, number = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(number)), timeout=3).close()
    except (OSError, ValueError) as error:
        return Finding(if_not, what, f"nothing answers at {address} ({error}): {remedy}")
    return Finding(OK, what, f"{address} answers")


def certificate(path: Path, remedy: str) -> Finding:
    """How long a certificate is still valid."""
    if not path.is_file():
        return Finding(NONE, "certificate", f"{path} is not there: a link without TLS has none")
    try:
        from cryptography import x509
    except ImportError:
        return Finding(NONE, "certificate", f"{path} was not read, since cryptography is not installed")
    try:
        read = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        return Finding(BAD, "certificate", f"{path} is not a certificate ({error}): {remedy}")
    now = datetime.now(UTC)
    begin = read.not_valid_before_utc
    end = read.not_valid_after_utc
    if now < begin:
        return Finding(BAD, "certificate", f"{path} is valid from {begin:%Y-%m-%d %H:%M} UTC: is the clock right?")
    days = (end - now).days
    if now >= end:
        return Finding(BAD, "certificate", f"{path} expired on {end:%Y-%m-%d}: {remedy}")
    text = f"{path} is valid until {end:%Y-%m-%d}"
    return Finding(OK, "certificate", text) if days > DAYS_LEFT else Finding(WARN, "certificate", f"{text}: {remedy}")


def secret(path: Path) -> Finding:
    """Whether a secret file can be read by its owner only."""
    if not path.is_file():
        return Finding(BAD, "secret", f"{path} is not there")
    if path.stat().st_mode & 0o077:
        return Finding(WARN, "secret", f"{path} can be read by others: chmod 600 {path}")
    return Finding(OK, "secret", f"{path} can be read by its owner only")


# ---- a site's node ----


def site(path: Path) -> Iterator[Finding]:
    """A node's files, its certificate and the way to its coordinator."""
    from unpooled.errors import UnpooledError
    from unpooled.node import config, policy

    try:
        found = config.read(path)
        policy.read(found.paths["policy"])
        yield Finding(OK, "node", f"{found.name}: node.toml and policy.toml can be read")
    except UnpooledError as error:
        yield Finding(BAD, "node", str(error))
        return
    yield disk(path.resolve().parent)
    if found.key is not None:
        yield secret(found.key)
    if found.ca is not None and not found.ca.is_file():
        yield Finding(BAD, "certificate", f"{found.ca} is not there: ask the coordinator for the ca.crt of its link")
    elif found.ca is not None:
        yield certificate(found.ca, "ask the coordinator for the ca.crt of its link")
    yield reachable("coordinator", found.link, "is `unpooled serve` running there, and the way open?", if_not=BAD)
