"""Every file that comes from elsewhere, damaged at random: it is read, or refused in one sentence; never a traceback."""

import random

import numpy as np
import pytest
from test_ledger import line
from test_study import MIXTURE, study_file

import unpooled as up
from unpooled import store, study
from unpooled.errors import UnpooledError
from unpooled.node import config, policy
from unpooled.node.ledger import Ledger, entries

NODE = b'name = "basel"\nlink = "127.0.0.1:9092"\nca = "ca.crt"\nkey = "node.key"\n[data]\npath = "x.csv"\n'


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Another bit, some bytes fewer, more or zero, or an end that is missing."""
    at, content = rng.randrange(len(content)), bytearray(content)
    how = rng.randrange(5)
    if how == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif how == 1:
        del content[at : at + rng.randrange(1, 50)]
    elif how == 2:
        content[at:at] = rng.randbytes(rng.randrange(1, 9))
    elif how == 3:
        content[at : at + 20] = bytes(20)
    else:
        del content[at:]
    return bytes(content)


def a_store(folder):
    store.write(folder / "file", {"a": np.arange(20.0), "b": {"c": "text", "d": (1, 2.0)}})


def a_model(folder):
    rows = {"a": np.random.default_rng(0).normal(size=(60, 2))}
    up.GaussianMixture(2, random_state=0, max_iter=3, tol=1.0).fit(rows).save(folder)
    (folder / "model.zip").rename(folder / "file")


def a_ledger(folder):
    ledger = Ledger(folder / "file")
    for number in range(1, 5):
        ledger.note(line(number))


def load_model(path):
    path.rename(path.parent / "model.zip")
    up.load(path.parent)


CASES = {
    "study.toml": (lambda f: (f / "file").write_bytes(study_file(MIXTURE, secure=False)), study.read),
    "policy.toml": (lambda f: (f / "file").write_text(policy.TEMPLATE), policy.read),
    "node.toml": (lambda f: (f / "file").write_bytes(NODE), config.read),
    "a store": (a_store, store.read),
    "a model": (a_model, load_model),
    "a ledger": (a_ledger, lambda path: list(entries(path))),
    "a ledger that goes on": (a_ledger, lambda path: Ledger(path).today()),
}


@pytest.mark.parametrize(("make", "read"), CASES.values(), ids=CASES)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path, make, read):
    make(tmp_path)
    whole, rng, refused = (tmp_path / "file").read_bytes(), random.Random(3), 0
    for _ in range(80):
        (tmp_path / "file").write_bytes(damaged(whole, rng))
        try:
            read(tmp_path / "file")
        except UnpooledError:
            refused += 1
    assert refused > 10
