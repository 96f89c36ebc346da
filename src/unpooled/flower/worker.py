"""A node's process behind a stock SuperNode (`flower-supernode --isolation process`).

The data are read once and questions answered as they come; without this worker every message would start a process. The
SuperNode polls every 3 s, so a round takes some seconds. It uses internals of Flower 1.41 and 1.42.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

import flwr.supercore.inflatable.inflatable_utils as inflatable
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from unpooled.flower.app import respond
from unpooled.flower.clients import beat
from unpooled.node.site import Site
from unpooled.remote.link import Link

log = logging.getLogger("unpooled.node")

POLL = 0.05  # seconds between two polls for a task
RETRY = 1.0  # seconds after a failed poll

# Flower waits a whole second when an object lags its message by a millisecond
for _pull in (inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree):
    _defaults: dict[str, Any] = _pull.__kwdefaults__ or {}
    _defaults.update({k: v for k, v in (("initial_backoff", 0.02), ("backoff_cap", 0.5)) if k in _defaults})


def run(site: Site, address: str, stop: threading.Event) -> None:
    """Answer for the SuperNode whose Runtime API is at `address` (on this machine) until `stop` is set."""
    link = Link(address)
    log.info("%s answers for the SuperNode at %s", site.name, address)
    with _client(link) as free:
        while not stop.is_set():
            try:
                stop.wait(POLL if _one(site, link, free) else 0)
            except Exception as error:  # it cannot be reached, or the message's run has ended: the node goes on
                log.info("poll of the SuperNode failed (%s): trying again", type(error).__name__)
                stop.wait(RETRY)


def _client(link: Link, *more: Any) -> RuntimeHttpClient:
    """An HTTP client of the SuperNode's Runtime API."""
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec"), *more]
    return RuntimeHttpClient.from_server_address(link.address, True, None, interceptors=interceptors)


def _one(site: Site, link: Link, free: RuntimeHttpClient) -> bool:
    """Take a task and answer it; returns whether there was none."""
    task = free.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
    if not (task.HasField("task") and task.token):
        return True
    with _client(link, RuntimeTokenHttpInterceptor(task.token)) as client:
        heart = HeartbeatSender(partial(beat, client))
        heart.start()
        try:
            message, context, *_ = pull_task_input(client)
            push_message(client, respond(site, message), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        finally:
            heart.stop()
    return False
