"""Messages that no honest side would send, to a node and to the coordinator: shared by the tests and by benchmarks/hostile.py."""

import json
import pickle
from pathlib import Path

import numpy as np
from flower_grid import MessageGrid, roundtrip
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from toy import Centre, Moments, total

from unpooled import wire
from unpooled.client import Client
from unpooled.flower import Flower, client_app
from unpooled.flower.app import respond
from unpooled.flower.transport import from_records, to_records
from unpooled.layers import compression  # noqa: F401  # registers its step
from unpooled.node.ledger import Ledger
from unpooled.node.questions import schema
from unpooled.node.rows import Source
from unpooled.node.site import Site

MARK = Path("/tmp/unpooled-hostile-mark")  # what an executed payload would leave


class Bomb:
    def __reduce__(self):
        return Path.touch, (MARK,)


def edited(message: bytes, **fields) -> bytes:
    """A message with other entries in its JSON; the arrays stay."""
    length = int.from_bytes(message[4:8], "big")
    body = json.loads(message[8 : 8 + length]) | fields
    text = json.dumps(body).encode()
    return message[:4] + len(text).to_bytes(4, "big") + text + message[8 + length :]


# ---- to a node ----

HEAD = {"kind": "ask", "run": "r1", "round": 1, "seed": 0, "ask": total.name, "options": {}, "steps": []}
HEAD |= {"schema": schema(total.name)}
OWN = {"to": "basel", "base": 0, "floor": 0, "columns": None}
DOWN = Centre(np.zeros(3))


def request(down=DOWN, own=(), **fields):
    return wire.pack(HEAD | fields, down), json.dumps(OWN | dict(own))


GOOD = wire.pack(HEAD, DOWN)

TO_NODE = {
    "nothing": (b"", ""),
    "random bytes": (np.random.default_rng(0).bytes(500), ""),
    "a pickle": (pickle.dumps(Bomb()), ""),
    "a pickle after our magic": (b"UNP1" + (60).to_bytes(4, "big") + pickle.dumps(Bomb()), ""),
    "a pickled array": (edited(GOOD, arrays=[["|O", [3], False]]), json.dumps(OWN)),
    "cut off": (GOOD[:-5], json.dumps(OWN)),
    "more bytes than claimed": (GOOD + b"\0" * 8, json.dumps(OWN)),
    "an array of 2**62 numbers": (edited(GOOD, arrays=[["<f8", [2**62], False]]), json.dumps(OWN)),
    "a negative shape": (edited(GOOD, arrays=[["<f8", [-3], False]]), json.dumps(OWN)),
    "JSON 200,000 deep": (b"UNP1" + (200_000).to_bytes(4, "big") + b"[" * 200_000, ""),
    "another version": (edited(GOOD, unpooled="0.0.1"), json.dumps(OWN)),
    "no version": (edited(GOOD, unpooled=None), json.dumps(OWN)),
    "an unknown kind of message": request(kind="execute"),
    "an unknown question": request(ask="toy.unknown"),
    "a question with other types": request(schema="0" * 16),
    "a question without its types": request(schema=None),
    "a builtin for a question": request(ask="builtins.eval"),
    "a question of the standard library": request(ask="os.system"),
    "a private function for a question": request(ask="unpooled.store.write_file"),
    "path tricks in the question": request(ask="../../etc/passwd"),
    "a question that is no text": request(ask=["toy.total"]),
    "an unknown option": request(options={"evil": 1}),
    "an option for the client": request(options={"client": 1}),
    "an unknown step": request(steps=[["os.system", {}]]),
    "steps that are no pairs": request(steps=["x"]),
    "path tricks in the run": request(run="../../../tmp/x"),
    "an empty run": request(run=""),
    "a run of 10,000 letters": request(run="a" * 10_000),
    "a run that is a number": request(run=7),
    "a negative round": request(round=-1),
    "a round that is text": request(round="1; drop table"),
    "a round that is true": request(round=True),
    "a base in the future": request(own={"base": 5}),
    "a base never kept": request(round=9, own={"base": 5}),
    "a negative floor": request(own={"floor": -1}),
    "a step asked as a question": request(ask="compressed.compress", schema=schema("compressed.compress")),
    "a question as a step": request(steps=[["toy.total", {}]]),
    "for another node": request(own={"to": "zurich"}),
    "a column that is not there": request(own={"columns": ["age"]}),
    "columns that are no list": request(own={"columns": {"a": 1}}),
    "another number of columns": request(down=Centre(np.zeros(7))),
    "the wrong type of value": request(down=Moments(np.float64(1), np.zeros(3), np.zeros(3))),
    "integers for floats": request(down=Centre(np.zeros(3, int))),
    "no value": request(down=None),
    "NaN": request(down=Centre(np.full(3, np.nan))),
    "a type that is not imported": (edited(GOOD, structure='{"type": "antigravity:X", "items": []}'), json.dumps(OWN)),
    "a class for a type": (edited(GOOD, structure='{"type": "subprocess:Popen", "items": []}'), json.dumps(OWN)),
    "an index out of range": (edited(GOOD, structure='{"array": 99}'), json.dumps(OWN)),
    "private part that is no JSON": (GOOD, "{{"),
    "private part that is a list": (GOOD, "[1]"),
    "private part 100,000 deep": (GOOD, "[" * 100_000),
}

RECORDS_TO_NODE = {
    "no records": RecordDict({}),
    "a record of another name": RecordDict({"other": ConfigRecord({"message": GOOD})}),
    "text for bytes": RecordDict({"unpooled": ConfigRecord({"message": "hello"})}),
    "numbers for bytes": RecordDict({"unpooled": ConfigRecord({"message": [1, 2, 3]})}),
    "a pickle as Flower's array": RecordDict(
        {"unpooled": ArrayRecord({"message": Array("object", (1,), "numpy.ndarray", pickle.dumps(Bomb()))})}
    ),
    "Flower's array of objects": RecordDict(
        {"unpooled": ArrayRecord({"message": Array("uint8", (9,), "torch", b"\x93NUMPY junk")})}
    ),
}


def node(folder) -> Site:
    rows = np.random.default_rng(1).normal(size=(30, 3))
    return Site("basel", Source(Client("basel", rows)), {}, ledger=Ledger(folder / "ledger.jsonl"), also=["toy"])


def send_to_node(site: Site, case) -> dict:
    """The head of the node's reply, through Flower's message types."""
    records, private = (case, "") if isinstance(case, RecordDict) else (to_records(case[0]), case[1])
    message = Message(records, 7, "query", group_id=private)
    return wire.unpack(from_records(roundtrip(respond(site, roundtrip(message))).content)).head


# ---- to the coordinator: what a node makes of its honest reply ----


def redone(value):
    return lambda reply: wire.pack(wire.unpack(reply).head, value(wire.unpack(reply).value()))


def rehead(**fields):
    return lambda reply: wire.pack(wire.unpack(reply).head | fields, wire.unpack(reply).value())


TO_COORDINATOR = {
    "nothing": lambda reply: b"",
    "random bytes": lambda reply: np.random.default_rng(0).bytes(300),
    "a pickle": lambda reply: pickle.dumps(Bomb()),
    "cut off": lambda reply: reply[:-4],
    "another version": lambda reply: edited(reply, unpooled="9.9"),
    "a huge array": lambda reply: edited(reply, arrays=[["<f8", [2**60], False]]),
    "an array of objects": lambda reply: edited(reply, arrays=[["|O", [1], False]]),
    "over the limit": redone(lambda m: m._replace(x=np.zeros(2_000_000))),
    "NaN": redone(lambda m: m._replace(x=np.full(3, np.nan))),
    "infinity": redone(lambda m: m._replace(x=np.full(3, np.inf))),
    "a negative count": redone(lambda m: m._replace(n=np.float64(-5.0))),
    "another shape": redone(lambda m: m._replace(x=np.zeros((3, 3)))),
    "integers": redone(lambda m: m._replace(x=np.zeros(3, int))),
    "text": redone(lambda m: m._replace(x="0, 0, 0")),
    "fewer parts": redone(lambda m: tuple(m)[:2]),
    "another type": redone(lambda m: {"n": m.n}),
    "no value": redone(lambda m: None),
    "another run": rehead(run="f" * 32),
    "an answer replayed from the last round": rehead(round=0),
    "an answer to another question": rehead(ask="toy.wander"),
    "another node's name": rehead(name="zurich"),
    "another identity": rehead(identity="0" * 32),
    "path tricks in the name": rehead(name="../../zurich"),
    "a foreign type": lambda reply: edited(reply, structure='{"type": "subprocess:Popen", "items": [{"value": "ls"}]}'),
}


class Mallory(Site):
    """A node that answers `hello` honestly and twists every other reply."""

    twist = staticmethod(lambda reply: reply)

    def reply(self, message: bytes, private: str = "", letter: bytes = b"") -> bytes:
        honest = super().reply(message, private, letter)
        return self.twist(honest) if b'"run"' in honest[:400] else honest


def coordinator(twist) -> Flower:
    """Two honest nodes and mallory."""
    rng = np.random.default_rng(1)
    sites = [Site(n, Source(Client(n, rng.normal(size=(30, 3)))), {}, also=["toy"]) for n in ("basel", "geneva")]
    mallory = Mallory("mallory", Source(Client("mallory", rng.normal(size=(30, 3)))), {}, also=["toy"])
    mallory.twist = twist
    apps = [client_app(lambda context, site=site: site) for site in [*sites, mallory]]
    return Flower(MessageGrid(apps), max_bytes=8_000_000)
