"""Records in every framing of each codec, good and bad, written by hand: only what the framing says matters."""

import struct
import zlib

from wire import unsigned

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MASK = (1 << 32) - 1


def framings(data):
    """What each framing is called, its codec, and the bytes."""
    for codec, forms in ((GZIP, gzip_forms), (SNAPPY, snappy_forms), (LZ4, lz4_forms), (ZSTD, zstd_forms)):
        for name, payload in forms(data).items():
            yield name, codec, payload


def halves(data):
    return data[: len(data) // 2], data[len(data) // 2 :]


def flipped(data, at):
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# gzip, RFC 1952


def member(data, flags=0, fields=b"", method=8, **trailer):
    """`fields` are those that the flags announce."""
    deflate = zlib.compressobj(wbits=-15)
    crc = trailer.get("crc", zlib.crc32(data))
    size = trailer.get("size", len(data) & MASK)
    head = bytes([0x1F, 0x8B, method, flags]) + bytes(6) + fields
    return head + deflate.compress(data) + deflate.flush() + struct.pack("<II", crc, size)


def head_crc(flags, fields):
    head = bytes([0x1F, 0x8B, 8, flags]) + bytes(6) + fields
    return struct.pack("<H", zlib.crc32(head) & 0xFFFF)


def gzip_forms(data):
    first, second = halves(data)
    extra, whole = struct.pack("<H", 3) + b"abc", member(data)
    checked = head_crc(0x02, b"")
    unflushed = zlib.compressobj(wbits=31)
    return {
        "one member": whole,
        "two members": member(first) + member(second),
        "an empty member first": member(b"") + whole,
        "an empty member last": whole + member(b""),
        "an extra field": member(data, 0x04, extra),
        "an extra field that is too long": member(data, 0x04, struct.pack("<H", 60_000)),
        "a name and a comment": member(data, 0x18, b"name\0comment\0"),
        "the flag of text": member(data, 0x01),
        "a checksum of the head": member(data, 0x02, checked),
        "a wrong checksum of the head": member(data, 0x02, flipped(checked, 0)),
        "all fields": member(data, 0x1E, extra + b"n\0c\0" + head_crc(0x1E, extra + b"n\0c\0")),
        "a reserved flag": member(data, 0x20),
        "all reserved flags": member(data, 0xE0),
        "another method": member(data, method=7),
        "a wrong checksum": member(data, crc=1),
        "a wrong size": member(data, size=1),
        "no trailer": whole[:-8],
        "half of a trailer": whole[:-3],
        "no end of the deflate stream": unflushed.compress(data) + unflushed.flush(zlib.Z_SYNC_FLUSH),
        "zeros behind it": whole + bytes(40),
        "few zeros behind it": whole + bytes(3),
        "garbage behind it": whole + b"garbage" * 9,
        "a second member that ends early": whole + member(b"second")[:-9],
        "a second member that is wrong": member(first) + member(second, crc=1),
        "the format of zlib": zlib.compress(data),
        "a raw deflate stream": whole[10:-8],
        "a magic alone": whole[:2],
        "nothing": b"",
    }


# Snappy, alone and as snappy-java frames it

XERIAL = b"\x82SNAPPY\0"
# A raw block of no bytes.
NO_LITERAL = b"\0"


def literal(data):
    """A raw block of one literal, of at most 64 KiB."""
    return unsigned(len(data)) + bytes([61 << 2]) + struct.pack("<H", len(data) - 1) + data


def chunk(block):
    return struct.pack(">i", len(block)) + block


def snappy_forms(data):
    first, second = halves(data)
    head = XERIAL + struct.pack(">ii", 1, 1)
    raw, one = literal(data), chunk(literal(data))
    two = chunk(literal(first)) + chunk(literal(second))
    return {
        "one raw block": raw,
        "a raw block and garbage": raw + b"garbage",
        "a raw block that claims more": unsigned(len(data) + 1) + raw[2:],
        "a raw block that claims less": unsigned(len(data) - 1) + raw[2:],
        "a raw block that ends early": raw[:-1],
        "a raw block of nothing": NO_LITERAL,
        "a copy from before the beginning": unsigned(len(data) + 4) + raw[2:] + bytes([1, 255]),
        "one block": head + one,
        "two blocks": head + two,
        "a head between two blocks": head + chunk(literal(first)) + head + chunk(literal(second)),
        "two heads": head + head + one,
        "a head behind the last": head + one + head,
        "a block of nothing": head + chunk(NO_LITERAL) + one,
        "a block of nothing last": head + one + chunk(NO_LITERAL),
        "a block of no bytes": head + chunk(b"") + one,
        "version 0": XERIAL + struct.pack(">ii", 0, 0) + one,
        "version 2": XERIAL + struct.pack(">ii", 2, 1) + one,
        "compatible with version 2 only": XERIAL + struct.pack(">ii", 2, 2) + one,
        "a negative version": XERIAL + struct.pack(">ii", -1, -1) + one,
        "little-endian versions": XERIAL + struct.pack("<ii", 1, 1) + one,
        "half of a head": head[:10],
        "a head alone": head,
        "a block that ends early": head + one[:-1],
        "a length that ends early": head + one + bytes(2),
        "a negative length": head + struct.pack(">i", -1) + literal(data),
        "garbage behind it": head + one + b"garbage",
        "the official framing": b"\xff\x06\0\0sNaPpY" + b"\1" + struct.pack("<I", len(data) + 4)[:3] + bytes(4) + data,
        "nothing": b"",
    }


# LZ4 frames


def xxh32(data, seed=0):
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    rotate = lambda value, by: (value << by | value >> 32 - by) & MASK
    at, size = 0, len(data)
    if size >= 16:
        lanes = [seed + p1 + p2 & MASK, seed + p2 & MASK, seed, seed - p1 & MASK]
        while at + 16 <= size:
            words = struct.unpack_from("<4I", data, at)
            lanes = [rotate(lane + word * p2 & MASK, 13) * p1 & MASK for lane, word in zip(lanes, words)]
            at += 16
        total = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & MASK
    else:
        total = seed + p5 & MASK
    total = total + size & MASK
    while at + 4 <= size:
        total = rotate(total + struct.unpack_from("<I", data, at)[0] * p3 & MASK, 17) * p4 & MASK
        at += 4
    for byte in data[at:]:
        total = rotate(total + byte * p5 & MASK, 11) * p1 & MASK
    total = (total ^ total >> 15) * p2 & MASK
    total = (total ^ total >> 13) * p3 & MASK
    return total ^ total >> 16


def lz4_head(flags=0x60, sizes=0x40, more=b"", wrong=0):
    described = bytes([flags, sizes]) + more
    return struct.pack("<I", 0x184D2204) + described + bytes([xxh32(described) >> 8 & 0xFF ^ wrong])


def stored(data, checksum=None):
    return struct.pack("<I", len(data) | 1 << 31) + data + (b"" if checksum is None else struct.pack("<I", checksum))


def literals(data):
    """A block of one sequence without a match."""
    more = len(data) - 15
    lengths = b"\xff" * (more // 255) + bytes([more % 255]) if more >= 0 else b""
    return bytes([min(len(data), 15) << 4]) + lengths + data


def packed(block):
    return struct.pack("<I", len(block)) + block


END = bytes(4)


def lz4_forms(data):
    first, second = halves(data)
    plain, size = stored(data), struct.pack("<Q", len(data))
    whole = lz4_head() + plain + END
    # 20 bytes that repeat what the block before ended with, and the rest as it is.
    repeated = bytes([15]) + struct.pack("<H", 20) + bytes([1]) + literals(second)
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    long_match = bytes([0x1F]) + data[:1] + struct.pack("<H", 1) + b"\xff" * 300 + b"\0" + literals(data[:12])
    return {
        "a stored block": whole,
        "a compressed block": lz4_head() + packed(literals(data)) + END,
        "two blocks": lz4_head() + stored(first) + packed(literals(second)) + END,
        "linked blocks, one": lz4_head(0x40) + plain + END,
        "linked blocks, two": lz4_head(0x40) + stored(first) + packed(literals(second)) + END,
        "a match into the block before": lz4_head() + stored(first) + packed(repeated) + END,
        "a linked match into the block before": lz4_head(0x40) + stored(first) + packed(repeated) + END,
        "a content size": lz4_head(0x68, more=size) + plain + END,
        "a wrong content size": lz4_head(0x68, more=struct.pack("<Q", 1)) + plain + END,
        "a checksum of the block": lz4_head(0x70) + stored(data, xxh32(data)) + END,
        "a wrong checksum of the block": lz4_head(0x70) + stored(data, 1) + END,
        "a checksum of the content": lz4_head(0x64) + plain + END + struct.pack("<I", xxh32(data)),
        "a wrong checksum of the content": lz4_head(0x64) + plain + END + struct.pack("<I", 1),
        "no checksum of the content": lz4_head(0x64) + plain + END,
        "a dictionary": lz4_head(0x61, more=struct.pack("<I", 7)) + plain + END,
        "the flag of a dictionary": lz4_head(0x61) + plain + END,
        "a reserved flag": lz4_head(0x62) + plain + END,
        "version 0": lz4_head(0x20) + plain + END,
        "version 2": lz4_head(0xA0) + plain + END,
        "reserved bits of the size": lz4_head(sizes=0x41) + plain + END,
        "the reserved high bit of the size": lz4_head(sizes=0xC0) + plain + END,
        **{f"block size {code}": lz4_head(sizes=code << 4) + plain + END for code in range(8)},
        "a wrong checksum of the head": lz4_head(wrong=1) + plain + END,
        "no end mark": lz4_head() + plain,
        "half of an end mark": lz4_head() + plain + END[:2],
        "garbage behind it": whole + b"garbage",
        "two frames": lz4_head() + stored(first) + END + lz4_head() + stored(second) + END,
        "an empty frame behind it": whole + lz4_head() + END,
        "an empty frame before it": lz4_head() + END + whole,
        "a skippable frame before it": skippable + whole,
        "a skippable frame behind it": whole + skippable,
        "an empty stored block": lz4_head() + stored(b"") + plain + END,
        "an empty stored block last": lz4_head() + plain + stored(b"") + END,
        "an empty compressed block": lz4_head() + packed(b"\0") + plain + END,
        "a stored block that is too large": lz4_head() + stored(data + bytes(1 << 16)) + END,
        "a block that becomes too large": lz4_head() + packed(long_match) + END,
        "a block that ends early": lz4_head() + plain[:-1],
        "a match at the end of a block": lz4_head() + packed(literals(data[:-4]) + struct.pack("<H", 1)) + END,
        "the old frame": struct.pack("<I", 0x184C2102) + packed(literals(data)),
        "a block without a frame": literals(data),
        "no blocks": lz4_head() + END,
        "a head alone": lz4_head(),
        "half of a head": lz4_head()[:5],
        "nothing": b"",
    }


# Zstandard, RFC 8878


def xxh64(data, seed=0):
    p1, p2, p3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    p4, p5, mask = 9650029242287828579, 2870177450012600261, (1 << 64) - 1
    rotate = lambda value, by: (value << by | value >> 64 - by) & mask
    lane_of = lambda lane, word: rotate(lane + word * p2 & mask, 31) * p1 & mask
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + p1 + p2 & mask, seed + p2 & mask, seed, seed - p1 & mask]
        while at + 32 <= size:
            lanes = [lane_of(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at))]
            at += 32
        total = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            total = ((total ^ lane_of(0, lane)) * p1 + p4) & mask
    else:
        total = seed + p5 & mask
    total = total + size & mask
    while at + 8 <= size:
        total = (rotate(total ^ lane_of(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4) & mask
        at += 8
    if at + 4 <= size:
        total = (rotate(total ^ struct.unpack_from("<I", data, at)[0] * p1 & mask, 23) * p2 + p3) & mask
        at += 4
    for byte in data[at:]:
        total = rotate(total ^ byte * p5 & mask, 11) * p1 & mask
    total = (total ^ total >> 33) * p2 & mask
    total = (total ^ total >> 29) * p3 & mask
    return total ^ total >> 32


def block(data, is_last=True, kind=0, size=None):
    return (is_last | kind << 1 | (len(data) if size is None else size) << 3).to_bytes(3, "little") + data


def zstd(*blocks, flags=0, window=0x38, fields=b""):
    """A frame; `fields` are those behind the window that the flags announce."""
    return struct.pack("<IB", 0xFD2FB528, flags) + (b"" if window is None else bytes([window])) + fields + b"".join(blocks)


def zstd_forms(data):
    first, second = halves(data)
    whole, size = zstd(block(data)), struct.pack("<I", len(data))
    checksum = struct.pack("<I", xxh64(data) & MASK)
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    return {
        "one block": whole,
        "two blocks": zstd(block(first, False), block(second)),
        "an empty block first": zstd(block(b"", False), block(data)),
        "an empty block last": zstd(block(data, False), block(b"")),
        "two frames": zstd(block(first)) + zstd(block(second)),
        "an empty frame first": zstd(block(b"")) + whole,
        "an empty frame last": whole + zstd(block(b"")),
        "a single segment": zstd(block(data), flags=0xA0, window=None, fields=size),
        "a content size": zstd(block(data), flags=0x80, fields=size),
        "a content size that is too large": zstd(block(data), flags=0x80, fields=struct.pack("<I", len(data) + 1)),
        "a content size that is too small": zstd(block(data), flags=0x80, fields=struct.pack("<I", len(data) - 1)),
        "an enormous content size": zstd(block(data), flags=0xC0, fields=struct.pack("<Q", 1 << 60)),
        "a checksum": zstd(block(data), flags=0x04) + checksum,
        "a wrong checksum": zstd(block(data), flags=0x04) + flipped(checksum, 0),
        "no checksum": zstd(block(data), flags=0x04),
        "dictionary 0": zstd(block(data), flags=0x01, fields=b"\0"),
        "dictionary 7": zstd(block(data), flags=0x01, fields=b"\7"),
        "the unused bit": zstd(block(data), flags=0x10),
        "the reserved bit": zstd(block(data), flags=0x08),
        "the smallest window": zstd(block(data), window=0),
        "a window of 8 MiB": zstd(block(data), window=13 << 3),
        "a window of 128 MiB": zstd(block(data), window=17 << 3),
        "a window of more than 128 MiB": zstd(block(data), window=17 << 3 | 1),
        "a window of 2 GiB": zstd(block(data), window=21 << 3),
        "a skippable frame first": skippable + whole,
        "a skippable frame between": zstd(block(first)) + skippable + zstd(block(second)),
        "a skippable frame last": whole + skippable,
        "a skippable frame that ends early": whole + skippable[:-2],
        "a skippable frame alone": skippable,
        "garbage behind it": whole + b"garbage",
        "a byte behind it": whole + b"\0",
        "a magic behind it": whole + whole[:4],
        "no last block": zstd(block(data, False)),
        "a block that ends early": whole[:-1],
        "a reserved kind of block": zstd(block(data, kind=3)),
        "a repeated byte": zstd(block(data, False), block(b"\0", kind=1, size=1 << 17)),
        "a block larger than the window": zstd(block(data, False), block(bytes(2000)), window=0),
        "a compressed block of no bytes": zstd(block(data, False), block(b"", kind=2)),
        "the magic of version 0.7": flipped(whole, 0),
        "a head alone": whole[:6],
        "half of a head": whole[:3],
        "nothing": b"",
    }
