"""Where a node keeps what must survive it: bytes by name, in memory or in a folder. Nothing here is ever sent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from unpooled import wire
from unpooled.errors import RunError
from unpooled.node.questions import Refused
from unpooled.store import write_file
from unpooled.tree import Tree

KEPT_RUNS = 5
MARK_BYTES = 32  # the checksum before each value

Vault = MutableMapping[str, bytes]  # "run/what" -> content

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64})?")


class Folder(MutableMapping[str, bytes]):
    """A vault in a folder: a write is whole or not there, and one process at a time holds it."""

    def __init__(self, folder: Path):
        """Take the folder for this process alone; a second node on the same folder is refused."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)  # held as long as the process lives
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(
                f"{folder} is in use by another node: stop it, or give this one its own state folder"
            ) from error

    def _path(self, key: str) -> Path:
        """The file of a key; keys that could leave the folder do not exist."""
        if not _SAFE.fullmatch(key):
            raise KeyError(key)
        return self.folder / key

    def __getitem__(self, key: str) -> bytes:
        """The bytes kept under `key`; an error that names the file when they were damaged."""
        try:
            stored = self._path(key).read_bytes()
        except OSError as error:
            raise KeyError(key) from error
        mark = stored[:MARK_BYTES]
        content = stored[MARK_BYTES:]
        if hashlib.sha256(content).digest() != mark:
            raise RunError(
                f"{self._path(key)} is damaged: put it back from a backup, or delete it and start the run anew"
            )
        return content

    def __setitem__(self, key: str, content: bytes) -> None:
        """Keep bytes with their SHA-256 ahead of them, readable by the owner alone."""
        write_file(self._path(key), hashlib.sha256(content).digest() + content, secret=True)

    def __delitem__(self, key: str) -> None:
        """Forget what is kept under `key`."""
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[str]:
        """All keys, sorted."""
        for path in sorted(self.folder.rglob("*")):
            key = path.relative_to(self.folder).as_posix()
            if path.is_file() and _SAFE.fullmatch(key):
                yield key

    def __len__(self) -> int:
        """How many keys there are."""
        return sum(1 for _ in self)

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)


def forget_old_runs(vault: Vault, keep: int = KEPT_RUNS) -> None:
    """Drop all but the latest runs of a folder; a vault in memory ends with its process."""
    if not isinstance(vault, Folder):
        return
    runs = sorted((p for p in vault.folder.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    for old in runs[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def identity(vault: Vault) -> str:
    """A random word that this vault's node is known by across restarts, so that two nodes with one name are told apart."""
    if "identity" not in vault:
        vault["identity"] = secrets.token_hex(16).encode()
    return vault["identity"].decode()


# ---- a client's state, by run and round ----


def load_state(vault: Vault, request: dict[str, Any], name: str) -> dict[str, Tree]:
    """The client's state after round `base` of a request, empty for 0; Refused if the node no longer has it."""
    if request["base"] == 0:
        return {}
    key = f"{request['run']}/state-{request['base']}"
    if key not in vault:
        raise Refused(f"{name!r} no longer has its state after round {request['base']}: start the run anew")
    return wire.unpack(vault[key]).value()


def keep_state(vault: Vault, request: dict[str, Any], state: dict[str, Tree]) -> bool:
    """Keep the state as that of this round, if the question changed it; forget what no checkpoint can ask for."""
    run = request["run"]
    base = request["base"]
    if not (state or base):
        return False
    content = wire.pack({}, state)
    before = vault.get(f"{run}/state-{base}", wire.pack({}, {}))
    if content != before:
        vault[f"{run}/state-{request['round']}"] = content
        for key in [k for k in vault if k.startswith(f"{run}/state-")]:
            if int(key.rpartition("-")[2]) < min(request["floor"], base):
                del vault[key]
    return content != before
