"""A SuperLink as a child process, with its certificates, its token and the admitted node keys.

It ends when its parent does.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from unpooled.errors import BadParameter, RunError
from unpooled.flower.attach import explained
from unpooled.flower.clients import client
from unpooled.remote import keys
from unpooled.remote.link import Link, host, is_loopback, new_token
from unpooled.store import write_file

START_SECONDS = 60.0  # a SuperLink has to start
NAME = re.compile(r"[\w.-][\w. -]{0,99}")  # of a node


class Server(NamedTuple):
    """A running SuperLink: its link and its process."""

    link: Link
    process: subprocess.Popen

    def check(self) -> None:
        """Raise RunError if the SuperLink has ended."""
        code = self.process.poll()
        if code is not None:
            assert self.link.folder is not None
            raise RunError(
                f"the SuperLink ended unexpectedly (exit code {code}): nodes cannot connect any more; "
                f"start `unpooled serve` again, {self.link.folder / 'superlink.log'} says why it ended"
            )


@contextmanager
def serving(folder: Path, address: str, *, hosts: Sequence[str] = (), insecure: bool = False) -> Iterator[Link]:
    """Run a SuperLink while the block lasts; yields its link."""
    with supervised(folder, address, hosts=hosts, insecure=insecure) as server:
        yield server.link


@contextmanager
def supervised(folder: Path, address: str, *, hosts: Sequence[str] = (), insecure: bool = False) -> Iterator[Server]:
    """Run a SuperLink while the block lasts; yields it with its process.

    Parameters
    ----------
    folder : Path
        The link's folder. Certificates in it are used; missing ones are made, one that expires soon is renewed.
    address : str
        host:port to listen at.
    hosts : sequence of str, default=()
        Other names by which nodes reach this machine.
    insecure : bool, default=False
        No TLS and no node keys; on loopback only.

    Yields
    ------
    Server
        The running SuperLink.
    """
    _check_free(address)  # before the folder of a running link gets another token
    link = prepare(folder, address, hosts, insecure)
    process = _start(link)
    try:
        _wait(link, process)
        for path in sorted((folder / "admitted").glob("*.pub")):
            register(link, keys.read_public_key(path), path.stem)
        yield Server(link, process)
    finally:
        stop(process)


def _check_free(address: str) -> None:
    """RunError if something else listens at the address."""
    name = host(address)
    port = int(address.rpartition(":")[2])
    try:
        with socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((name, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"{address} cannot be served: {reason}; stop what listens there or choose another --address"
        ) from error


def prepare(folder: Path, address: str, hosts: Sequence[str], insecure: bool) -> Link:
    """Write a link's folder: certificates unless `insecure`, a new token, the address."""
    if insecure and not is_loopback(address):
        raise BadParameter(f"--insecure is for loopback only, and {address} is not: leave it out, TLS is the default")
    folder.mkdir(parents=True, exist_ok=True)
    present = [n for n in ("ca.crt", "server.crt", "server.key") if (folder / n).exists()]
    if not insecure and len(present) == 0:
        keys.make_authority(folder, list(dict.fromkeys([host(address), *hosts, "localhost", "127.0.0.1"])))
    elif not insecure and len(present) < 3:
        raise BadParameter(f"{folder} holds {', '.join(present)} only: give ca.crt, server.crt and server.key, or none")
    elif not insecure:
        _renew_if_due(folder)
    reach = address.replace("0.0.0.0", "127.0.0.1") if host(address) == "0.0.0.0" else address
    link = Link(reach, None if insecure else (folder / "ca.crt").read_bytes(), new_token(), folder, address)
    link.save()
    return link


def _renew_if_due(folder: Path) -> None:
    """Renew a certificate that expires soon, if the authority's key is here."""
    due = keys.expiry(folder) - datetime.datetime.now(datetime.UTC) < keys.RENEW_BEFORE
    if due and (folder / "ca.key").is_file():
        keys.renew(folder)


def _start(link: Link) -> subprocess.Popen:
    """Start the SuperLink's process; its output goes to superlink.log."""
    folder = link.folder
    assert folder is not None
    tls = ["--insecure"]
    if link.ca is not None:
        names = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
        tls = [word for flag, name in names.items() for word in (flag, str(folder / name))]
        tls.append("--enable-supernode-auth")
    port = link.listen.rpartition(":")[2]
    command = [sys.executable, "-m", "unpooled.flower.superlink", str(folder / "token"), *tls]
    command += ["--host", host(link.listen), "--port", port, "--isolation", "process"]
    command += ["--disable-runtime-dependency-installation"]
    # the gRPC servers that Flower still starts beside HTTP are not used: any free port of loopback will do
    command += ["--control-api-address", "127.0.0.1:0", "--fleet-api-address", "127.0.0.1:0"]
    quiet = {"FLWR_LOG_LEVEL": "WARNING", **os.environ}  # a line per request costs more than the request
    with open(folder / "superlink.log", "ab") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, env=quiet
        )


def _wait(link: Link, process: subprocess.Popen) -> None:
    """Wait until the SuperLink answers; RunError if it ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RunError(f"the SuperLink ended at once: {_last_line(link)}; is {link.listen} in use?")
        try:
            nodes(link)
            return
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise RunError(
                    f"the certificates in {link.folder} cannot be used: {error}; delete or replace them"
                ) from error
        time.sleep(0.05)
    raise RunError(f"the SuperLink did not start within {START_SECONDS:g} s: {_last_line(link)}")


def _last_line(link: Link) -> str:
    """The last line of the SuperLink's log."""
    assert link.folder is not None
    lines = (link.folder / "superlink.log").read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it wrote nothing"


def stop(process: subprocess.Popen) -> None:
    """Terminate a process; kill it after ten seconds."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---- control requests ----


def admit(folder: Path, key: Path, name: str | None = None) -> str:
    """Admit a node's key, now if the SuperLink runs and at every later start.

    Parameters
    ----------
    folder : Path
        The link's folder.
    key : Path
        The node's public key.
    name : str or None, default=None
        The node's name, which its node.toml must have too; None for the name in the key's file, or the file's own name.

    Returns
    -------
    str
        The name it is admitted under.
    """
    public = keys.read_public_key(key)
    name = name or keys.name_in(key) or key.stem
    if not NAME.fullmatch(name):
        raise BadParameter(f"{name!r} cannot be a node's name: use letters, digits, '-', '_', '.' and spaces")
    target = folder / "admitted" / f"{name}.pub"
    content = key.read_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    renamed = [p for p in _files_of(public, folder) if p != target]
    for old in renamed:
        old.unlink()
    write_file(target, content)
    with suppress(RunError, FileNotFoundError):
        register(Link.open(folder), public, name, again=bool(renamed))
    return name


def _files_of(key: ec.EllipticCurvePublicKey, folder: Path) -> list[Path]:
    """The files under which this key is admitted."""
    files = sorted((folder / "admitted").glob("*.pub"))
    return [p for p in files if public_key_to_bytes(keys.read_public_key(p)) == public_key_to_bytes(key)]


def register(link: Link, key: ec.EllipticCurvePublicKey, name: str, again: bool = False) -> None:
    """Register a key at a running SuperLink.

    With `again`, the key's earlier registration is dropped first, and its node reconnects.
    """

    def call() -> None:
        """Send the requests."""
        with client(ControlHttpClient, link, "flwr") as control:
            for node in control.ListNodes(ListNodesRequest()).nodes_info if again else ():
                if node.public_key == public_key_to_bytes(key):
                    control.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
            control.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name))

    try:
        explained(link, call)
    except RunError as error:
        cause = error.__cause__
        known = isinstance(cause, httpx.HTTPStatusError) and FlowerError.from_json(cause.response.text)
        if not (known and "in use" in known.message.lower()):
            raise


def nodes(link: Link) -> list[dict]:
    """Every node the SuperLink knows: id, name, status and since when."""
    with client(ControlHttpClient, link, "flwr") as control:
        found = control.ListNodes(ListNodesRequest()).nodes_info
    return [{"id": n.node_id, "name": n.name, "status": n.status, "since": n.last_activated_at} for n in found]


def runs(link: Link) -> list[dict]:
    """Every Flower run since the SuperLink started, the latest first: id, status and since when."""
    with client(ControlHttpClient, link, "flwr") as control:
        found = control.ListRuns(ListRunsRequest()).run_dict
    rows = [{"id": r.run_id, "status": r.status.status, "since": r.starting_at or r.pending_at} for r in found.values()]
    return sorted(rows, key=lambda r: r["since"], reverse=True)
