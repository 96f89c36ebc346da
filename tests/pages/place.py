"""A node's folder, a run folder and a server on loopback, for the tests of live pages."""

import http.client
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np

from unpooled.cli import main
from unpooled.node import config

STUDY = """\
[study]
title = "Heart & <clusters>"
purpose = "Which kinds of patients there are"
[participants]
basel = "SHA256:x"
geneva = "SHA256:y"
zurich = "SHA256:z"
[model]
name = "GaussianMixture"
n_components = 2
random_state = {seed}
max_iter = 5
[data]
columns = ["age", "crp"]
[layers]
secure = true
"""


def make_node(folder, rows=200):
    """A node with a table and a study that waits."""
    main(["node", "init", str(folder), "--name", "zurich", "--json"])
    x = np.random.default_rng(0).normal(size=(rows, 2))
    np.savetxt(folder / "data.csv", x, delimiter=",", header="age,crp", comments="")
    (folder / "waiting").mkdir()
    (folder / "waiting" / "heart.toml").write_text(STUDY.format(seed=0))
    return folder


def make_run(folder, out):
    """A finished run of six rounds over two clients' files, in `out` below the folder."""
    (folder / "clients").mkdir()
    for i, name in enumerate(("north", "south")):
        x = np.random.default_rng(i).normal(size=(80, 2))
        np.savetxt(folder / "clients" / f"{name}.csv", x, delimiter=",", header="a,b", comments="")
    text = '[model]\nname = "GaussianMixture"\nn_components = 2\nrandom_state = 0\ntol = 0.0\nmax_iter = 6\n'
    (folder / "a.toml").write_text(text + '[data]\npath = "clients/*.csv"\n')
    assert main(["run", str(folder / "a.toml"), "--out", str(folder / out)]) == 0
    return folder / out


@contextmanager
def node_server(folder):
    """The page of a node, served while the block lasts."""
    from unpooled.pages import node

    with serving(node.serve(config.read(folder / "node.toml"))) as server:
        yield server


@contextmanager
def serving(server):
    """The server, running in a thread while the block lasts."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def ask(server, path="", method="GET", body=None, **headers):
    """(status, headers, text) of a request to a page, below its token."""
    own = urlsplit(server.address)
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request(method, own.path + path, body, headers)
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text
