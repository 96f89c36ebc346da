"""Our bytes in Flower's records and back: one record while small (fewer requests), an array record when large (sent in chunks)."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from unpooled.tree import SchemaError

KEY = "unpooled"
SMALL = 4 * 2**20


def to_records(message: bytes) -> RecordDict:
    if len(message) <= SMALL:
        return RecordDict({KEY: ConfigRecord({"message": message})})
    return RecordDict({KEY: ArrayRecord({"message": Array(np.frombuffer(message, np.uint8))})})


def from_records(content: RecordDict) -> bytes:
    """The bytes; SchemaError for records that are not ours. Flower's arrays are read without pickle."""
    record: Any = content.get(KEY)
    try:
        found = record["message"]
        message = found.numpy().tobytes() if isinstance(record, ArrayRecord) else found
    except (KeyError, TypeError, ValueError, EOFError) as error:
        raise SchemaError("the message's records are not those of unpooled") from error
    if not isinstance(message, bytes):
        raise SchemaError("the message's record holds no bytes")
    return message
