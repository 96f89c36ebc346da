"""A node outlives its messages: whatever becomes of one, it goes on to the next; only a lost connection makes it connect anew."""

import threading
from types import SimpleNamespace

import httpx
import pytest
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError, ObjectUnavailableError

from unpooled.flower import fleet, objects, worker

REQUEST = httpx.Request("POST", "https://127.0.0.1/v1/fleet/push-object")
FORBIDDEN = httpx.Response(403, text='{"code": 1, "message": "the run has ended"}', request=REQUEST)
OF_A_MESSAGE = [
    ObjectPullError("0" * 64, "the object could not be found."),
    ObjectPushError("0" * 64, 1, "session"),
    httpx.HTTPStatusError("403", request=REQUEST, response=FORBIDDEN),
    KeyError("an object that its tree does not name"),
]


class Connection:
    """Messages that cannot be had, or not be answered; then `stop`."""

    def __init__(self, stop, fetching=(), pushing=()):
        self.stop, self.fetching, self.pushing, self.pushed = stop, list(fetching), list(pushing), 0

    held = False

    def check_heartbeat(self): ...

    def poll(self):
        if not (self.fetching or self.pushing):
            self.stop.set()
        return SimpleNamespace(messages_list=[None] if self.fetching or self.pushing else [])

    def fetch(self, found):
        if self.fetching:
            raise self.fetching.pop()
        return "question"

    def push(self, reply):
        self.pushed += 1
        error = self.pushing.pop()
        if error is not None:
            raise error


def serve(monkeypatch, **errors):
    monkeypatch.setattr(fleet, "respond", lambda site, message: "answer")
    stop = threading.Event()
    connection = Connection(stop, **errors)
    fleet._serve(SimpleNamespace(name="basel"), connection, stop, threading.Event())
    return connection


@pytest.mark.parametrize("error", OF_A_MESSAGE, ids=lambda e: type(e).__name__)
def test_a_message_that_is_lost_is_left_and_the_next_is_answered(monkeypatch, error):
    assert serve(monkeypatch, fetching=[error], pushing=[None]).pushed == 1
    assert serve(monkeypatch, pushing=[None, error]).pushed == 2


def test_a_lost_connection_is_for_the_one_who_connects(monkeypatch):
    with pytest.raises(httpx.ReadTimeout):
        serve(monkeypatch, fetching=[httpx.ReadTimeout("silence")])


def test_a_worker_outlives_its_messages_too(monkeypatch):
    stop, left = threading.Event(), list(OF_A_MESSAGE)

    def one(site, link, free):
        if left:
            raise left.pop()
        stop.set()
        return True

    monkeypatch.setattr(worker, "_answer_one", one)
    monkeypatch.setattr(worker, "RETRY", 0.0)
    worker.run(SimpleNamespace(name="basel"), "127.0.0.1:1", stop)
    assert not left


def test_objects_that_stop_coming_are_given_up_but_not_while_they_come(monkeypatch):
    clock, looks = [0.0], {"a": 0, "b": 0, "c": 0}
    monkeypatch.setattr(objects, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(objects, "STALLED", 0.35)

    def late(name):  # 0.3 s after the one before it; all three together later than the patience with silence
        clock[0] += 0.1
        looks[name] += 1
        if looks[name] < 4:
            raise ObjectUnavailableError(name)
        return name.encode()

    quick = {"max_concurrent_pulls": 1, "initial_backoff": 0.001}
    assert objects.pull(list("abc"), late, **quick) == {"a": b"a", "b": b"b", "c": b"c"}
    looks["a"] = -100
    with pytest.raises(ObjectPullError, match=r"nothing came for 0\.35 s"):
        objects.pull(["a"], late, **quick)
    assert looks["a"] == -96
