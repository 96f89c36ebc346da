"""A certificate that lives some seconds, over a real SuperLink: what happens when it ends in mid-run, and how it is renewed."""

import ssl
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from network import NodeProcess, free_port, started, write_node
from toy import Centre, total

from unpooled import cli
from unpooled.errors import RunError, TooFewClients
from unpooled.flower import connect
from unpooled.flower.server import serving
from unpooled.remote import keys

pytestmark = [pytest.mark.network, pytest.mark.slow]


def make_node(tmp_path, address):
    np.savetxt(tmp_path / "basel.csv", np.ones((20, 3)), delimiter=",", header="age,chol,thalach", comments="")
    data = f'path = "{tmp_path / "basel.csv"}"'
    return NodeProcess(write_node(tmp_path / "basel", "basel", address, tmp_path / "link", data))


def let_it_expire(link, seconds=2):
    """The running SuperLink gets a certificate that lives so long, and serves it until it has ended."""
    keys.renew(link.folder, valid=timedelta(seconds=seconds))
    while _served(link) != (link.folder / "server.crt").read_text() or keys.expiry(link.folder) > datetime.now(UTC):
        time.sleep(0.1)


def _served(link):
    host, port = link.address.split(":")
    try:
        return ssl.get_server_certificate((host, int(port)))
    except OSError:  # while the new one is being loaded
        return ""


def test_a_certificate_that_ends_in_mid_run_is_named_and_its_authority_renews_it(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    node = make_node(tmp_path, address)
    with serving(tmp_path / "link", address) as link, started(node):
        with connect(link, min_clients=1, wait=60) as fed:
            assert fed.sum(total, Centre(np.zeros(3))).n == 20
            let_it_expire(link)
            node.kill()
            node.start()
            node.said("has expired: ask the coordinator to run `unpooled serve renew`", 60)
            fed.timeout = fed.wait = 2.0
            with pytest.raises(
                (TooFewClients, RunError), match=r"certificate expired at .*`unpooled serve renew --link "
            ):
                fed.sum(total, Centre(np.zeros(3)))
        assert cli.main(["serve", "renew", "--link", str(tmp_path / "link")]) == 0
        while _served(link) != (link.folder / "server.crt").read_text():  # it is loaded within half a second
            time.sleep(0.1)
        with connect(link, min_clients=1, wait=60) as again:
            assert again.sum(total, Centre(np.zeros(3))).n == 20
