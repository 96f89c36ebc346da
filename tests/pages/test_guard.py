"""Who may see a page: nobody without the token, nobody through another name, and nothing from outside in it."""

import http.client
import re
import socket
from html.parser import HTMLParser

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from place import ask, serving
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from unpooled.errors import RunError
from unpooled.pages import guard
from unpooled.pages.server import Server

pytestmark = pytest.mark.network


class Small:
    title, lead = "A <small> page", ""

    def __init__(self):
        self.text = "first"

    def stamp(self):
        return self.text

    def parts(self):
        return {"one": f"<p>{self.text}</p>", "two": "<p>same</p>"}


async def change(request):
    return PlainTextResponse("changed")


@pytest.fixture(name="server", scope="module")
def server_():
    with serving(Server(Small(), [Route("/change", change, methods=["POST"])], look_every=0.05)) as server:
        yield server


def raw(server, path, method="GET", **headers):
    """(status, text) of a request to any path."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request(method, path, headers=headers)
    answer = link.getresponse()
    found = answer.status, answer.read().decode()
    link.close()
    return found


def test_the_page_opens_with_its_address(server):
    status, _, text = ask(server)
    assert status == 200
    assert "A &lt;small&gt; page" in text
    assert text.index('id="part-one"') < text.index('id="part-two"')


def test_only_this_machine_can_reach_it(server):
    assert server._socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "", "/wrong/", "/{token}x/", "/{token}", "//{token}/", "/wrong/events", "/%00/"])
def test_without_the_token_there_is_nothing(server, path):
    status, text = raw(server, path.format(token=server.token) or "/")
    assert status in (404, 307)
    assert "small" not in text


def test_tokens_are_long_random_and_compared_in_constant_time(monkeypatch, server):
    assert len({guard.new_token() for _ in range(50)}) == 50
    assert min(len(guard.new_token()) for _ in range(50)) >= 32
    seen = []
    monkeypatch.setattr(guard, "compare_digest", lambda a, b: seen.append((a, b)) or a == b)
    ask(server)
    assert seen == [(server.token.encode(), server.token.encode())]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""]
)
def test_another_name_for_this_machine_is_turned_away(server, host):
    status, text = raw(server, f"/{server.token}/", Host=host)
    assert status in (400, 421)
    assert "small" not in text


def test_localhost_is_a_name_of_this_machine(server):
    assert ask(server, Host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1:1"]
)
def test_a_form_of_another_site_changes_nothing(server, origin):
    headers = {} if origin is None else {"Origin": origin.format(port=server.port)}
    assert ask(server, "change", "POST", "", **headers)[0] == 403


def test_a_form_of_the_page_itself_is_taken(server):
    assert ask(server, "change", "POST", "", Origin=f"http://127.0.0.1:{server.port}")[2] == "changed"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(server, method):
    assert ask(server, "", method)[0] == 405


@pytest.mark.parametrize("path", ["", "events", "nothing-here"])
def test_no_answer_is_kept_or_framed_or_loads_from_outside(server, path):
    link = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    link.sendall(f"GET /{server.token}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += link.recv(4096)
    link.close()
    text = head.decode().lower()
    assert "cache-control: no-store" in text
    assert "x-frame-options: deny" in text
    assert "x-content-type-options: nosniff" in text
    assert "referrer-policy: same-origin" in text
    policy = re.search(r"content-security-policy: (.*)\r", text).group(1)
    assert "default-src 'none'" in policy
    assert not re.search(r"http|\*|unsafe", policy)
    assert "\r\nserver:" not in text


def test_a_turned_away_request_has_the_same_headers(server):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request("GET", "/wrong/")
    answer = link.getresponse()
    assert answer.getheader("cache-control") == "no-store"
    assert answer.getheader("content-security-policy").startswith("default-src 'none'")
    link.close()


class Addresses(HTMLParser):
    """Every attribute that a browser would load."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [v for k, v in attrs if k in ("src", "href", "action", "data", "poster", "srcset") and v]


def test_the_page_names_no_other_address(server):
    _, headers, text = ask(server)
    seen = Addresses()
    seen.feed(text)
    assert not [a for a in seen.found if "//" in a]
    nonce = re.search(r"'nonce-([^']+)'", headers["content-security-policy"]).group(1)
    assert text.count(f'nonce="{nonce}"') == 2
    assert nonce not in ask(server)[2]  # a new one each time


def test_changes_are_sent_and_nothing_else(server):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request("GET", f"/{server.token}/events")
    answer = link.getresponse()
    first = _event(answer)
    assert set(first) == {"problem", "one", "two"}
    server.page.text = "second"
    assert _event(answer) == {"one": "<p>second</p>"}  # and not the part that is the same
    link.close()


def _event(answer):
    import json

    while not (line := answer.readline()).startswith(b"data: "):
        assert line
    return {name: html for name, (_, html) in json.loads(line[6:]).items()}


def test_a_port_that_is_taken_is_a_sentence(server):
    with pytest.raises(RunError, match="choose another with --port"):
        Server(Small(), port=server.port)
