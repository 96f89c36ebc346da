"""Clients of Flower's HTTP interfaces: they send the link's token, retry while it restarts, and read bundled replies."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx
from flwr.proto.message_pb2 import ConfirmMessageReceivedResponse, PullObjectResponse
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http.utils import add_headers
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient

from unpooled.flower import bundle
from unpooled.remote.link import TOKEN_HEADER, Link


class Headers:
    """An interceptor that adds our headers to every request.

    Parameters
    ----------
    headers : dict of str to str
        May be changed between requests.
    """

    def __init__(self, headers: dict[str, str]):
        """Add these headers to every request."""
        self.headers = headers

    def intercept(self, context: Any, call_next: Any) -> httpx.Response:
        """Add the headers and pass the request on."""
        add_headers(context.request, self.headers)
        return call_next(context)


class Token(Headers):
    """Adds the link's token."""


def client(kind: Any, link: Link, component: str, *more: Any, retry: RetryInvoker | None = None) -> Any:
    """One of Flower's HTTP clients, of class `kind`, that sends the link's token."""
    token = Token({TOKEN_HEADER: link.token} if link.token else {})
    interceptors = [RuntimeVersionHttpInterceptor(component_name=component), token, *more]
    options = {"interceptors": interceptors, "retry_invoker": retry}
    return kind.from_server_address(link.address, link.ca is None, link.ca, **options)


def patient() -> RetryInvoker:
    """A retry policy: try again for one minute while the SuperLink cannot be reached or fails.

    Flower's own policy ends the process when a run was stopped.
    """

    def is_permanent(error: Exception) -> bool:
        """Whether an error will not go away: a refusal, or a certificate that is not valid."""
        if isinstance(error, httpx.HTTPStatusError):
            return error.response.status_code < 500
        return "CERTIFICATE_VERIFY_FAILED" in str(error)

    faults = (httpx.TransportError, httpx.HTTPStatusError)
    return RetryInvoker(lambda: exponential(0.2, max_delay=5), faults, None, max_time=60, should_giveup=is_permanent)


def beat(client: RuntimeHttpClient) -> bool:
    """Send a task's heartbeat.

    Flower's own function ends the process when the run was stopped; here the next request reports it.
    """
    with suppress(httpx.HTTPError):
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    return True


class BundledClient(RuntimeHttpClient):
    """Flower's client, which takes a reply's objects from the reply itself where the SuperLink has bundled them."""

    def __init__(self, *args: Any, **kwargs: Any):
        """A client without bundled objects yet; the arguments are those of Flower's client."""
        super().__init__(*args, **kwargs)
        self._bundled: dict[str, bytes] = {}

    def PullMessages(self, request: Any) -> Any:
        """Pull replies, and keep their bundled objects for `PullObject`."""
        request.message_ids.append(bundle.MARK)
        response = super().PullMessages(request)
        self._bundled = {}
        for message in response.messages_list:
            self._bundled.update(bundle.take(message))
        return response

    def PullObject(self, request: Any) -> Any:
        """An object, from the bundle if it is there."""
        content = self._bundled.get(request.object_id)
        if content is None:
            return super().PullObject(request)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> Any:
        """Confirm a message, unless it was bundled: then the SuperLink has deleted it already."""
        if request.message_object_id in self._bundled:
            return ConfirmMessageReceivedResponse()
        return super().ConfirmMessageReceived(request)
