"""Small integers to bytes and back, without loss: Huffman codes, or bit planes where these are shorter. Sends nothing.

Bit planes use one bit for a zero; every other number also has a sign bit and a magnitude of fixed width. They need no
header, which suits short messages. Huffman codes (raw deflate without string matches) come within 2 % of the entropy of
long messages.
"""

from __future__ import annotations

import zlib

import numpy as np

PLANES, HUFFMAN = 0, 1
GROUP_FROM = 32_768  # fewer numbers are not grouped: the longer code table would cost more than it saves


def pack(symbols: np.ndarray, levels: int) -> np.ndarray:  # (q,) int8 in [-levels, levels] -> uint8
    """Integers (q,) in [-levels, levels] as bytes; the first byte says which of the two codes follows."""
    code = HUFFMAN
    body = _huffman(symbols, levels)
    if len(symbols) < GROUP_FROM:
        planes = _planes(symbols, levels)
        code, body = (PLANES, planes) if len(planes) < len(body) else (code, body)
    return np.concatenate([np.array([code], np.uint8), body])


def unpack(packed: np.ndarray, size: int, levels: int) -> np.ndarray:  # -> (q,) int8
    """The integers (q,) that `pack` was given; ValueError for bytes that `pack` never writes."""
    if not len(packed) or packed[0] not in (PLANES, HUFFMAN):
        raise ValueError(f"{size} numbers do not say how they are packed")
    return (_from_huffman if packed[0] == HUFFMAN else _from_planes)(packed[1:], size, levels)


def expect(found: int, wanted: int, size: int) -> None:
    """Raise ValueError unless the `found` bytes are the `wanted` ones that `size` numbers take."""
    if found != wanted:
        raise ValueError(f"{found} bytes stand for {size} numbers that take {wanted}")


# ---- bit planes: which are nonzero, signs, magnitudes minus one ----


def _planes(symbols: np.ndarray, levels: int) -> np.ndarray:
    """Three bit planes: which numbers are nonzero, their signs, their magnitudes minus one."""
    nonzero = symbols != 0
    values = symbols[nonzero]
    parts = [np.packbits(nonzero), np.packbits(values < 0)]
    width = _width(levels)
    if width:
        parts.append(np.packbits(np.unpackbits((np.abs(values) - 1).astype(np.uint8)[:, None], axis=1)[:, -width:]))
    return np.concatenate(parts)


def _from_planes(packed: np.ndarray, size: int, levels: int) -> np.ndarray:
    """The integers (size,) of bit planes; ValueError for another number of bytes or a number beyond `levels`."""
    cut = -(-size // 8)
    nonzero = np.unpackbits(packed[:cut], count=size).astype(bool)
    n = int(nonzero.sum())
    width = _width(levels)
    expect(len(packed), cut - (-n // 8) - (-n * width // 8), size)
    signs = np.unpackbits(packed[cut : cut - (-n // 8)], count=n)
    rest = packed[cut - (-n // 8) :]
    magnitudes = np.ones(n, np.int8)
    if width and n:
        bits = np.unpackbits(rest, count=n * width).reshape(n, width)
        magnitudes = bits @ (1 << np.arange(width)[::-1]) + 1
        if magnitudes.max() > levels:
            raise ValueError(f"a number is beyond {levels} levels")
    symbols = np.zeros(size, np.int8)
    symbols[nonzero] = np.where(signs, -magnitudes, magnitudes)
    return symbols


def _width(levels: int) -> int:
    """Bits of a magnitude from 1 to `levels`."""
    return (levels - 1).bit_length()


# ---- Huffman: numbers grouped into bytes, then deflate without matches ----


def _huffman(symbols: np.ndarray, levels: int) -> np.ndarray:
    """Integers (q,) as Huffman codes."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    packed = deflate.compress(_grouped(symbols, levels).tobytes()) + deflate.flush()
    return np.frombuffer(packed, np.uint8)


def _from_huffman(packed: np.ndarray, size: int, levels: int) -> np.ndarray:
    """The integers (size,) of Huffman codes; ValueError for another count or a number beyond `levels`."""
    base = 2 * levels + 1
    group = _group(size, levels)
    grouped = np.frombuffer(inflated(packed.tobytes(), -(-size // group)), np.uint8)
    expect(len(grouped), -(-size // group), size)
    if size and grouped.max() >= base**group:
        raise ValueError(f"a number is beyond {levels} levels")
    symbols = np.empty((len(grouped), group), np.uint8)
    for i in range(group):
        grouped, symbols[:, i] = np.divmod(grouped, base)
    return symbols.ravel()[:size].astype(np.int8) - np.int8(levels)


def inflated(packed: bytes, most: int, known: bytes = b"") -> bytes:
    """Inflate raw deflate data with the dictionary `known`; ValueError beyond `most` bytes, before allocating them."""
    unpacker = zlib.decompressobj(-15, zdict=known)
    try:
        text = unpacker.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError("it cannot be inflated") from error
    if len(text) > most or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"it does not inflate to {most} bytes or fewer")
    return text


def _grouped(symbols: np.ndarray, levels: int) -> np.ndarray:
    """Several integers per byte, as digits in base 2 levels + 1: (ceil(q / group),) uint8."""
    base = 2 * levels + 1
    group = _group(len(symbols), levels)
    digits = (symbols + np.int8(levels)).astype(np.uint8)
    if group == 1:
        return digits
    digits = np.concatenate([digits, np.zeros(-len(digits) % group, np.uint8)]).reshape(-1, group)
    total = digits[:, -1].copy()
    for i in reversed(range(group - 1)):
        total = total * np.uint8(base) + digits[:, i]
    return total


def _group(size: int, levels: int) -> int:
    """How many integers go into one byte: 1 in short messages, else as many as fit."""
    if size < GROUP_FROM:
        return 1
    return max(g for g in range(1, 6) if (2 * levels + 1) ** g <= 256)


# ---- lengths ----


def length(n: int) -> bytes:
    """A length as bytes: seven bits per byte, lowest first; the last byte is below 128."""
    out = b""
    while n >= 128:
        out = out + bytes([n % 128 + 128])
        n = n // 128
    return out + bytes([n])


def read_length(content: bytes, at: int) -> tuple[int, int]:
    """(the length that starts at position `at`, the position after it); ValueError if it is cut off."""
    n, shift = 0, 0
    while True:
        if at >= len(content) or shift > 56:
            raise ValueError(f"it is cut off, or holds no length, after {at} bytes")
        byte = content[at]
        at = at + 1
        n = n + ((byte % 128) << shift)
        shift = shift + 7
        if byte < 128:
            return n, at
