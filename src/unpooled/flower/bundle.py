"""A message's objects inside the message itself: one request where Flower makes one per object.

Flower stores a message as a tree of objects (the message, its records, their chunks), and both sides push and pull them
one by one: nine requests per node and question. Here small objects travel in the otherwise unused `content` field of
the message's protobuf, so a node makes two requests per question. Large objects are sent as usual. Only a SuperLink
started by `unpooled serve` bundles; a stock one ignores `MARK`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

MARK = "unpooled-bundle"  # key of the record with the objects; among the ids of a pull request, it asks for bundles
LIMIT = 8 * 2**20  # bytes of objects in one request or response


def put(proto: Any, contents: dict[str, bytes]) -> None:
    """Store objects (id -> bytes) in a message's protobuf."""
    proto.content.CopyFrom(recorddict_to_proto(RecordDict({MARK: ConfigRecord({**contents})})))


def take(proto: Any) -> dict[str, bytes]:
    """Remove the objects from a message's protobuf; empty if it has none."""
    if not proto.HasField("content"):
        return {}
    record: Any = recorddict_from_proto(proto.content).get(MARK)
    if record is None:
        return {}
    proto.content.Clear()
    proto.content.SetInParent()  # Flower expects an empty content, not a missing one
    return {key: content for key, content in record.items() if isinstance(content, bytes)}


def fill(protos: Iterable[Any], groups: Iterable[dict[str, Any]]) -> None:
    """Put into each message the objects of its group (id -> Flower object) that no earlier message carries."""
    seen: set[str] = set()
    room = LIMIT
    for proto, group in zip(protos, groups):
        contents = {i: o.deflate() for i, o in group.items() if i not in seen}
        size = sum(map(len, contents.values()))
        if size <= room:
            put(proto, contents)
            seen |= set(contents)
            room -= size


# ---- at the SuperLink ----


def accepting(push: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler of pushed messages, so that it also stores the objects bundled with them."""

    @wraps(push)
    def pushed(*args: Any, **kwargs: Any) -> Any:
        """Store the bundled objects; only missing ones remain to be pushed."""
        call = signature(push).bind(*args, **kwargs).arguments
        request = call["request"]
        state = call["state"]
        contents = {i: c for proto in request.messages_list for i, c in take(proto).items()}
        response = push(*args, **kwargs)
        missing = []
        for i in response.objects_to_push:
            run = request.messages_list[0].metadata.run_id
            if not (i in contents and state.store_object(run, response.session_id, i, contents[i])):
                missing.append(i)
        del response.objects_to_push[:]
        response.objects_to_push.extend(missing)
        return response

    return pushed


def supplying(pull: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler of pulled messages, so that it bundles their objects for those who ask with `MARK`."""

    @wraps(pull)
    def pulled(*args: Any, **kwargs: Any) -> Any:
        """Bundle the objects of the messages that are complete and small."""
        call = signature(pull).bind(*args, **kwargs).arguments
        request = call["request"]
        state = call["state"]
        wanted = MARK in request.message_ids
        if wanted:
            request.message_ids.remove(MARK)
        response = pull(*args, **kwargs)
        room = LIMIT if wanted else 0
        for proto, tree in zip(response.messages_list, response.message_object_trees):
            contents = _stored(tree, proto.metadata.run_id, state, room)
            if contents:
                put(proto, contents)
                room -= sum(map(len, contents.values()))
                state.object_store.delete(tree.object_id)  # as Flower does when the receiver confirms
        return response

    return pulled


def _stored(tree: Any, run: int, state: Any, room: int) -> dict[str, bytes]:
    """All objects of a message (id -> bytes); empty unless all are stored and fit into `room` bytes."""
    contents: dict[str, bytes] = {}
    for node in iterate_object_tree(tree):
        content = state.get_object(run, node.object_id)
        if not content or len(content) > room:
            return {}
        contents[node.object_id] = content
        room -= len(content)
    return contents
