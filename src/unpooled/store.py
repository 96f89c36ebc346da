"""A Tree on disk: one zip with its structure as JSON and each array as .npy, replaced atomically, never pickled.

Every write goes to a new place beside the target, is flushed to the disk, and takes the target's name in one step:
a process killed at any moment leaves the old value or the new one.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import numpy as np

from unpooled import tree
from unpooled.errors import RunError
from unpooled.tree import Tree


def write_file(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Replace a file atomically; a full disk or an unwritable folder leaves the old one and says so in one sentence.

    A secret file can be read by its owner only; the mode of any other file follows the umask.
    """
    part = path.parent / f".{path.name}.{token_hex(8)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o666), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise RunError(
            f"could not write {path}: {error.strerror or error}; free some space or choose another place"
        ) from error


def dumps(value: Tree) -> bytes:
    """The value as the bytes of one uncompressed zip: the structure as JSON, then each array as .npy."""
    structure, arrays = tree.pack(value)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(_entry("structure.json"), structure)
        for i, a in enumerate(arrays):
            part = io.BytesIO()
            np.lib.format.write_array(part, a, allow_pickle=False)
            archive.writestr(_entry(f"{i}.npy"), part.getvalue())
    return out.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    """A zip entry with a fixed timestamp, so that equal values give equal bytes."""
    return zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))


def loads(content: bytes) -> Tree:
    """The value in bytes that `dumps` made; ValueError for anything else. Needs no more memory than the bytes
    themselves.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            if any(i.compress_type != zipfile.ZIP_STORED or i.file_size != i.compress_size for i in entries.values()):
                raise ValueError("it holds compressed parts, which unpooled never writes")
            arrays = [_array(archive.read(f"{i}.npy")) for i in range(len(entries) - 1)]
            return tree.unpack(archive.read("structure.json").decode(), arrays)
    except ValueError:
        raise
    except Exception as error:  # a damaged archive makes zipfile and NumPy raise errors of many kinds
        raise ValueError(f"it is damaged ({type(error).__name__})") from error


def _array(content: bytes) -> np.ndarray:
    """An array in NumPy's format; the size in its header is compared with the content before memory is allocated."""
    part = io.BytesIO(content)
    version = np.lib.format.read_magic(part)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise ValueError("it holds an array of another format")
    shape, _, dtype = read_header[version](part)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - part.tell():
        raise ValueError("an array is not as long as it claims")
    part.seek(0)
    return np.lib.format.read_array(part, allow_pickle=False)


def write(path: Path, value: Tree, *, secret: bool = False) -> None:
    """Write a tree to `path`; a crash leaves the old file or the new one, never a part."""
    write_file(path, dumps(value), secret=secret)


def read(path: Path) -> Tree:
    """The value in a file; RunError if the file is missing or damaged."""
    try:
        return loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read as a saved value: {error}") from error
