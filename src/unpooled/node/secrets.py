"""What a node keeps for layers: its long-term secret, its key, and its side of masked sums. Nothing here is ever sent."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from unpooled.errors import BadParameter, DataNotFound
from unpooled.node.vault import Vault

SECRET = "secret"


class Secrets(MutableMapping[str, bytes]):
    """The secrets of one run in a node's vault, as `Client.secrets` shows them to layers."""

    def __init__(self, vault: Vault, run: str, **settings: Any):
        """The secrets of `run` in the node's vault; `settings` are the node's own, such as its identity."""
        self._vault, self._run, self._settings = vault, run, settings

    def settings(self) -> dict[str, Any]:
        """What the node's owner decides: its key, the peers' pins, the least cohort."""
        return self._settings

    def _key(self, key: str) -> str:
        """The name in the vault: the node's long-term secret is shared by all runs, others belong to one."""
        return SECRET if key == SECRET else f"{self._run}/secret-{key}"

    def __getitem__(self, key: str) -> bytes:
        """The secret called `key`; the node's long-term secret is made when it is first asked for."""
        if key == SECRET:
            return node_secret(self._vault)
        return self._vault[self._key(key)]

    def __setitem__(self, key: str, value: bytes) -> None:
        """Keep a secret of this run."""
        self._vault[self._key(key)] = value

    def __delitem__(self, key: str) -> None:
        """Forget a secret of this run."""
        del self._vault[self._key(key)]

    def __iter__(self) -> Iterator[str]:
        """Names of this run's secrets."""
        prefix = f"{self._run}/secret-"
        return (k.removeprefix(prefix) for k in self._vault if k.startswith(prefix))

    def __len__(self) -> int:
        """How many secrets this run has."""
        return sum(1 for _ in self)


def node_secret(vault: Vault) -> bytes:
    """32 random bytes that belong to this node for as long as its vault lives."""
    if SECRET not in vault:
        vault[SECRET] = secrets.token_bytes(32)
    return vault[SECRET]


def draws_secret(vault: Vault) -> bytes:
    """The secret behind draws that hide something, apart from the one behind noise and masks."""
    return hashlib.sha256(b"draws" + node_secret(vault)).digest()


def read_identity(path: Path) -> Any:
    """A node's private key, which its peers know by its fingerprint."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: `unpooled node keygen` makes a key") from error
    except (ValueError, TypeError) as error:
        raise BadParameter(
            f"{path} is not a private key without a password: `unpooled node keygen` makes one"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadParameter(f"{path} is a key of another kind: `unpooled node keygen` makes the right one")
    return key


class LayerContext(NamedTuple):
    """The fields of `Client` that layers use at a node."""

    letters: Mapping[str, bytes]  # messages of layers for this node alone
    asked: Callable[[], bytes]  # digest of the question
    secrets: Secrets
    draws: bytes  # secret behind draws that hide something; empty for draws from the seed alone

    @property
    def pinned(self) -> bool:
        """Whether all peers' keys are known from the study: otherwise the coordinator could pretend to be the other nodes."""
        return self.secrets.settings().get("pins") is not None


def pins_of(participants: Mapping[str, str], name: str) -> dict[str, str] | None:
    """Every peer's fingerprint; None if any is missing."""
    peers = {n: mark for n, mark in participants.items() if n != name}
    return peers if peers and all(peers.values()) else None
