"""A link is found by its folder, or by the address that the usual folder serves; `unpooled serve` says what to type next."""

import socket

import pytest

from unpooled.commands import serve
from unpooled.errors import BadParameter, DataNotFound, RunError
from unpooled.flower.server import serving
from unpooled.remote import link
from unpooled.remote.link import Link, find, is_loopback


@pytest.fixture
def usual(tmp_path, monkeypatch):
    """The default folder, in a home of the test's own."""
    for module in (link, serve):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "usual")
    (tmp_path / "usual").mkdir()
    Link("127.0.0.1:9092", token="t", folder=tmp_path / "usual").save()
    return tmp_path / "usual"


def test_a_link_is_found_by_folder_or_by_the_usual_address(usual, tmp_path):
    (tmp_path / "mine").mkdir()
    Link("127.0.0.1:7", token="t", folder=tmp_path / "mine").save()
    assert find(str(tmp_path / "mine")) == tmp_path / "mine"
    assert find(str(usual)) == usual
    assert find("127.0.0.1:9092") == usual
    with pytest.raises(DataNotFound, match="give the folder"):
        find("127.0.0.1:7")


def test_serve_says_what_works_from_here(usual):
    told = {"address": "127.0.0.1:9092", "link": str(usual), "ca": str(usual / "ca.crt")}
    assert "--on 127.0.0.1:9092" in serve._told(told)
    elsewhere = serve._told(told | {"link": "mine"})
    assert "run FILE.toml --on mine" in elsewhere
    assert "admit KEY.pub --link mine" in elsewhere


def test_without_tls_only_loopback():
    assert is_loopback("[::1]:9")
    with pytest.raises(BadParameter, match="only loopback is allowed"):
        Link("10.0.0.1:9")
    with pytest.raises(BadParameter, match="give host:port"):
        Link("127.0.0.1")


def test_an_address_in_use_is_told_before_the_link_that_runs_there_is_touched(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sentence = f"{address} cannot be served: Address already in use; stop what listens there"
        with pytest.raises(RunError, match=sentence), serving(tmp_path / "link", address):
            pass
    assert not (tmp_path / "link").exists()


def test_a_link_that_is_not_there_is_told_with_a_command_that_works(tmp_path):
    with pytest.raises(DataNotFound, match=f"start `unpooled serve --link {tmp_path}` first"):
        Link.open(tmp_path)
