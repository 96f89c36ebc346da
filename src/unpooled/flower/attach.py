"""The coordinator in our own process: start a run at a SuperLink, take its task, and speak through its grid until the fit is done.

These are Flower's internals (version 1.41, pinned): all of the coordinator's side is in this file. Attaching takes 0.1 to 0.2 s.
"""

from __future__ import annotations

import hashlib
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import flwr.superlink.grid.http_grid as http_grid
import httpx
from flwr.app import Message
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import Status, SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StopRunRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http.utils import add_headers
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from unpooled.errors import RunError
from unpooled.flower.transport import Flower
from unpooled.remote.link import TOKEN_HEADER, Link

TOKEN = "the token is wrong: use the link folder of its `unpooled serve`"
STOPPED = "it has ended this run: `unpooled resume` goes on from the last checkpoint"
FAB_ID = "unpooled/unpooled-app"
APP = {
    "pyproject.toml": b"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "unpooled-app"
version = "1.0.0"
description = "unpooled"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "unpooled"
fab-format-version = 1
flwr-version-target = "1.41.0"
[tool.flwr.app.components]
serverapp = "unpooled_app:server"
clientapp = "unpooled_app:client"
[tool.flwr.app.config]
""",
    "unpooled_app/__init__.py": b"from unpooled.flower.app import client, server\n\n__all__ = ['client', 'server']\n",
    "LICENSE": b"Apache-2.0\n",
    "README.md": b"The questions are in the unpooled package at each node; this app only names them.\n",
}


@contextmanager
def connect(link: Link, **how: Any) -> Iterator[Flower]:
    """A federation over the nodes of a SuperLink, for one run: `with connect(link) as fed: model.fit(fed)`. Options as of `Flower`."""
    with link.driver(), attached(link) as grid:
        yield Flower(grid, **how)


class Token:
    """Shows our token at the doors that ask for it."""

    def __init__(self, token: str):
        self.headers = {TOKEN_HEADER: token} if token else {}

    def intercept(self, context: Any, call_next: Any) -> httpx.Response:
        add_headers(context.request, self.headers)
        return call_next(context)


def client(kind: Any, link: Link, component: str, *more: Any, retry: RetryInvoker | None = None) -> Any:
    """One of Flower's HTTP clients, with our token."""
    interceptors = [RuntimeVersionHttpInterceptor(component_name=component), Token(link.token), *more]
    how = {"interceptors": interceptors, "retry_invoker": retry}
    return kind.from_server_address(link.address, link.ca is None, link.ca, **how)


def patient() -> RetryInvoker:
    """Tries again for a minute when the SuperLink is out of reach or stumbles; Flower's own ends the process when a run was stopped."""
    lasting = lambda e: isinstance(e, httpx.HTTPStatusError) and e.response.status_code < 500  # noqa: E731
    faults = (httpx.TransportError, httpx.HTTPStatusError)
    return RetryInvoker(lambda: exponential(0.2, max_delay=5), faults, None, max_time=60, should_giveup=lasting)


def beat(client: RuntimeHttpClient) -> bool:
    """A task's heartbeat. Flower's own function ends the process when the run was stopped; here the next request says so."""
    with suppress(httpx.HTTPError):
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    return True


class LinkGrid(http_grid.HttpGrid):
    """Flower's grid, with our token and our words."""

    def __init__(self, link: Link, token: str):
        super().__init__(link.address, link.ca is None, link.ca, token=token)
        self._link = link

    def _connect(self) -> None:
        own = RuntimeTokenHttpInterceptor(self._token)
        self._client = client(RuntimeHttpClient, self._link, "flwr-serverapp", own, retry=patient())

    def get_node_ids(self) -> Iterable[int]:
        return explained(self._link, super().get_node_ids, STOPPED)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Their ids; an empty one for a message that the SuperLink did not take."""
        sent = list(messages)
        try:
            return explained(self._link, partial(super().push_messages, sent), STOPPED)
        except ObjectPushError:
            return [""] * len(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return explained(self._link, partial(super().pull_messages, message_ids), STOPPED)


@contextmanager
def attached(link: Link) -> Iterator[LinkGrid]:
    """A grid in a run of its own, ended as completed or failed when the block ends."""
    run = explained(link, lambda: _start(link))
    grid = _take_task(link, run)
    heart = HeartbeatSender(partial(beat, grid._runtime_client))
    heart.start()
    status, details = SubStatus.FAILED, "stopped"
    try:
        yield grid
        status, details = SubStatus.COMPLETED, ""
    finally:
        heart.stop()
        _finish(grid, status, details or str(sys.exc_info()[1])[:200])


def _start(link: Link) -> int:
    with client(ControlHttpClient, link, "flwr") as control:
        if link.folder is not None:  # we hold the one place of a driver
            _end_left_runs(control)
        fab = _app()
        proto = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        return control.StartRun(StartRunRequest(fab=proto)).run_id


def _end_left_runs(control: ControlHttpClient) -> None:
    """Runs whose driver was killed: for a minute Flower would take them for alive, and nodes would wait for the rest of their messages."""
    for run in control.ListRuns(ListRunsRequest()).run_dict.values():
        if run.fab_id == FAB_ID and run.status.status != Status.FINISHED:
            with suppress(httpx.HTTPStatusError):  # it has just ended
                control.StopRun(StopRunRequest(run_id=run.run_id))


@cache
def _app() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own use of what its libraries have deprecated
        return build_fab_from_files(APP)[0]


def _take_task(link: Link, run: int) -> LinkGrid:
    """The grid of our run. A run that its driver left before taking its task is ended on the way: there is one driver at a time."""
    end = time.monotonic() + 30
    with client(RuntimeHttpClient, link, "SuperExec") as runtime:
        while time.monotonic() < end:
            found = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if not (found.HasField("task") and found.token):
                time.sleep(0.02)
                continue
            grid = LinkGrid(link, found.token)
            task = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
            if task.run.run_id == run:
                TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, run
                TaskIdentity.node_id = task.context.node_id
                grid.set_run(run_from_proto(task.run))
                return grid
            _finish(grid, SubStatus.FAILED, "left by its driver")
    raise RunError(f"the SuperLink at {link.address} gave no task within 30 s: is another driver using it?")


def _finish(grid: LinkGrid, status: str, details: str) -> None:
    try:
        grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
    except httpx.HTTPError:
        pass  # the SuperLink is gone, and with it the run
    finally:
        grid.close()


def explained(link: Link, call: Any, denied: str = TOKEN) -> Any:
    """Flower's errors of connection as one sentence; `denied` is what a 401 means here."""
    try:
        return call()
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        why = denied if code == 401 else error.response.text[:200]
        raise RunError(f"the SuperLink at {link.address} refuses ({code}): {why}") from error
    except httpx.TransportError as error:
        raise RunError(
            f"the SuperLink at {link.address} cannot be reached ({error}): is `unpooled serve` running?"
        ) from error
