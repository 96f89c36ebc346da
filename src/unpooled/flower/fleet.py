"""A node's process on Flower's fleet connection: holds the data, answers at once, reconnects by itself.

Flower's own SuperNode polls every 3 s and starts a process per message; here a message takes two requests. Questions
are answered in a thread, so that the process obeys signals while it computes. It uses internals of Flower 1.41 and
1.42; those of the node's side are all in this file.
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
from unpooled.flower import bundle, objects
from unpooled.flower.app import respond
from unpooled.flower.clients import Headers
from unpooled.flower.longpoll import WAIT_HEADER
from unpooled.node.site import Site
from unpooled.remote.link import Link

log = logging.getLogger("unpooled.node")

POLL = 0.02  # seconds between two polls of a stock SuperLink during a run
IDLE_POLL = 0.5  # the same when no message came for `IDLE_AFTER` seconds
IDLE_AFTER = 30.0
WAIT = 15.0  # seconds that our SuperLink may hold a request for messages
RECONNECT = (0.2, 5.0)  # seconds: first and longest pause before connecting again
HEARTBEAT = 10  # seconds; Flower considers a node offline after two missing ones
REFUSED = 30.0  # seconds of refusals before giving up: until then the node's last process may count as online
GRACE = 2.0  # seconds that an answer may take to finish once the node is told to stop

Key = ec.EllipticCurvePrivateKey


class NodeRejected(RunError):
    """The SuperLink does not accept this node, and waiting does not help."""


def run(site: Site, link: Link, key: Key | None, stop: threading.Event) -> None:
    """Answer until `stop` is set.

    Parameters
    ----------
    site : Site
        Answers the questions.
    link : Link
        Where the SuperLink is. One that cannot be reached is waited for; one that rejects the node raises NodeRejected.
    key : private key or None
        The node's admitted key; None for a new one, at a SuperLink without TLS.
    stop : threading.Event
        Ends the loop. An answer that is being computed has `GRACE` seconds to finish and is then abandoned: its thread
        does not keep the process alive.
    """
    loop = _Loop(site, link, key or generate_key_pairs()[0], stop)
    threading.Thread(target=loop.run, name=f"node {site.name}", daemon=True).start()
    while not loop.ended.wait(0.2):
        if stop.is_set():
            loop.leave()
            return
    if loop.failure is not None:
        raise loop.failure


class _Loop:
    """The node's work, in a separate thread: stay connected and answer."""

    def __init__(self, site: Site, link: Link, key: Key, stop: threading.Event):
        """Answer for `site` over `link` until `stop` is set."""
        self.site = site
        self.link = link
        self.key = key
        self.stop = stop
        self.ended = threading.Event()
        self.idle = threading.Event()
        self.failure: BaseException | None = None
        self.connection: _Connection | None = None

    def run(self) -> None:
        """Work until told to stop; an error is kept in `failure`."""
        try:
            _keep_connected(self)
        except BaseException as error:
            self.failure = error
        finally:
            self.ended.set()

    def leave(self) -> None:
        """Close the connection once the current answer is sent, or after `GRACE` seconds."""
        if not self.idle.wait(GRACE):
            log.warning("%s stops while a question is being answered: the answer is not sent", self.site.name)
        connection = self.connection
        if connection is not None:
            connection.close()


def _keep_connected(loop: _Loop) -> None:
    """Connect and serve, again and again; NodeRejected after `REFUSED` seconds of refusals."""
    site = loop.site
    link = loop.link
    stop = loop.stop
    pause = RECONNECT[0]
    refused = 0.0
    while not stop.is_set():
        loop.idle.set()
        try:
            with _Connection(link, loop.key) as loop.connection:
                log.info("%s is connected to %s", site.name, link.address)
                pause = RECONNECT[0]
                refused = 0.0
                _serve(site, loop.connection, stop, loop.idle)
        except httpx.HTTPStatusError as error:
            refused = refused or time.monotonic()
            why = _refusal(error, site, link)
            if time.monotonic() - refused > REFUSED:
                raise NodeRejected(why) from error
            log.info("%s; trying again in %.1f s", why, pause)
        except httpx.TransportError as error:
            log.info("%s: trying again in %.1f s", _unreachable(error, link), pause)
        if stop.wait(pause):
            return
        pause = min(2 * pause, RECONNECT[1])


def _refusal(error: httpx.HTTPStatusError, site: Site, link: Link) -> str:
    """Why the SuperLink refuses, and what to do.

    A stock SuperLink gives the same reason for an unknown key and for a node whose last process still counts as online.
    """
    code = error.response.status_code
    remedy = "have its key admitted with `unpooled serve admit`" if code in (401, 403, 412) else "is it overloaded?"
    return f"{link.address} rejected {site.name!r} ({code}: {_reason(error)}): {remedy}"


def _unreachable(error: httpx.TransportError, link: Link) -> str:
    """Why there is no connection; raises NodeRejected for a certificate that will not become valid."""
    text = str(error)
    if "certificate has expired" in text:
        return f"the certificate of {link.address} has expired: ask the coordinator to run `unpooled serve renew`"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        raise NodeRejected(
            f"the certificate of {link.address} is not to be trusted: {error}; check `ca` in node.toml"
        ) from error
    return f"the SuperLink at {link.address} cannot be reached"


def _reason(error: Exception) -> str:
    """Flower's message, if the error has one."""
    if not isinstance(error, httpx.HTTPStatusError):
        return str(error)[:200]
    flower = FlowerError.from_json(error.response.text)
    return flower.message if flower else error.response.text[:200]


def _serve(site: Site, connection: _Connection, stop: threading.Event, idle: threading.Event) -> None:
    """Answer messages one after another; `idle` is set while none is being answered."""
    last = time.monotonic()
    while not stop.is_set():
        connection.check_heartbeat()
        found = connection.poll()
        if not found.messages_list:
            if not connection.held:
                stop.wait(POLL if time.monotonic() - last < IDLE_AFTER else IDLE_POLL)
            continue
        idle.clear()
        try:
            connection.push(respond(site, connection.fetch(found)))
        except httpx.TransportError:
            raise
        except Exception as error:  # its run has ended meanwhile, or its sender was killed: the node goes on
            log.info("a message was dropped (%s): %s", type(error).__name__, _reason(error))
        finally:
            idle.set()
        last = time.monotonic()


class _Connection:
    """The connection of an activated node: messages in, replies out, heartbeats in a thread."""

    bundles = False  # whether the SuperLink has bundled a message's objects, so that it takes bundles too
    held = False  # whether it has held the last request for messages

    def __init__(self, link: Link, key: Key):
        """A connection that signs every request with the node's key."""
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
            Headers({WAIT_HEADER: str(WAIT)}),
        ]
        self.client = FleetHttpClient.from_server_address(link.address, link.ca is None, link.ca, interceptors)
        self.public = public_key_to_bytes(key.public_key())
        self.insecure = link.ca is None

    def __enter__(self) -> _Connection:
        """Activate the node and start its heartbeat."""
        try:
            if self.insecure:
                self.client.RegisterNode(RegisterNodeFleetRequest(public_key=self.public))
            request = ActivateNodeRequest(public_key=self.public, heartbeat_interval=HEARTBEAT)
            self.node = Node(node_id=self.client.ActivateNode(request).node_id)
        except BaseException:
            self.client.close()
            raise
        self.last_heartbeat = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Tell the SuperLink that this node leaves, and close the connection."""
        if self._stop.is_set():
            return
        self._stop.set()
        try:
            self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))
        except (httpx.HTTPError, RuntimeError):
            log.debug("the SuperLink cannot be reached: it will notice the missing heartbeat")
        self.client.close()

    def _send_heartbeats(self) -> None:
        """Send heartbeats, also while a question is being answered."""
        while not self._stop.wait(HEARTBEAT * 0.7):
            try:
                self.client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT))
                self.last_heartbeat = time.monotonic()
            except (httpx.HTTPError, RuntimeError) as error:
                log.debug("heartbeat failed: %s", error)

    def check_heartbeat(self) -> None:
        """Raise ReadTimeout when no heartbeat was accepted for long: the SuperLink considers this node offline."""
        if time.monotonic() - self.last_heartbeat > 3 * HEARTBEAT:
            raise httpx.ReadTimeout("no heartbeat was accepted")

    def poll(self) -> PullMessagesResponse:
        """At most one message; our SuperLink holds the request until there is one."""
        start = time.monotonic()
        found = self.client.PullMessages(PullMessagesRequest(node=self.node, message_ids=[bundle.MARK]))
        self.held = time.monotonic() - start > WAIT / 2
        return found

    def fetch(self, found: PullMessagesResponse) -> Message:
        """The whole message, with the objects that belong to it."""
        tree = found.message_object_trees[0]
        contents = bundle.take(found.messages_list[0])
        self.bundles = self.bundles or bool(contents)
        contents = contents or self._pull_objects(found)
        message = inflate_object_from_contents(tree.object_id, contents)
        message.metadata.__dict__["_message_id"] = tree.object_id  # type: ignore[attr-defined]
        return message  # type: ignore[return-value]

    def _pull_objects(self, found: PullMessagesResponse) -> dict[str, bytes]:
        """Pull the objects of a message one by one, as a stock SuperLink requires."""
        run = found.messages_list[0].metadata.run_id
        tree = found.message_object_trees[0]
        pull_object = make_pull_object_fn_protobuf(self.client.PullObject, self.node, run)
        contents = objects.pull([node.object_id for node in iterate_object_tree(tree)], pull_object)
        make_confirm_message_received_fn_protobuf(self.client.ConfirmMessageReceived, self.node, run)(tree.object_id)
        return contents

    def push(self, reply: Message) -> None:
        """Send a reply; small objects go in the same request if the SuperLink is one of ours."""
        run = reply.metadata.run_id
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            proto = message_to_proto(remove_content_from_message(reply))
            nested = get_all_nested_objects(reply)
            if self.bundles:
                bundle.fill([proto], [nested])
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[proto],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            answer = self.client.PushMessages(request)
            send = make_push_object_fn_protobuf(self.client.PushObject, self.node, run, answer.session_id)
            push_objects(nested, send, object_ids_to_push=set(answer.objects_to_push))
