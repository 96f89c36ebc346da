"""A message's objects (its record, its chunks) as they arrive at the SuperLink, one by one, some time after the message itself.

Flower looks for an object that is late after one second, then ten, for two hours. Here: after 20 ms, and as long as objects come; who
was killed half-way through sending must not keep the other side waiting. The message is then lost, and what it asked is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import flwr.superlink.grid.http_grid as http_grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError, pull_objects

STALLED = 5.0  # seconds without any object


def pull(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **how: Any) -> dict[str, bytes]:
    """The contents by id; ObjectPullError when one is not there, or nothing came for `STALLED` seconds."""
    last = time.monotonic()

    def fetch(object_id: str) -> bytes:
        nonlocal last
        try:
            content = pull_object_fn(object_id)
        except ObjectUnavailableError:
            if time.monotonic() - last > STALLED:
                raise ObjectPullError(object_id, f"nothing came for {STALLED:g} s") from None
            raise
        last = time.monotonic()
        return content

    return pull_objects(
        object_ids,
        fetch,
        max_time=None,
        max_tries_per_object=None,
        **{"initial_backoff": 0.02, "backoff_cap": 0.5, **how},
    )


http_grid.pull_objects = pull  # type: ignore[attr-defined]  # every grid, be it ours or that of `flwr run`
