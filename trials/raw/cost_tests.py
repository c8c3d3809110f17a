"""A long request of one client must not delay others: while the longest requests of every served API, and the batches that
take longest to decompress, are read, decided and answered, small requests on other connections are answered soon, also by the
controller's only task. Generated from the schema, so that no API is left out.

COST_TABLE names a file for the longest waits of every request.
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import threading
import time

from bombs import GZIP, LZ4, SNAPPY, ZSTD, bomb
from broker import Broker, SUITE_SETTINGS
from longest import BYTES_MAX, Longest, shapes
from ports import free_port
from random_tests import served
from requests import apis, unsigned
from suite import NIGHTLY, TARGET, Skip
from wire import API_VERSIONS, PRODUCE, Closed, Connection, array, batch, blob, frame, string, varint

PATIENCE = 0.1
# Other load on the machine is not the broker's fault: only waits that are long in most attempts count.
TRIES = 5
OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
HERE = pathlib.Path(__file__).resolve().parent
# One of these tests at a time is enough load.
ALONE = threading.Lock()


class Node:
    """A separate broker with a controller listener, in which the names used by requests exist."""

    def __init__(self, broker, controller):
        self.bootstrap, self.controller = broker.bootstrap, controller
        self.connection = Connection(self.bootstrap, timeout=120.0)
        self.topic = self.connection.new_topic("cost", 3, max_message_bytes="104857600")
        self.pinged = self.connection.new_topic("pings", 1)
        described = (broker.data_dir / f"{self.topic}-0" / "partition.metadata").read_text()
        self.topic_id = base64.urlsafe_b64decode(re.search(r"topic_id: (\S+)", described)[1] + "==")
        self._make_coordinators()
        self.pings = Pings(self)

    def _make_coordinators(self):
        """A group with a committed offset; an active transaction coordinator."""
        offset = array([struct.pack(">iq", 0, 1) + string("")])
        commit = string("longest") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)
        commit += array([string(self.topic) + offset])
        deadline = time.monotonic() + 30
        while True:
            for kind in (b"\0", b"\1"):
                self.connection.ask(FIND_COORDINATOR, 1, string("longest") + kind)
            reader = self.connection.ask(OFFSET_COMMIT, 2, commit)
            ((_, ((_, code),)),) = reader.array(lambda: (reader.string(), reader.array(lambda: reader.take("ih"))))
            if code == 0:
                return
            assert time.monotonic() < deadline, f"OffsetCommit: {code}"
            time.sleep(0.1)

    def waits(self, address, sent):
        """The longest wait of each kind of ping while this is served."""
        self.pings.settle()
        connection = Connection(address, timeout=120.0)
        # A closed connection is an answer, too.
        with contextlib.suppress(Closed, ConnectionError), connection:
            connection.socket.sendall(sent)
            left, buffer = int.from_bytes(connection.exactly(4), "big"), bytearray(1 << 20)
            while left > 0:
                left -= connection.socket.recv_into(buffer, min(left, len(buffer))) or left
        return self.pings.take()

    def is_late(self, what, address, sent):
        """Describes the waits of pings in a line, if they were too long in most attempts."""
        tries = [self.waits(address, sent)]
        if max(tries[0].values()) > PATIENCE:
            tries += [self.waits(address, sent) for _ in range(TRIES - 1)]
        tries.sort(key=lambda waits: max(waits.values()))
        usual = tries[len(tries) // 2]
        line = f"{what}, {len(sent)} bytes: {', '.join(f'{kind} {wait * 1000:.0f} ms' for kind, wait in usual.items())}"
        if "COST_TABLE" in os.environ:
            with open(os.environ["COST_TABLE"], "a") as table:
                table.write(f"{max(usual.values()) * 1000:.0f}\t{line}\n")
        return line if max(usual.values()) > PATIENCE else None


class Pings:
    """The process that sends pings."""

    def __init__(self, node):
        command = [sys.executable, str(HERE / "pings.py"), node.bootstrap, node.controller, node.pinged]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def take(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def settle(self):
        """Waits until earlier requests no longer cause delays."""
        deadline = time.monotonic() + 60
        while max(self.take().values()) > PATIENCE / 4:
            assert time.monotonic() < deadline, "pings are slow although there is no load"
            time.sleep(0.05)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)


@contextlib.contextmanager
def node(name):
    controller = f"127.0.0.1:{free_port()}"
    quick = {"auto.create.topics.enable": "false", "transaction.partition.verification.enable": "false"}
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    broker = Broker(TARGET, pathlib.Path(os.environ["WORK"]) / name, {**SUITE_SETTINGS, **quick, **few})
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},CONTROLLER://{controller}"
    broker.settings["controller.listener.names"] = "CONTROLLER"
    with broker:
        started = Node(broker, controller)
        try:
            yield started
        finally:
            started.pings.stop()


def check(cases):
    if not NIGHTLY:
        raise Skip("takes minutes; run compat/run --nightly")
    if TARGET != "thalweg":
        raise Skip("Kafka does not guarantee this")
    with ALONE, node(cases.__name__) as started:
        late = [started.is_late(*case) for case in cases(started)]
        assert not any(late), "\n".join(line for line in late if line)


def longest_requests(node):
    writer = Longest(node.topic, node.topic_id, fixed={"AlterPartitionReassignments.Replicas": 1})
    of_broker, of_controller = (served(Connection(address)) for address in (node.bootstrap, node.controller))
    # Send controller APIs for brokers to the controller, those for clients to the broker.
    only_controller = [api for api in of_controller if api[0] not in {key for key, _, _ in of_broker}]
    for address, apis_served in ((node.bootstrap, of_broker), (node.controller, only_controller)):
        for key, _, version in apis_served:
            for shape in shapes(apis()[key], version):
                yield str(shape), address, writer.frame(shape)


def longest_headers(node):
    """Headers full of tagged fields, which are parsed first."""
    for key, version in ((API_VERSIONS, 3), (PRODUCE, 9)):
        head = struct.pack(">hhih", key, version, 1, 3) + b"raw"
        count = (BYTES_MAX - 100) // 2
        content = head + unsigned(count) + b"\x4d\0" * count
        yield f"a header of API {key}", node.bootstrap, struct.pack(">i", len(content)) + content


def bombs(node):
    """Batches that are far larger when decompressed, alone and many in one request."""

    def produced(batches):
        parts = [struct.pack(">i", index % 3) + blob(made) for index, made in enumerate(batches)]
        body = string(None) + struct.pack(">hi", 1, 60_000) + array([string(node.topic) + array(parts)])
        return frame(PRODUCE, 7, 1, body)

    yield "one batch of 120 MB in gzip", node.bootstrap, produced([bomb(GZIP, 120)])
    yield "one batch of 1 GB in gzip", node.bootstrap, produced([bomb(GZIP, 1_000)])
    yield "500 batches of 5 MB in gzip", node.bootstrap, produced([bomb(GZIP, 5)] * 500)
    yield "500 batches of 3 MB in gzip that end badly", node.bootstrap, produced([bomb(GZIP, 3, False)] * 500)
    yield "one batch of 500 MB in snappy", node.bootstrap, produced([bomb(SNAPPY, 500)])
    yield "100 batches of 5 MB in snappy", node.bootstrap, produced([bomb(SNAPPY, 5)] * 100)
    yield "one batch of 1 GB in lz4", node.bootstrap, produced([bomb(LZ4, 1_000)])
    yield "500 batches of 5 MB in lz4", node.bootstrap, produced([bomb(LZ4, 5)] * 500)
    yield "one batch of 1 GB in zstd", node.bootstrap, produced([bomb(ZSTD, 1_000)])
    yield "500 batches of 5 MB in zstd", node.bootstrap, produced([bomb(ZSTD, 5)] * 500)
    plain = batch([bytes(100)] * 7_000)
    yield "100 batches without a codec", node.bootstrap, produced([plain] * 100)
    bodies = (b"\0\0" + varint(index) + varint(-1) + varint(5) + b"small\0" for index in range(1_000_000))
    many = b"".join(varint(len(body)) + body for body in bodies)
    yield "one batch of a million records", node.bootstrap, produced([batch([], count=1_000_000, payload=many)])


def test_no_client_waits_for_the_long_request_of_another():
    check(longest_requests)


def test_no_client_waits_for_a_long_header_of_another():
    check(longest_headers)


def test_no_client_waits_for_the_bombs_of_another():
    check(bombs)
