"""The requests and the record batch of the raw suite, byte by byte, in their last inflexible versions."""

import os
import socket
import struct
import time
import uuid

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 20, 22
COORDINATOR_LOAD_IN_PROGRESS = 14

CRC_TABLE = []
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    CRC_TABLE.append(crc)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def string(text):
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def array(items):
    return struct.pack(">i", len(items)) + b"".join(items)


def blob(data):
    return struct.pack(">i", len(data)) + data


def unsigned(number):
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def varint(number):
    return unsigned(number << 1 ^ number >> 63)


def records(values):
    """Keyless records."""
    out = b""
    for index, value in enumerate(values):
        body = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
        out += varint(len(body)) + body
    return out


def batch(values, producer_id=-1, epoch=-1, sequence=-1, magic=2, attributes=0, break_crc=0, **unusual):
    """A version 2 record batch of keyless records; `payload`, `count` and `timestamp` may contradict the values."""
    payload, count = unusual.get("payload", records(values)), unusual.get("count", len(values))
    timestamp = unusual.get("timestamp", int(time.time() * 1000))
    ends = struct.pack(">hiqq", attributes, count - 1, timestamp, timestamp)
    tail = ends + struct.pack(">qhii", producer_id, epoch, sequence, count) + payload
    checked = struct.pack(">ibI", 0, magic, crc32c(tail) ^ break_crc) + tail
    return struct.pack(">qi", 0, len(checked)) + checked


def frame(key, version, correlation, body, client="raw"):
    """A request with header version 1."""
    content = struct.pack(">hhi", key, version, correlation) + string(client) + body
    return struct.pack(">i", len(content)) + content


def produce(topic, records, acks=1, partition=0):
    """Produce, version 3 to 8, of one partition."""
    parts = array([struct.pack(">i", partition) + blob(records)])
    return string(None) + struct.pack(">hi", acks, 10_000) + array([string(topic) + parts])


def fetch(targets, max_wait=500, min_bytes=1, max_bytes=50_000_000, part_bytes=1_000_000, session=(0, -1)):
    """Fetch version 11 of (topic, partition, offset) targets."""
    topics = [
        string(topic) + array([struct.pack(">iiqqi", partition, -1, offset, -1, part_bytes)])
        for topic, partition, offset in targets
    ]
    head = struct.pack(">iiiibii", -1, max_wait, min_bytes, max_bytes, 0, *session)
    return head + array(topics) + array([]) + string("")


class Reader:
    """Reads the fields of an answer in turn."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return values[0] if len(values) == 1 else values

    def bytes(self, length):
        self.at += max(length, 0)
        return self.data[self.at - max(length, 0) : self.at]

    def string(self):
        return self.bytes(self.take("h")).decode()

    def array(self, read):
        return [read() for _ in range(self.take("i"))]


class Closed(Exception):
    """The broker closed the connection."""


class Connection:
    """One connection to the broker under test; counts correlation ids."""

    def __init__(self, bootstrap=None, timeout=20.0, receive_buffer=None):
        host, port = (bootstrap or os.environ["BOOTSTRAP"]).rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((host, int(port)))
        self.correlation = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, key, version, body=b""):
        self.correlation += 1
        self.socket.sendall(frame(key, version, self.correlation, body))
        return self.correlation

    def receive(self):
        """The correlation id of the next answer, and a reader of the rest."""
        length = struct.unpack(">i", self.exactly(4))[0]
        reader = Reader(self.exactly(length))
        return reader.take("i"), reader

    def ask(self, key, version, body=b""):
        sent = self.send(key, version, body)
        correlation, reader = self.receive()
        assert correlation == sent, f"asked {sent}, answered {correlation}"
        return reader

    def exactly(self, length):
        parts = b""
        while len(parts) < length:
            try:
                part = self.socket.recv(min(length - len(parts), 1 << 20))
            except ConnectionError:
                part = b""
            if not part:
                raise Closed(f"after {len(parts)} of {length} bytes")
            parts += part
        return parts

    def closes(self):
        """Whether the broker closes the connection without an answer."""
        try:
            self.exactly(1)
        except Closed:
            return True
        return False

    def new_topic(self, stem="raw", partitions=1, **configs):
        topic = f"{stem}-{uuid.uuid4().hex[:8]}"
        pairs = [string(key.replace("_", ".")) + string(value) for key, value in configs.items()]
        wanted = string(topic) + struct.pack(">ih", partitions, 1) + array([]) + array(pairs)
        reader = self.ask(CREATE_TOPICS, 4, array([wanted]) + struct.pack(">ib", 20_000, 0))
        reader.take("i")
        ((_, code, _),) = reader.array(lambda: (reader.string(), reader.take("h"), reader.string()))
        assert code == 0, f"CreateTopics: {code}"
        while any(self.end(topic, partition) is None for partition in range(partitions)):
            time.sleep(0.05)
        return topic

    def delete_topic(self, topic):
        reader = self.ask(DELETE_TOPICS, 3, array([string(topic)]) + struct.pack(">i", 20_000))
        reader.take("i")
        ((_, code),) = reader.array(lambda: (reader.string(), reader.take("h")))
        assert code == 0, f"DeleteTopics: {code}"

    def end(self, topic, partition=0):
        """The log end offset, or None while the partition has no leader."""
        part = array([struct.pack(">iq", partition, -1)])
        reader = self.ask(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string(topic) + part]))
        part = lambda: reader.take("ihqq")
        (((_, code, _, offset),),) = reader.array(lambda: (reader.string(), reader.array(part))[1])
        return None if code else offset

    def produce(self, topic, records, acks=1, partition=0, version=7):
        """The error code and base offset of one produced partition, by version 3 to 7."""
        reader = self.ask(PRODUCE, version, produce(topic, records, acks, partition))
        part = lambda: reader.take("ihqq" if version < 5 else "ihqqq")[:3]
        (((_, code, offset),),) = reader.array(lambda: (reader.string(), reader.array(part))[1])
        return code, offset

    def fetch(self, targets, **limits):
        """The error code, the session and, per partition, (error code, high watermark, records)."""
        return self.read_fetch(self.ask(FETCH, 11, fetch(targets, **limits)))

    @staticmethod
    def read_fetch(reader):
        _, code, session = reader.take("ihi")
        found = {}

        def part(topic):
            partition, error, high, _, _ = reader.take("ihqqq")
            reader.array(lambda: reader.take("qq"))
            reader.take("i")
            found[topic, partition] = error, high, reader.bytes(reader.take("i"))

        def one():
            topic = reader.string()
            reader.array(lambda: part(topic))

        reader.array(one)
        return code, session, found

    def init_producer_id(self):
        """A new producer id and its epoch, once their coordinator has loaded."""
        while True:
            reader = self.ask(INIT_PRODUCER_ID, 1, string(None) + struct.pack(">i", 60_000))
            _, code, producer_id, epoch = reader.take("ihqh")
            if code == 0:
                return producer_id, epoch
            assert code == COORDINATOR_LOAD_IN_PROGRESS, f"InitProducerId: {code}"
            time.sleep(0.1)
