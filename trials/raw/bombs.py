"""One record of zeros, with maximum compression: the longest decompression per byte sent.

The formats are written by hand, because only blocks that repeat a byte are needed.
"""

import struct
import zlib

from wire import batch, unsigned, varint

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MIB = 1 << 20


def bomb(codec, megabytes, ends_well=True):
    """A batch of one record with a value of this many megabytes. If it is invalid, only its last byte is."""
    size = megabytes * MIB
    inner = b"\0" + varint(0) + varint(0) + varint(-1) + varint(size)
    head, tail = varint(len(inner) + size + 1) + inner, b"\0" if ends_well else b"\2"
    return batch([], attributes=codec, count=1, payload=WRITERS[codec](head, megabytes, tail))


def gzip(head, megabytes, tail):
    codec = zlib.compressobj(wbits=31)
    return b"".join(map(codec.compress, [head, *[bytes(MIB)] * megabytes, tail])) + codec.flush()


def snappy(head, megabytes, tail):
    """One block: literals, and copies of 64 bytes from one byte back."""

    def literal(content):
        return bytes([(len(content) - 1) << 2]) + content

    zeros = literal(bytes(64)) + b"\xfe\x01\x00" * (megabytes * MIB // 64 - 1)
    return unsigned(len(head) + megabytes * MIB + len(tail)) + literal(head) + zeros + literal(tail)


def lz4(head, megabytes, tail):
    """A frame of independent blocks of up to 4 MiB: literals and one long match."""

    def lengths(literals, match):
        more = [value - 15 for value in (literals, match - 4)]
        token = min(literals, 15) << 4 | min(match - 4, 15)
        spilled = [b"\xff" * (value // 255) + bytes([value % 255]) if value >= 0 else b"" for value in more]
        return bytes([token]), *spilled

    def packed(content):
        return struct.pack("<I", len(content)) + content

    def zeros(size):
        last = bytes(12)
        token, literals, match = lengths(1, size - 1 - len(last))
        return packed(token + literals + b"\0" + b"\x01\x00" + match + bytes([len(last) << 4]) + last)

    def plain(content):
        return struct.pack("<I", len(content) | 1 << 31) + content

    blocks = zeros(MIB) * megabytes
    return bytes.fromhex("04224d18607073") + plain(head) + blocks + plain(tail) + bytes(4)


def zstd(head, megabytes, tail):
    """A frame of blocks that repeat one byte, up to 128 KiB each."""

    def block(kind, size, content, is_last=False):
        return (is_last | kind << 1 | size << 3).to_bytes(3, "little") + content

    blocks = block(1, MIB // 8, b"\0") * (8 * megabytes)
    window_of_128_kib = b"\x38"
    frame = bytes.fromhex("28b52ffd00") + window_of_128_kib
    return frame + block(0, len(head), head) + blocks + block(0, len(tail), tail, True)


WRITERS = {GZIP: gzip, SNAPPY: snappy, LZ4: lz4, ZSTD: zstd}
