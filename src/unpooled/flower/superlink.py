"""Flower's SuperLink with our additions: `python -m unpooled.flower.superlink TOKEN_FILE [flower-superlink options]`.

The additions: `guard` and `bounded` (token and limits), `longpoll` (requests wait for messages), `bundle` (objects travel with their
message); a node that restarts is admitted at once; a renewed certificate is loaded without a restart.
"""

from __future__ import annotations

import os
import signal
import ssl
import sys
import threading
import time
from functools import wraps
from pathlib import Path
from typing import Any

import flwr.superlink.extensions as extensions
import uvicorn.config
from flwr.common.constant import Status
from flwr.server.superlink.utils import check_abort
from flwr.superlink.cli.flower_superlink import flower_superlink
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.middleware import Middleware

from unpooled.flower.bundle import accepting, supplying
from unpooled.flower.guard import Guard
from unpooled.flower.longpoll import LongPoll, Mailboxes


def install(mailboxes: Mailboxes) -> None:
    """Add long polling and bundles to Flower's handlers."""
    fleet: Any = fleet_handlers
    runtime: Any = runtime_handlers
    fleet.push_messages = mailboxes.fleet_push(accepting(fleet.push_messages))
    fleet.pull_messages = mailboxes.fleet_pull(supplying(current(fleet.pull_messages)))
    runtime.push_messages = mailboxes.runtime_push(accepting(runtime.push_messages))
    runtime.pull_messages = mailboxes.runtime_pull(supplying(runtime.pull_messages))
    fleet.activate_node = readmitting(fleet.activate_node)


def current(pull: Any) -> Any:
    """Wrap the handler of nodes' pulls, so that questions of runs that have ended are dropped.

    Nobody waits for their answers.
    """

    @wraps(pull)
    def pulled(request: Any, state: Any, store: Any) -> Any:
        """The first message whose run has not ended."""
        while True:
            response = pull(request=request, state=state, store=store)
            found = response.messages_list
            if not found or not check_abort(found[0].metadata.run_id, [Status.FINISHED], state):
                return response
            store.delete(response.message_object_trees[0].object_id)

    return pulled


def readmitting(activate: Any) -> Any:
    """Wrap the handler that activates nodes.

    A node that was killed and restarts with its key is admitted at once, not only when its old heartbeat has expired.
    """

    def activated(request: Any, state: Any) -> Any:
        """Deactivate the node's last process, then activate it."""
        known = state.get_node_id_by_public_key(request.public_key)
        if known is not None:
            state.deactivate_node(known)
        return activate(request=request, state=state)

    return activated


class Certificate:
    """Loads a renewed certificate into the running server; open connections keep the old one."""

    def __init__(self) -> None:
        """Remember no certificate yet."""
        self.context: ssl.SSLContext | None = None
        self.paths: tuple[str, ...] = ()
        self.changed = 0.0

    def remember(self, create: Any) -> Any:
        """Wrap uvicorn's function that creates the TLS context, to keep the context and its files."""

        def created(certfile: str, keyfile: str | None, *args: Any, **kwargs: Any) -> ssl.SSLContext:
            """Create the context and remember it."""
            self.context = create(certfile, keyfile, *args, **kwargs)
            self.paths = tuple(str(p) for p in (certfile, keyfile) if p)
            self.changed = os.path.getmtime(certfile)
            return self.context

        return created

    def reload(self) -> None:
        """Load the certificate again if its file has changed."""
        if self.context is None:
            return
        try:
            changed = os.path.getmtime(self.paths[0])
            if changed != self.changed:
                self.context.load_cert_chain(*self.paths)
                self.changed = changed
        except (OSError, ssl.SSLError) as error:
            print(f"the certificate could not be loaded: {error}", file=sys.stderr)


def supervise(parent: int, certificate: Certificate) -> None:
    """End this process when its parent has ended, so that no SuperLink is left behind; reload renewed certificates."""
    while os.getppid() == parent:
        certificate.reload()
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run Flower's SuperLink with our additions; the first argument is the token's file."""
    token = Path(sys.argv[1]).read_text()
    certificate = Certificate()
    mailboxes = Mailboxes()
    config: Any = uvicorn.config
    config.create_ssl_context = certificate.remember(config.create_ssl_context)
    config.HTTP_PROTOCOLS["auto"] = "unpooled.flower.bounded:Bounded"
    threading.Thread(target=supervise, args=(os.getppid(), certificate), daemon=True).start()
    install(mailboxes)
    extensions.get_middleware = lambda: (Middleware(Guard, token=token), Middleware(LongPoll, mailboxes=mailboxes))
    sys.argv = ["flower-superlink", *sys.argv[2:]]
    flower_superlink()


if __name__ == "__main__":
    main()
