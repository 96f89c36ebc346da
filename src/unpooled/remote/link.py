"""A link folder: what a coordinator needs to reach its server, and what it hands to nodes (the CA certificate).

The server's control and run requests require the folder's token. A node, which can reach the same port, therefore
cannot start a run, take a task or admit a key. Nodes authenticate with keys that were admitted.
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
    """Where a server is and how to authenticate to it.

    Parameters
    ----------
    address : str
        host:port.
    ca : bytes or None, default=None
        The CA certificate that the server's certificate is checked against; None for no TLS, on loopback only.
    token : str, default=""
        The coordinator's secret; empty for a server that was not started by `unpooled serve`.
    folder : Path or None, default=None
        The link's folder.
    listen : str, default=""
        Where the server itself listens, if that is another address.
    engine : str, default="flower"
        What carries the messages.
    """

    address: str
    ca: bytes | None = None
    token: str = ""
    folder: Path | None = None
    listen: str = ""
    engine: str = "flower"

    def __post_init__(self):
        """Refuse an address that is not host:port, and one on another machine without TLS."""
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
        token = (folder / "token").read_text()
        return cls(body["address"], ca, token, folder, engine=body.get("engine", "flower"))

    def save(self) -> None:
        """Write the folder's token and address."""
        assert self.folder is not None
        write_file(self.folder / "token", self.token.encode(), secret=True)
        body = {"address": self.address, "tls": self.ca is not None, "engine": self.engine}
        write_file(self.folder / "link.json", json.dumps(body).encode())

    @contextmanager
    def driver(self) -> Iterator[None]:
        """Lock the link for one run at a time: a server cannot tell two coordinators with the same token apart."""
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
    """The folder of a link.

    Parameters
    ----------
    text : str
        The folder, or the address that the default folder serves.

    Returns
    -------
    Path
        The absolute path of the folder.
    """
    given = Path(text).expanduser()
    usual = FOLDER.expanduser()
    if (given / "link.json").is_file():
        return given.absolute()
    if (usual / "link.json").is_file() and Link.open(usual).address == text:
        return usual.absolute()
    raise DataNotFound(f"no link is known for {text!r}: give the folder of its `unpooled serve --link FOLDER`")


def new_token() -> str:
    """A random token of 64 hexadecimal digits."""
    return secrets.token_hex(32)


def host(address: str) -> str:
    """The host in host:port; BadParameter if the text is not an address."""
    name, _, port = address.rpartition(":")
    if not name or not port.isdigit():
        raise BadParameter(f"{address!r} is not an address: give host:port, such as 127.0.0.1:9092")
    return name.strip("[]")


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    name = host(address)
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
