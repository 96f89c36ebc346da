"""Flower's messages without sockets: every message and reply passes through Flower's own serialisation and a real ClientApp."""

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from memory import sites_of

from unpooled.flower import Flower, client_app


def roundtrip(message: Message) -> Message:
    return message_from_proto(type(message_to_proto(message)).FromString(message_to_proto(message).SerializeToString()))


class MessageGrid(Grid):
    """Each node is a ClientApp in this process, called when its message is pushed."""

    def __init__(self, apps: list[ClientApp]):
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.apps = {100 + i: app for i, app in enumerate(apps)}
        self.contexts = {n: Context(1, n, {}, RecordDict(), {}) for n in self.apps}
        self.replies: dict[str, Message] = {}

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        return [self.push(m) for m in messages]

    def push(self, message: Message) -> str:
        sent, node = roundtrip(message), message.metadata.dst_node_id
        name = sent.metadata.__dict__["_message_id"] = message.object_id
        self.replies[name] = roundtrip(self.apps[node](sent, self.contexts[node]))
        return name

    def pull_messages(self, message_ids):
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def set_run(self, run): ...

    run = property(lambda self: None)

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def flower(clients, **how) -> Flower:
    sites = sites_of(clients)
    return Flower(MessageGrid([client_app(lambda context, site=site: site) for site in sites]), **how)
