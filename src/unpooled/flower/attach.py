"""The coordinator in our own process: start a run at a SuperLink, take its task, use its grid until the fit is done.

It uses internals of Flower 1.41 and 1.42; those of the coordinator's side are all in this file. Attaching takes 0.1 to
0.2 s.
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
from flwr.app.message import remove_content_from_message
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import Status, SubStatus
from flwr.common.serde import fab_to_proto, message_to_proto, run_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StopRunRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError, push_objects
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from unpooled.errors import RunError
from unpooled.flower import bundle
from unpooled.flower.clients import BundledClient, Headers, beat, client, patient
from unpooled.flower.longpoll import WAIT_HEADER
from unpooled.flower.transport import Flower
from unpooled.remote.keys import expired
from unpooled.remote.link import Link
from unpooled.remote.transport import Peer

MANY = 10  # when more replies are awaited, wait `GATHER` so that one request fetches several
GATHER = 0.1  # seconds
STOCK_POLL = 0.05  # seconds between two polls of a stock SuperLink

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
def connect(link: Link, **options: Any) -> Iterator[Flower]:
    """A federation over the nodes of a SuperLink, for one run: `with connect(link) as fed: model.fit(fed)`.

    Parameters
    ----------
    link : Link
        Where the SuperLink is.
    **options
        Options of `unpooled.remote.Remote`.

    Yields
    ------
    Flower
        The federation.
    """
    with link.driver(), attached(link) as grid:
        yield Flower(grid, **options)


class LinkGrid(http_grid.HttpGrid):
    """Flower's grid with the link's token, bundles, long polling, and connection errors as one sentence."""

    def __init__(self, link: Link, token: str):
        """The grid of a run at `link`, by the run's token."""
        super().__init__(link.address, link.ca is None, link.ca, token=token)
        self._link = link
        self._wait = Headers({})

    def _connect(self) -> None:
        """Make the HTTP client of this grid."""
        own = RuntimeTokenHttpInterceptor(self._token)
        kind = BundledClient if self._link.token else RuntimeHttpClient
        self._client = client(kind, self._link, "flwr-serverapp", own, self._wait, retry=patient())

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the nodes that are online."""
        return explained(self._link, super().get_node_ids, STOPPED)

    def peers(self) -> list[Peer]:
        """Every registered node, with the name its key was admitted under."""
        online = {n.node_id: n.name for n in explained(self._link, super().get_nodes, STOPPED)}
        admitted = set()
        if self._link.folder:
            admitted = {key.stem for key in self._link.folder.glob("admitted/*.pub")}
        missing = sorted(admitted - set(online.values()))
        connected = [Peer(node, name) for node, name in online.items()]
        return connected + [Peer(-1 - i, name, online=False) for i, name in enumerate(missing)]

    def problem(self) -> str:
        """A sentence if the server's certificate has expired."""
        return expired(self._link.folder) if self._link.ca is not None else ""

    def wait_messages(self, message_ids: list[str], seconds: float) -> Iterable[Message]:
        """Replies to these messages; the SuperLink holds the request until there are some, at most `seconds`."""
        start = time.monotonic()
        if len(message_ids) > MANY and seconds > 0:
            time.sleep(min(GATHER, seconds))  # a request per reply would cost more than the wait
        self._wait.headers[WAIT_HEADER] = f"{max(0.0, seconds):.3f}"
        try:
            found = list(self.pull_messages(message_ids))
        finally:
            self._wait.headers.clear()
        left = seconds - (time.monotonic() - start)
        if not found and left > 0:  # a stock SuperLink answers at once
            time.sleep(min(left, STOCK_POLL))
        return found

    def _try_push_messages(self, run_id: int, messages: Iterable[Message]) -> list[str]:
        """Push messages with their objects in one request, if the SuperLink is one of ours."""
        if not self._link.token:
            return super()._try_push_messages(run_id, messages)
        sent = list(messages)
        protos = [message_to_proto(remove_content_from_message(m)) for m in sent]
        groups = [get_all_nested_objects(m) for m in sent]
        bundle.fill(protos, groups)
        trees = [get_object_tree(m) for m in sent]
        request = PushAppMessagesRequest(messages_list=protos, message_object_trees=trees)
        response = self._runtime_client.PushMessages(request)
        push = make_push_object_fn_protobuf(self._runtime_client.PushObject, self.node, run_id, response.session_id)
        objects = {i: o for group in groups for i, o in group.items()}
        push_objects(objects, push, object_ids_to_push=set(response.objects_to_push))
        return list(response.message_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages and return their ids; an empty id for a message that the SuperLink did not take."""
        sent = list(messages)
        try:
            return explained(self._link, partial(super().push_messages, sent), STOPPED)
        except ObjectPushError:
            return [""] * len(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there to these messages."""
        return explained(self._link, partial(super().pull_messages, message_ids), STOPPED)


@contextmanager
def attached(link: Link) -> Iterator[LinkGrid]:
    """A grid in a run of its own; the run ends with the block, as completed or failed."""
    run = explained(link, lambda: _start(link))
    grid = _take_task(link, run)
    heart = HeartbeatSender(partial(beat, grid._runtime_client))
    heart.start()
    status = SubStatus.FAILED
    details = "stopped"
    try:
        yield grid
        status = SubStatus.COMPLETED
        details = ""
    finally:
        heart.stop()
        _finish(grid, status, details or str(sys.exc_info()[1])[:200])


def _start(link: Link) -> int:
    """Start a run at the SuperLink; returns its id."""
    with client(ControlHttpClient, link, "flwr") as control:
        if link.folder is not None:  # the link is locked: no other coordinator can be running
            _end_left_runs(control)
        fab = _app()
        proto = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        return control.StartRun(StartRunRequest(fab=proto)).run_id


def _end_left_runs(control: ControlHttpClient) -> None:
    """Stop runs whose coordinator was killed.

    For a minute Flower considers them alive, and nodes wait for their messages.
    """
    for run in control.ListRuns(ListRunsRequest()).run_dict.values():
        if run.fab_id == FAB_ID and run.status.status != Status.FINISHED:
            with suppress(httpx.HTTPStatusError):  # it has just ended
                control.StopRun(StopRunRequest(run_id=run.run_id))


@cache
def _app() -> bytes:
    """The Flower app bundle that every run names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own use of what its libraries have deprecated
        return build_fab_from_files(APP)[0]


def _take_task(link: Link, run: int) -> LinkGrid:
    """The grid of our run; tasks of runs whose coordinator ended too early are ended on the way."""
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
                TaskIdentity.task_id = task.task_id
                TaskIdentity.run_id = run
                TaskIdentity.node_id = task.context.node_id
                grid.set_run(run_from_proto(task.run))
                return grid
            _finish(grid, SubStatus.FAILED, "left by its coordinator")
    raise RunError(f"the SuperLink at {link.address} gave no task within 30 s: is another coordinator using it?")


def _finish(grid: LinkGrid, status: str, details: str) -> None:
    """Report the end of the run to the SuperLink and close the grid."""
    try:
        grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
    except httpx.HTTPError:
        pass  # the SuperLink is gone, and with it the run
    finally:
        grid.close()


def explained(link: Link, call: Any, denied: str = TOKEN) -> Any:
    """Call, and turn Flower's connection errors into one sentence; `denied` is what a 401 means here."""
    try:
        return call()
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        why = denied if code == 401 else error.response.text[:200]
        raise RunError(f"the SuperLink at {link.address} refuses ({code}): {why}") from error
    except httpx.TransportError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            why = expired(link.folder) or f"its certificate is not valid here: {error}"
            raise RunError(f"the SuperLink at {link.address} cannot be trusted: {why}") from error
        raise RunError(
            f"the SuperLink at {link.address} cannot be reached ({error}): is `unpooled serve` running?"
        ) from error
