"""A node's process behind a stock SuperNode (`flower-supernode --isolation process`).

The data are read once and questions answered as they come; without this worker every message would start a process. The
SuperNode polls every 3 s, so a round takes some seconds. This file uses
internals of Flower 1.41 and 1.42.
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

# By default Flower waits a whole second when an object arrives a moment after its message: make the first wait 0.02 s.
for _pull in (inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree):
    _defaults: dict[str, Any] = _pull.__kwdefaults__ or {}
    _defaults.update({k: v for k, v in (("initial_backoff", 0.02), ("backoff_cap", 0.5)) if k in _defaults})


def run(site: Site, address: str, stop: threading.Event) -> None:
    """Answer for the SuperNode whose Runtime API is at `address` (on this machine) until `stop` is set."""
    link = Link(address)
    log.info("%s answers for the SuperNode at %s", site.name, address)
    with _client(link) as client:
        while not stop.is_set():
            try:
                had_task = _answer_one(site, link, client)
                stop.wait(0 if had_task else POLL)
            except Exception as error:  # it cannot be reached, or the message's run has ended: the node goes on
                log.info("poll of the SuperNode failed (%s): trying again", type(error).__name__)
                stop.wait(RETRY)


def _client(link: Link, *more: Any) -> RuntimeHttpClient:
    """An HTTP client of the SuperNode's Runtime API."""
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec"), *more]
    return RuntimeHttpClient.from_server_address(link.address, True, None, interceptors=interceptors)


def _answer_one(site: Site, link: Link, client: RuntimeHttpClient) -> bool:
    """Take a task and answer it; returns whether there was one."""
    task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
    if not (task.HasField("task") and task.token):
        return False
    with _client(link, RuntimeTokenHttpInterceptor(task.token)) as task_client:
        heartbeat = HeartbeatSender(partial(beat, task_client))
        heartbeat.start()
        try:
            message, context, *_ = pull_task_input(task_client)
            push_message(task_client, respond(site, message), context)
            push_task_output(task_client, context, SubStatus.COMPLETED, "")
        finally:
            heartbeat.stop()
    return True
