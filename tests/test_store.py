"""Files are replaced atomically; a failed write raises an error and leaves the old file."""

import os

import numpy as np
import pytest

from unpooled import store
from unpooled.errors import RunError


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "value.zip"
    store.write(path, {"a": np.ones(3)})
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        store.write(path, {"a": np.zeros(3)})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["value.zip"]


def test_files_follow_the_umask_and_secrets_are_for_their_owner(tmp_path):
    before = os.umask(0o027)
    try:
        store.write_file(tmp_path / "report.html", b"for the team")
        store.write_file(tmp_path / "token", b"for me", secret=True)
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_the_same_value_is_the_same_bytes():
    assert store.dumps({"b": 1.5, "a": np.arange(3)}) == store.dumps({"a": np.arange(3), "b": 1.5})


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_a_broken_file_is_one_sentence(tmp_path, content):
    (tmp_path / "value.zip").write_bytes(content)
    with pytest.raises(RunError, match="cannot be read"):
        store.read(tmp_path / "value.zip")


def test_pickles_are_never_loaded(tmp_path):
    value = store.dumps({"a": np.array([1.0])})
    objects = np.array([{"x": 1}], dtype=object)
    with pytest.raises(ValueError, match="pickle"):
        store.dumps({"a": objects})
    assert b"pickle" not in value
