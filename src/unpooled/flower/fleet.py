"""A node's process on Flower's fleet connection: it holds the data, answers at once, and reconnects when the SuperLink goes away.

Flower's own SuperNode looks for messages every 3 s and starts a process for each; here a message costs a few requests.
These are Flower's internals (version 1.41, pinned): all of the node's side is in this file.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, push_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from unpooled.errors import RunError
from unpooled.flower import objects
from unpooled.flower.app import respond
from unpooled.node.site import Site
from unpooled.remote.link import Link

log = logging.getLogger("unpooled.node")

POLL = 0.02  # seconds between looks while a run is on
IDLE_POLL = 0.5  # and when nothing came for a while
IDLE_AFTER = 30.0
RECONNECT = (0.2, 5.0)  # first and longest pause
HEARTBEAT = 10  # seconds; Flower forgets a node after two that did not come
REFUSED = 30.0  # seconds of refusals before giving up: longer than the heartbeat of this node's last process

Key = ec.EllipticCurvePrivateKey


class Turned(RunError):
    """The SuperLink will not have this node: waiting does not help."""


def run(site: Site, link: Link, key: Key | None, stop: threading.Event) -> None:
    """Answer until `stop` is set; a SuperLink that is away is waited for, one that turns the node away is an error."""
    pause, key, refused = RECONNECT[0], key or generate_key_pairs()[0], 0.0
    while not stop.is_set():
        try:
            with _Connection(link, key) as connection:
                log.info("%s is connected to %s", site.name, link.address)
                pause, refused = RECONNECT[0], 0.0
                _serve(site, connection, stop)
        except httpx.HTTPStatusError as error:
            refused = refused or time.monotonic()
            why = _refusal(error, site, link)
            if time.monotonic() - refused > REFUSED:
                raise Turned(why) from error
            log.info("%s; trying again in %.1f s", why, pause)
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Turned(
                    f"the certificate of {link.address} is not to be trusted: {error}; check `ca` in node.toml"
                ) from error
            log.info("the SuperLink at %s cannot be reached: trying again in %.1f s", link.address, pause)
        stop.wait(pause)
        pause = min(2 * pause, RECONNECT[1])


def _refusal(error: httpx.HTTPStatusError, site: Site, link: Link) -> str:
    """A stock SuperLink says the same of a key it does not know and of a node whose last process it still believes in."""
    code = error.response.status_code
    remedy = "have its key admitted with `unpooled serve admit`" if code in (401, 403, 412) else "is it overloaded?"
    return f"{link.address} turned {site.name!r} away ({code}: {_reason(error)}): {remedy}"


def _reason(error: Exception) -> str:
    """What Flower says, where it says something."""
    if not isinstance(error, httpx.HTTPStatusError):
        return str(error)[:200]
    flower = FlowerError.from_json(error.response.text)
    return flower.message if flower else error.response.text[:200]


def _serve(site: Site, connection: _Connection, stop: threading.Event) -> None:
    last = time.monotonic()
    while not stop.is_set():
        connection.beat()
        found = connection.look()
        if not found.messages_list:
            stop.wait(POLL if time.monotonic() - last < IDLE_AFTER else IDLE_POLL)
            continue
        try:
            connection.push(respond(site, connection.fetch(found)))
        except httpx.TransportError:
            raise
        except Exception as error:  # its run has ended while it travelled, or its sender was killed: the node goes on
            log.info("a message was left (%s): %s", type(error).__name__, _reason(error))
        last = time.monotonic()


class _Connection:
    """An activated node: messages in, replies out, a heartbeat in between."""

    def __init__(self, link: Link, key: Key):
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        self.client = FleetHttpClient.from_server_address(link.address, link.ca is None, link.ca, interceptors)
        self.public, self.open_link = public_key_to_bytes(key.public_key()), link.ca is None

    def __enter__(self) -> _Connection:
        try:
            if self.open_link:
                self.client.RegisterNode(RegisterNodeFleetRequest(public_key=self.public))
            request = ActivateNodeRequest(public_key=self.public, heartbeat_interval=HEARTBEAT)
            self.node = Node(node_id=self.client.ActivateNode(request).node_id)
        except BaseException:
            self.client.close()
            raise
        self.beaten = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beats, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        try:
            self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))
        except (httpx.HTTPError, RuntimeError):
            log.debug("the SuperLink is away: it will find out by the missing heartbeat")
        self.client.close()

    def _beats(self) -> None:
        """A heartbeat while a question is being computed."""
        while not self._stop.wait(HEARTBEAT * 0.7):
            try:
                self.client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT))
                self.beaten = time.monotonic()
            except (httpx.HTTPError, RuntimeError) as error:
                log.debug("no heartbeat: %s", error)

    def beat(self) -> None:
        """Give the connection up when the SuperLink has not taken a heartbeat for long: it has forgotten this node."""
        if time.monotonic() - self.beaten > 3 * HEARTBEAT:
            raise httpx.ReadTimeout("no heartbeat was taken")

    def look(self) -> PullMessagesResponse:
        """At most one message, without its objects."""
        return self.client.PullMessages(PullMessagesRequest(node=self.node))

    def fetch(self, found: PullMessagesResponse) -> Message:
        """The whole message."""
        run, tree = found.messages_list[0].metadata.run_id, found.message_object_trees[0]
        pull_object = make_pull_object_fn_protobuf(self.client.PullObject, self.node, run)
        contents = objects.pull([node.object_id for node in iterate_object_tree(tree)], pull_object)
        make_confirm_message_received_fn_protobuf(self.client.ConfirmMessageReceived, self.node, run)(tree.object_id)
        message = inflate_object_from_contents(tree.object_id, contents)
        message.metadata.__dict__["_message_id"] = tree.object_id  # type: ignore[attr-defined]
        return message  # type: ignore[return-value]

    def push(self, reply: Message) -> None:
        run = reply.metadata.run_id
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            answer = self.client.PushMessages(request)
            send = make_push_object_fn_protobuf(self.client.PushObject, self.node, run, answer.session_id)
            push_objects(get_all_nested_objects(reply), send, object_ids_to_push=set(answer.objects_to_push))
