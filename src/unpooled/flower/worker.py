"""A node's process behind a stock SuperNode (`flower-supernode --isolation process`): data read once, questions answered as they come.

The SuperNode looks for messages every 3 s, so a round takes some seconds; without this worker every message would start a process.
Flower's internals (version 1.41, pinned).
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
from unpooled.flower.attach import beat
from unpooled.node.site import Site
from unpooled.remote.link import Link

log = logging.getLogger("unpooled.node")

POLL = 0.05
AWAY = 1.0

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
            except Exception as error:  # it is away, or a message's run has ended while it travelled: the node goes on
                log.info("nothing came of a look at the SuperNode (%s): trying again", type(error).__name__)
                stop.wait(AWAY)


def _client(link: Link, *more: Any) -> RuntimeHttpClient:
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec"), *more]
    return RuntimeHttpClient.from_server_address(link.address, True, None, interceptors=interceptors)


def _one(site: Site, link: Link, free: RuntimeHttpClient) -> bool:
    """Take a task and answer it; whether there was none."""
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
