"""How to wait for the objects of a message (its records, their chunks), which arrive after the message.

Flower retries a late object after one second, then ten, for two hours. Here it is retried after 20 ms, and given up
when no object has come for some seconds: a sender that was killed must not keep the other side waiting. The message is
then reported as lost, and the question is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import flwr.superlink.grid.http_grid as http_grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError, pull_objects

STALLED = 5.0  # seconds without any object after which a message counts as lost


def pull(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> dict[str, bytes]:
    """Pull objects: their contents by id.

    Parameters
    ----------
    object_ids : list of str
        The objects to pull.
    pull_object_fn : callable
        Returns the content of an object; raises ObjectUnavailableError while it has not arrived.
    **options
        Options of Flower's `pull_objects`.

    Returns
    -------
    dict of str to bytes
        The contents by id.

    Raises
    ------
    ObjectPullError
        If an object does not exist, or if none came for `STALLED` seconds.
    """
    last = time.monotonic()

    def fetch(object_id: str) -> bytes:
        """One object; gives up once none has come for `STALLED` seconds."""
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
        **{"initial_backoff": 0.02, "backoff_cap": 0.5, **options},
    )


http_grid.pull_objects = pull  # type: ignore[attr-defined]  # for every grid: ours and that of `flwr run`
