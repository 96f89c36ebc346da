"""What a node must remember of a run, as bytes for its vault. Sends nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from unpooled.errors import MaskingRefused
from unpooled.secure.messages import Keys, to_array


@dataclass
class SumRecord:
    """The latest sum that this node answered."""

    t: int  # number of the sum in the run, from 1
    digest: bytes  # of the question and the nodes it was asked of
    question: bytes  # digest
    answer: bytes  # digest of this node's own numbers
    cohort: tuple[str, ...]
    held: dict[str, bytes]  # name -> shares of its secrets, this node included
    revealed: tuple[str, ...] | None = None  # who had answered, once shares were given


@dataclass
class NodeState:
    """A node's memory of one run; its long-term secret is not part of it."""

    run: str = ""
    fresh: bytes = b""  # random, drawn once per run: a run that was forgotten and begun again has other keys
    hello: Keys | None = None  # this node's public keys in the run
    roster: dict[str, Keys] = field(default_factory=dict)  # node -> its public keys
    members: tuple[str, ...] = ()
    tag_key: bytes = b""
    last: SumRecord | None = None
    # digest of a question -> digest of the nodes in its total
    unmasked: dict[bytes, bytes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The state as JSON bytes."""
        content = {
            "run": self.run,
            "fresh": self.fresh.hex(),
            "hello": _keys_to_json(self.hello),
            "roster": {name: _keys_to_json(keys) for name, keys in self.roster.items()},
            "members": self.members,
            "tag_key": self.tag_key.hex(),
            "last": _record_to_json(self.last),
            "unmasked": {question.hex(): among.hex() for question, among in self.unmasked.items()},
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> NodeState:
        """The state that `to_bytes` wrote; MaskingRefused if it is damaged."""
        try:
            return cls._from_json(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MaskingRefused("the saved state of the masked sums is damaged: this run cannot go on") from error

    @classmethod
    def _from_json(cls, saved: dict[str, Any]) -> NodeState:
        """The state from parsed JSON."""
        return cls(
            run=saved["run"],
            fresh=bytes.fromhex(saved["fresh"]),
            hello=_keys_from_json(saved["hello"]),
            roster={name: _keys_from_json(keys) for name, keys in saved["roster"].items()},
            members=tuple(saved["members"]),
            tag_key=bytes.fromhex(saved["tag_key"]),
            last=_record_from_json(saved["last"]),
            unmasked={bytes.fromhex(q): bytes.fromhex(among) for q, among in saved["unmasked"].items()},
        )


def _keys_to_json(keys: Keys | None) -> list[str] | None:
    """Keys as hexadecimal strings."""
    return None if keys is None else [part.tobytes().hex() for part in keys]


def _keys_from_json(saved: Any) -> Any:
    """Keys from hexadecimal strings."""
    return None if saved is None else Keys(*[to_array(bytes.fromhex(part)) for part in saved])


def _record_to_json(record: SumRecord | None) -> dict[str, Any] | None:
    """A record as values that JSON can hold."""
    if record is None:
        return None
    return {
        "t": record.t,
        "digest": record.digest.hex(),
        "question": record.question.hex(),
        "answer": record.answer.hex(),
        "cohort": record.cohort,
        "held": {name: shares.hex() for name, shares in record.held.items()},
        "revealed": record.revealed,
    }


def _record_from_json(saved: Any) -> SumRecord | None:
    """The record that `_record_to_json` wrote."""
    if saved is None:
        return None
    return SumRecord(
        t=saved["t"],
        digest=bytes.fromhex(saved["digest"]),
        question=bytes.fromhex(saved["question"]),
        answer=bytes.fromhex(saved["answer"]),
        cohort=tuple(saved["cohort"]),
        held={name: bytes.fromhex(shares) for name, shares in saved["held"].items()},
        revealed=None if saved["revealed"] is None else tuple(saved["revealed"]),
    )
