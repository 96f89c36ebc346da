"""Small whole numbers to bytes and back, without loss: Huffman codes, or bit planes where these are shorter.

Planes cost one bit a zero and, for others, a sign and a magnitude of fixed width; they have no header and suit short messages.
Huffman codes (raw deflate without matches) come within 2 % of the entropy of long ones.
"""

from __future__ import annotations

import zlib

import numpy as np

PLANES, HUFFMAN = 0, 1
GROUP_FROM = 32_768  # numbers; below, the longer code table of grouped numbers costs more than it saves


def pack(symbols: np.ndarray, levels: int) -> np.ndarray:  # (q,) int8 in [-levels, levels] -> uint8
    """The bytes from which `unpack` gives the numbers back; the first one says how."""
    way, body = HUFFMAN, _huffman(symbols, levels)
    if len(symbols) < GROUP_FROM:
        planes = _planes(symbols, levels)
        way, body = (PLANES, planes) if len(planes) < len(body) else (way, body)
    return np.concatenate([np.array([way], np.uint8), body])


def unpack(packed: np.ndarray, size: int, levels: int) -> np.ndarray:  # -> (q,) int8
    return (_from_huffman if packed[0] == HUFFMAN else _from_planes)(packed[1:], size, levels)


# ---- planes: which are zero, signs, magnitudes less one ----


def _planes(symbols: np.ndarray, levels: int) -> np.ndarray:
    some = symbols != 0
    values = symbols[some]
    parts = [np.packbits(some), np.packbits(values < 0)]
    width = _width(levels)
    if width:
        parts.append(np.packbits(np.unpackbits((np.abs(values) - 1).astype(np.uint8)[:, None], axis=1)[:, -width:]))
    return np.concatenate(parts)


def _from_planes(packed: np.ndarray, size: int, levels: int) -> np.ndarray:
    cut = -(-size // 8)
    some = np.unpackbits(packed[:cut], count=size).astype(bool)
    n, width = int(some.sum()), _width(levels)
    signs, rest = np.unpackbits(packed[cut : cut - (-n // 8)], count=n), packed[cut - (-n // 8) :]
    magnitudes = np.ones(n, np.int8)
    if width and n:
        bits = np.unpackbits(rest, count=n * width).reshape(n, width)
        magnitudes = (bits @ (1 << np.arange(width)[::-1]) + 1).astype(np.int8)
    symbols = np.zeros(size, np.int8)
    symbols[some] = np.where(signs, -magnitudes, magnitudes)
    return symbols


def _width(levels: int) -> int:
    """Bits of a magnitude from 1 to levels."""
    return (levels - 1).bit_length()


# ---- Huffman: numbers grouped into bytes, then deflate without matches ----


def _huffman(symbols: np.ndarray, levels: int) -> np.ndarray:
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    packed = deflate.compress(_grouped(symbols, levels).tobytes()) + deflate.flush()
    return np.frombuffer(packed, np.uint8)


def _from_huffman(packed: np.ndarray, size: int, levels: int) -> np.ndarray:
    grouped = np.frombuffer(zlib.decompress(packed.tobytes(), -15), np.uint8)
    base, group = 2 * levels + 1, _group(size, levels)
    symbols = np.empty((len(grouped), group), np.uint8)
    for i in range(group):
        grouped, symbols[:, i] = np.divmod(grouped, base)
    return symbols.ravel()[:size].astype(np.int8) - np.int8(levels)


def _grouped(symbols: np.ndarray, levels: int) -> np.ndarray:
    """As many numbers as fit into a byte, as digits of one number."""
    base, group = 2 * levels + 1, _group(len(symbols), levels)
    digits = (symbols + np.int8(levels)).astype(np.uint8)
    if group == 1:
        return digits
    digits = np.concatenate([digits, np.zeros(-len(digits) % group, np.uint8)]).reshape(-1, group)
    total = digits[:, -1].copy()
    for i in reversed(range(group - 1)):
        total = total * np.uint8(base) + digits[:, i]
    return total


def _group(size: int, levels: int) -> int:
    if size < GROUP_FROM:
        return 1
    return max(g for g in range(1, 6) if (2 * levels + 1) ** g <= 256)
