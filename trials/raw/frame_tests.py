"""Frames: partial, hostile, pipelined, with unsupported versions; connections: idle, stalled, too many."""

import contextlib
import os
import pathlib
import random
import struct
import time

from broker import Broker, SUITE_SETTINGS, TARGETS
from suite import TARGET, Skip, each, until
from wire import API_VERSIONS, FETCH, METADATA, PRODUCE, Connection, array, batch, fetch, frame, string

UNSUPPORTED_VERSION = 35


def still_serves():
    """The broker answers a new connection."""
    with Connection() as connection:
        assert connection.ask(API_VERSIONS, 0).take("h") == 0


@contextlib.contextmanager
def own_broker(name, **settings):
    """A separate broker with these settings."""
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    settings = {key.replace("_", "."): value for key, value in settings.items()}
    place = pathlib.Path(os.environ["WORK"]) / name
    with Broker(TARGET, place, {**SUITE_SETTINGS, **settings}, heap="256m") as started:
        yield started


@each(2, 4, 9, 30)
def test_half_a_frame_and_then_the_end(length):
    with Connection() as connection:
        connection.socket.sendall(frame(METADATA, 1, 1, array([string("a topic with a name")]))[:length])
    still_serves()


def test_frame_in_single_bytes():
    with Connection() as connection:
        for byte in frame(API_VERSIONS, 0, 7, b""):
            connection.socket.sendall(bytes([byte]))
            time.sleep(0.005)
        assert connection.receive()[0] == 7


@each(-1, -(2**31), 2**31 - 1, 104_857_601)
def test_length_out_of_bounds_closes(length):
    with Connection() as connection:
        connection.socket.sendall(struct.pack(">i", length) + b"some bytes")
        assert connection.closes()
    still_serves()


@each(0, 1, 7)
def test_frame_too_short_for_a_header_closes(length):
    with Connection() as connection:
        connection.socket.sendall(struct.pack(">i", length) + bytes(length))
        assert connection.closes()
    still_serves()


def test_garbage_closes():
    noise = random.Random(20)
    for _ in range(50):
        with Connection() as connection:
            body = noise.randbytes(noise.randrange(8, 200))
            connection.socket.sendall(struct.pack(">i", len(body)) + b"\x7f" + body[1:])
            assert connection.closes()
    still_serves()


def test_text_of_another_protocol_closes():
    with Connection() as connection:
        connection.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.closes()
    still_serves()


@each(2**31 - 1, 100_000_000, 1_000)
def test_array_count_beyond_the_frame_closes(count):
    with Connection() as connection:
        connection.send(METADATA, 1, struct.pack(">i", count) + string("x"))
        assert connection.closes()
    still_serves()


def test_string_beyond_the_frame_closes():
    with Connection() as connection:
        connection.send(METADATA, 1, struct.pack(">ih", 1, 30_000) + b"x")
        assert connection.closes()
    still_serves()


def test_unknown_api_closes():
    with Connection() as connection:
        connection.send(12_345, 0)
        assert connection.closes()
    still_serves()


@each("0/2", "0/99", "1/3", "3/99", "36/99")
def test_version_that_is_not_served_closes(request):
    key, version = map(int, request.split("/"))
    with Connection() as connection:
        connection.send(key, version, bytes(20))
        assert connection.closes()
    still_serves()


@each(5, 127)
def test_api_versions_of_the_future_is_answered_as_version_0(version):
    with Connection() as connection:
        reader = connection.ask(API_VERSIONS, version, bytes(10))
        assert reader.take("h") == UNSUPPORTED_VERSION
        ranges = {key: (low, high) for key, low, high in reader.array(lambda: reader.take("hhh"))}
        assert ranges[API_VERSIONS] == (0, 4), ranges
        assert connection.ask(API_VERSIONS, 0).take("h") == 0


def test_api_versions_advertises_produce_from_version_0():
    with Connection() as connection:
        reader = connection.ask(API_VERSIONS, 0)
        reader.take("h")
        ranges = {key: (low, high) for key, low, high in reader.array(lambda: reader.take("hhh"))}
        assert ranges[PRODUCE][0] == 0 and ranges[PRODUCE][1] >= 9, ranges[PRODUCE]
        assert ranges[FETCH][0] == 4, ranges[FETCH]


def test_null_client_id_and_unknown_tags():
    with Connection() as connection:
        tags = bytes([1, 99, 3]) + b"tag"
        names = b"\x04raw\x021"
        content = struct.pack(">hhih", API_VERSIONS, 3, 5, -1) + tags + names + tags
        connection.socket.sendall(struct.pack(">i", len(content)) + content)
        correlation, reader = connection.receive()
        assert correlation == 5 and reader.take("h") == 0


def test_pipelined_requests_are_answered_in_order():
    with Connection() as connection:
        sent = b"".join(frame(*((METADATA, 1, n, array([])) if n % 2 else (API_VERSIONS, 0, n, b""))) for n in range(200))
        connection.socket.sendall(sent)
        assert [connection.receive()[0] for _ in range(200)] == list(range(200))


def test_answer_that_is_ready_waits_for_the_one_before():
    with Connection() as connection:
        topic = connection.new_topic()
        waits = connection.send(FETCH, 11, fetch([(topic, 0, 0)], max_wait=1_000))
        ready = connection.send(API_VERSIONS, 0)
        began = time.monotonic()
        assert [connection.receive()[0] for _ in range(2)] == [waits, ready]
        assert time.monotonic() - began > 0.8


def test_slow_reader_hinders_nobody_and_gets_all():
    with Connection() as connection:
        topic = connection.new_topic()
        for _ in range(20):
            connection.produce(topic, batch([bytes(50_000)] * 2))
    with Connection(receive_buffer=4_096, timeout=60) as slow:
        for _ in range(100):
            slow.send(FETCH, 11, fetch([(topic, 0, 0)], part_bytes=2_000_000))
        time.sleep(1)
        still_serves()
        sizes = set()
        for _ in range(100):
            _, reader = slow.receive()
            _, _, found = slow.read_fetch(reader)
            sizes.add(len(found[topic, 0][2]))
        assert len(sizes) == 1 and sizes.pop() > 1_000_000


def test_many_connections_come_and_go():
    for _ in range(10):
        crowd = [Connection() for _ in range(100)]
        for connection in crowd[::3]:
            connection.send(API_VERSIONS, 0)
        for connection in crowd:
            connection.socket.close()
    still_serves()


def test_idle_connection_is_closed():
    with own_broker("idle", connections_max_idle_ms="1500") as started:
        with Connection(started.bootstrap) as idle, Connection(started.bootstrap) as busy:
            idle.ask(API_VERSIONS, 0)
            until(lambda: busy.ask(API_VERSIONS, 0) and gone(idle), "the idle one closed", timeout=10, pause=0.2)


def gone(connection):
    """Whether the broker has closed an idle connection by now."""
    connection.socket.setblocking(False)
    try:
        return connection.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_connections_beyond_the_limit_of_an_address_are_closed():
    with own_broker("crowd", max_connections_per_ip="5") as started:
        crowd = []
        until(lambda: not crowd.append(Connection(started.bootstrap)) and len(crowd) == 10, "ten", pause=0.02)
        until(lambda: sum(gone(connection) for connection in crowd) >= 4, "the rest closed")
        for connection in crowd:
            connection.socket.close()
        until(lambda: answered(started.bootstrap), "room again")


def answered(bootstrap):
    try:
        with Connection(bootstrap) as connection:
            return connection.ask(API_VERSIONS, 0).take("h") == 0
    except Exception:
        return False
