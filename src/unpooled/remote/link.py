"""A link folder: what a coordinator needs to reach its SuperLink, and what it hands to nodes (the CA certificate).

The SuperLink's control and runtime doors ask for the folder's token, so that a node, which can reach the same port, can neither start
a run, take a task nor admit a key. Nodes come in by their own door, with keys that were admitted.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unpooled.errors import BadParameter, DataNotFound, RunError
from unpooled.store import write_file

FOLDER = Path("~/.unpooled/link")
TOKEN_HEADER = "x-unpooled-token"


@dataclass(frozen=True)
class Link:
    """Where a SuperLink is and how to speak to it; `token` is empty for a stock SuperLink."""

    address: str  # host:port
    ca: bytes | None = None  # None: no TLS, on loopback only
    token: str = ""
    folder: Path | None = None
    listen: str = ""  # where the SuperLink itself listens, if that is another address

    def __post_init__(self):
        host(self.address)
        if self.ca is None and not is_loopback(self.address):
            raise BadParameter(f"{self.address} is not this machine: without TLS only loopback is allowed, give ca=")

    @classmethod
    def open(cls, folder: Path) -> Link:
        """The link that `unpooled serve` made in a folder."""
        try:
            body = json.loads((folder / "link.json").read_text())
        except (OSError, ValueError) as error:
            raise DataNotFound(f"{folder} holds no link: start `unpooled serve --link {folder}` first") from error
        ca = (folder / "ca.crt").read_bytes() if body["tls"] else None
        return cls(body["address"], ca, (folder / "token").read_text(), folder)

    def save(self) -> None:
        assert self.folder is not None
        write_file(self.folder / "token", self.token.encode(), secret=True)
        body = {"address": self.address, "tls": self.ca is not None}
        write_file(self.folder / "link.json", json.dumps(body).encode())

    @contextmanager
    def driver(self) -> Iterator[None]:
        """Hold the one place of a driver: Flower cannot tell two of them apart and would mix up their runs."""
        if self.folder is None:
            yield
            return
        with open(self.folder / ".driver", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunError(
                    f"another run is using the link in {self.folder}: wait for it, or serve a second link"
                ) from error
            yield


def find(text: str) -> Path:
    """The folder of a link, given itself or the address it serves (then: the default folder, if it serves there)."""
    given, usual = Path(text).expanduser(), FOLDER.expanduser()
    if (given / "link.json").is_file():
        return given.absolute()
    if (usual / "link.json").is_file() and Link.open(usual).address == text:
        return usual.absolute()
    raise DataNotFound(f"no link is known for {text!r}: give the folder of its `unpooled serve --link FOLDER`")


def new_token() -> str:
    return secrets.token_hex(32)


def host(address: str) -> str:
    name, _, port = address.rpartition(":")
    if not name or not port.isdigit():
        raise BadParameter(f"{address!r} is no address: give host:port, such as 127.0.0.1:9092")
    return name.strip("[]")


def is_loopback(address: str) -> bool:
    name = host(address)
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
