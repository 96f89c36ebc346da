"""Small whole numbers to bytes and back, without loss: Huffman codes, or bit planes where these are shorter; gaps where most are 0.

Planes cost one bit a zero and, for others, a sign and a magnitude of fixed width; they have no header and suit short messages.
Huffman codes (raw deflate without matches) come within 2 % of the entropy of long ones. Gaps between the numbers that are not 0, in Rice's
code, cost about log2(gap) + 2 bits each, and a 0 costs next to nothing.
"""

from __future__ import annotations

import zlib

import numpy as np

PLANES, HUFFMAN = 0, 1
ALL_ZERO = 15  # in the place of a width
GROUP_FROM = 32_768  # numbers; below, the longer code table of grouped numbers costs more than it saves


def pack(symbols: np.ndarray, levels: int) -> np.ndarray:  # (q,) int8 in [-levels, levels] -> uint8
    """The bytes from which `unpack` gives the numbers back; the first one says how."""
    way, body = HUFFMAN, _huffman(symbols, levels)
    if len(symbols) < GROUP_FROM:
        planes = _planes(symbols, levels)
        way, body = (PLANES, planes) if len(planes) < len(body) else (way, body)
    return np.concatenate([np.array([way], np.uint8), body])


def unpack(packed: np.ndarray, size: int, levels: int) -> np.ndarray:  # -> (q,) int8
    """ValueError for bytes that `pack` never gives."""
    if not len(packed) or packed[0] not in (PLANES, HUFFMAN):
        raise ValueError(f"{size} numbers do not say how they are packed")
    return (_from_huffman if packed[0] == HUFFMAN else _from_planes)(packed[1:], size, levels)


def expect(found: int, wanted: int, size: int) -> None:
    """ValueError where another number of bytes arrived than `size` numbers take."""
    if found != wanted:
        raise ValueError(f"{found} bytes stand for {size} numbers that take {wanted}")


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
    expect(len(packed), cut - (-n // 8) - (-n * width // 8), size)
    signs, rest = np.unpackbits(packed[cut : cut - (-n // 8)], count=n), packed[cut - (-n // 8) :]
    magnitudes = np.ones(n, np.int8)
    if width and n:
        bits = np.unpackbits(rest, count=n * width).reshape(n, width)
        magnitudes = bits @ (1 << np.arange(width)[::-1]) + 1
        if magnitudes.max() > levels:
            raise ValueError(f"a number is beyond {levels} levels")
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
    base, group = 2 * levels + 1, _group(size, levels)
    grouped = np.frombuffer(inflated(packed.tobytes(), -(-size // group)), np.uint8)
    expect(len(grouped), -(-size // group), size)
    if size and grouped.max() >= base**group:
        raise ValueError(f"a number is beyond {levels} levels")
    symbols = np.empty((len(grouped), group), np.uint8)
    for i in range(group):
        grouped, symbols[:, i] = np.divmod(grouped, base)
    return symbols.ravel()[:size].astype(np.int8) - np.int8(levels)


def inflated(packed: bytes, most: int, known: bytes = b"") -> bytes:
    """What raw deflate has packed, beside what was `known` before; ValueError beyond `most` bytes, before memory is taken."""
    unpacker = zlib.decompressobj(-15, zdict=known)
    try:
        text = unpacker.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError("it cannot be inflated") from error
    if len(text) > most or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"it does not inflate to {most} bytes or fewer")
    return text


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


# ---- gaps: how many zeros before each other number, its sign, its magnitude less one ----


def pack_gaps(symbols: np.ndarray) -> np.ndarray:  # (q,) whole numbers of any size -> uint8
    """Nothing at all where all are 0; else how many are not, and their Rice codes."""
    at = np.flatnonzero(symbols)
    if not len(at):
        return np.zeros(0, np.uint8)
    values = symbols[at].astype(np.int64)
    gaps, sizes = np.diff(at, prepend=-1) - 1, np.abs(values) - 1
    widths = _rice_width(gaps), _rice_width(sizes)
    bits = np.concatenate([*_rice(gaps, widths[0]), values < 0, *_rice(sizes, widths[1])])
    head = bytes([16 * widths[0] + widths[1]]) + length(len(at))
    return np.concatenate([np.frombuffer(head, np.uint8), np.packbits(bits)])


def unpack_gaps(packed: np.ndarray, size: int) -> np.ndarray:  # -> (q,) int64
    symbols = np.zeros(size, np.int64)
    if not len(packed):
        return symbols
    n, begin = read_length(bytes(packed[:11]), 1)
    if not 0 < n <= size:
        raise ValueError(f"{n} of {size} numbers are said to have moved")
    bits = np.unpackbits(packed[begin:]).astype(bool)
    gaps, used = _from_rice(bits, n, int(packed[0]) // 16)
    signs = bits[used : used + n]
    sizes, rest = _from_rice(bits[used + n :], n, int(packed[0]) % 16)
    expect(len(packed) - begin, -(-(used + n + rest) // 8), n)
    at = np.cumsum(gaps + 1) - 1
    if at[-1] >= size:
        raise ValueError(f"number {at[-1]} of {size} is said to have moved")
    symbols[at] = np.where(signs, -1, 1) * (sizes + 1)
    return symbols


def _rice_width(values: np.ndarray) -> int:
    """Of the remainders, so that the code is shortest: near log2 of the mean. ALL_ZERO where no code is needed."""
    if not values.any():
        return ALL_ZERO
    guess = min(int(np.log2(values.mean() + 1)), ALL_ZERO - 2)
    tries = range(max(0, guess - 1), guess + 2)
    return min(tries, key=lambda width: int((values >> width).sum()) + width * len(values))


def _rice(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(quotients as so many ones and a zero, remainders of `width` bits)."""
    if width == ALL_ZERO:
        return np.zeros(0, bool), np.zeros(0, bool)
    ends = np.cumsum((values >> width) + 1)
    unary = np.ones(ends[-1], bool)
    unary[ends - 1] = False
    return unary, (values[:, None] >> np.arange(width) & 1).astype(bool).ravel()


def _from_rice(bits: np.ndarray, n: int, width: int) -> tuple[np.ndarray, int]:
    """(numbers, bits that they took)."""
    if width == ALL_ZERO:
        return np.zeros(n, np.int64), 0
    ends = np.flatnonzero(~bits)[:n]
    if len(ends) < n or len(bits) < int(ends[-1]) + 1 + n * width:
        raise ValueError(f"{len(bits)} bits are too few for {n} numbers")
    quotients, used = np.diff(ends, prepend=-1) - 1, int(ends[-1]) + 1
    rest = bits[used : used + n * width].reshape(n, width) @ (1 << np.arange(width))
    return (quotients << width) + rest, used + n * width


# ---- a length: seven bits a byte, the last one below 128 ----


def length(n: int) -> bytes:
    out = b""
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n])


def read_length(content: bytes, at: int) -> tuple[int, int]:
    """(the length that begins there, where it ends)."""
    n, shift = 0, 0
    while True:
        if at >= len(content) or shift > 56:
            raise ValueError(f"it is cut off, or holds no length, after {at} bytes")
        byte, at = content[at], at + 1
        n, shift = n + ((byte % 128) << shift), shift + 7
        if byte < 128:
            return n, at
