"""Edge cases of produce and fetch: broken batches, sequences, limits, sessions."""

import gzip
import struct

from suite import each, until
from wire import API_VERSIONS, FETCH, PRODUCE, Connection, array, batch, blob, crc32c, fetch, produce, records, string

OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, INVALID_ACKS = 1, 2, 3, 21
INVALID_TIMESTAMP, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNSUPPORTED_COMPRESSION = 32, 53, 76
# Kafka does not report all unreadable batches as invalid records.
UNREADABLE = INVALID_RECORD, UNKNOWN_SERVER_ERROR = 87, -1
OUT_OF_ORDER, DUPLICATE_SEQUENCE, INVALID_EPOCH = 45, 46, 47
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, UNKNOWN_TOPIC_ID = 70, 71, 100


def offsets(records):
    """The base offset and the last offset of each batch."""
    found, at = [], 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        found.append((base, base + struct.unpack_from(">i", records, at + 23)[0]))
        at += 12 + length
    return found


def test_acks_0_gets_no_answer():
    with Connection() as connection:
        topic = connection.new_topic()
        connection.send(PRODUCE, 7, produce(topic, batch([b"quiet"]), acks=0))
        asked = connection.send(API_VERSIONS, 0)
        assert connection.receive()[0] == asked
        until(lambda: connection.end(topic) == 1, "the record")


def test_acks_0_with_an_error_closes():
    with Connection() as connection:
        topic = connection.new_topic()
        connection.send(PRODUCE, 7, produce(topic, batch([b"x"]), acks=0, partition=9))
        assert connection.closes()


@each(2, -2, 100)
def test_other_acks_are_refused(acks):
    with Connection() as connection:
        topic = connection.new_topic()
        assert connection.produce(topic, batch([b"x"]), acks) == (INVALID_ACKS, -1)
        assert connection.end(topic) == 0


def test_refused_partition_has_no_base_offset():
    with Connection() as connection:
        topic = connection.new_topic()
        assert connection.produce(topic, batch([b"x"]), partition=5) == (UNKNOWN_TOPIC, -1)


def test_one_bad_partition_does_not_fail_the_others():
    with Connection() as connection:
        topic = connection.new_topic(partitions=2)
        batches = enumerate((batch([b"x"], break_crc=1), batch([b"y"])))
        parts = [struct.pack(">i", partition) + blob(data) for partition, data in batches]
        body = string(None) + struct.pack(">hi", 1, 10_000) + array([string(topic) + array(parts)])
        reader = connection.ask(PRODUCE, 7, body)
        part = lambda: reader.take("ihqqq")[:3]
        ((first, second),) = reader.array(lambda: (reader.string(), reader.array(part))[1])
        assert first == (0, CORRUPT_MESSAGE, -1) and second == (1, 0, 0), (first, second)


@each("crc", "magic", "length", "no-records", "count", "two-batches", "empty", "truncated", "noise")
def test_broken_batch_is_refused(fault):
    good = batch([b"one", b"two"])
    broken = {
        "crc": batch([b"one"], break_crc=0x1000),
        "magic": batch([b"one"], magic=3),
        "length": good[:8] + struct.pack(">i", 20) + good[12:],
        "no-records": batch([]),
        "count": recount(good, 3),
        "two-batches": good + good,
        "empty": b"",
        "truncated": good[:-5],
        "noise": bytes(range(200)),
    }[fault]
    with Connection() as connection:
        topic = connection.new_topic()
        code, base = connection.produce(topic, broken)
        assert code in (CORRUPT_MESSAGE, INVALID_RECORD) and base == -1, (code, base)
        assert connection.end(topic) == 0
        assert connection.produce(topic, good) == (0, 0)


def refused_without_an_offset(connection, data, codes, version=7):
    topic = connection.new_topic()
    code, base = connection.produce(topic, data, version=version)
    assert code in codes and base == -1, (code, base)
    assert connection.end(topic) == 0


@each("none", "gzip", "snappy", "lz4", "zstd")
def test_garbage_that_claims_all_offsets_is_refused(codec):
    attributes = ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    garbage = bytes(number * 37 + 11 & 0xFF for number in range(32))
    for count in (3, 2**31 - 1):
        with Connection() as connection:
            data = batch([], attributes=attributes, payload=garbage, count=count)
            refused_without_an_offset(connection, data, UNREADABLE)


@each("fewer", "more", "far-more", "torn", "torn-stream", "trailing")
def test_compressed_records_are_what_the_header_says(fault):
    good, count = records([b"one", b"two", b"three"]), {"fewer": 2, "more": 4, "far-more": 2**31 - 1}.get(fault, 3)
    payload = gzip.compress({"torn": good[:-4], "trailing": good + b"\0"}.get(fault, good))
    payload = payload[:-12] if fault == "torn-stream" else payload
    with Connection() as connection:
        refused_without_an_offset(connection, batch([], attributes=1, payload=payload, count=count), UNREADABLE)


@each("length", "headers", "header-key", "varint")
def test_malformed_record_is_refused(fault):
    record = {
        "length": b"\x0a\0\0\0\x01\x02v\0",
        "headers": b"\x0e\0\0\0\x01\x02v\x01",
        "header-key": b"\x12\0\0\0\x01\x02v\x02\x01\0",
        "varint": b"\x14\0" + b"\x80" * 10,
    }[fault]
    with Connection() as connection:
        refused_without_an_offset(connection, batch([], payload=record, count=1), UNREADABLE)


def test_transactional_batch_without_a_transactional_id_is_refused():
    with Connection() as connection:
        refused_without_an_offset(
            connection, batch([b"x"], attributes=0x10), [TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        )


@each(3, 6)
def test_zstd_before_version_7_is_refused(version):
    with Connection() as connection:
        data = batch([b"x"], attributes=4)
        refused_without_an_offset(connection, data, [UNSUPPORTED_COMPRESSION], version)


def test_timestamp_too_old_for_64_bits_is_refused():
    with Connection() as connection:
        refused_without_an_offset(connection, batch([b"x"], timestamp=-(2**63)), [INVALID_TIMESTAMP])


def recount(good, count):
    """The batch with another record count and a matching checksum."""
    tail = good[21:57] + struct.pack(">i", count) + good[61:]
    return good[:17] + struct.pack(">I", crc32c(tail)) + tail


def test_fetch_in_the_middle_of_a_batch_returns_it_whole():
    with Connection() as connection:
        topic = connection.new_topic()
        connection.produce(topic, batch([b"a"] * 10))
        connection.produce(topic, batch([b"b"] * 10))
        _, _, found = connection.fetch([(topic, 0, 5)])
        assert found[topic, 0][:2] == (0, 20) and offsets(found[topic, 0][2]) == [(0, 9), (10, 19)]
        _, _, found = connection.fetch([(topic, 0, 19)])
        assert offsets(found[topic, 0][2]) == [(10, 19)]


@each("partition", "request")
def test_first_batch_is_returned_whatever_the_limit(limit):
    with Connection() as connection:
        topic = connection.new_topic(partitions=2)
        for partition in (0, 1):
            connection.produce(topic, batch([bytes(5_000)]), partition=partition)
        limits = {"part_bytes": 100} if limit == "partition" else {"max_bytes": 100}
        _, _, found = connection.fetch([(topic, 0, 0), (topic, 1, 0)], **limits)
        whole = [key for key, (_, _, records) in found.items() if offsets(records) and len(records) > 5_000]
        assert len(whole) == 1, {key: len(records) for key, (_, _, records) in found.items()}


def test_fetch_at_the_end_waits_and_beyond_it_does_not():
    with Connection() as connection:
        topic = connection.new_topic()
        connection.produce(topic, batch([b"x"]))
        _, _, found = connection.fetch([(topic, 0, 1)], max_wait=100)
        assert found[topic, 0] == (0, 1, b"")
        for offset in (2, -1, 2**62):
            _, _, found = connection.fetch([(topic, 0, offset)])
            assert found[topic, 0][0] == OFFSET_OUT_OF_RANGE, offset


def test_fetch_of_an_unknown_partition():
    with Connection() as connection:
        topic = connection.new_topic()
        _, _, found = connection.fetch([(topic, 7, 0)])
        assert found[topic, 7][0] == UNKNOWN_TOPIC


def test_parked_fetch_wakes_for_a_record():
    with Connection() as parked, Connection() as connection:
        topic = connection.new_topic()
        parked.send(FETCH, 11, fetch([(topic, 0, 0)], max_wait=20_000))
        connection.produce(topic, batch([b"wakes"]))
        _, _, found = parked.read_fetch(parked.receive()[1])
        assert offsets(found[topic, 0][2]) == [(0, 0)]


def test_fetch_of_an_unknown_topic_id():
    with Connection() as connection:
        part = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1_000) + b"\0"
        topic = bytes(range(16)) + b"\x02" + part + b"\0"
        body = struct.pack(">iiibii", 100, 1, 1_000_000, 0, 0, -1) + b"\x02" + topic + b"\x01\x01\0"
        content = struct.pack(">hhih", FETCH, 13, 1, -1) + b"\0" + struct.pack(">i", -1) + body
        connection.socket.sendall(struct.pack(">i", len(content)) + content)
        _, reader = connection.receive()
        reader.take("b")
        _, code, _, topics = reader.take("ihib")
        reader.bytes(16)
        _, _, error = reader.take("bih")
        assert (code, topics, error) == (0, 2, UNKNOWN_TOPIC_ID), (code, topics, error)


def test_fetch_session_sends_only_what_changed():
    with Connection() as connection:
        one, two = connection.new_topic(), connection.new_topic()
        _, session, found = connection.fetch([(one, 0, 0), (two, 0, 0)], max_wait=10, session=(0, 0))
        assert session > 0 and len(found) == 2
        _, _, found = connection.fetch([], max_wait=10, session=(session, 1))
        assert not found
        connection.produce(two, batch([b"x"]))
        _, _, found = connection.fetch([], max_wait=1_000, session=(session, 2))
        assert list(found) == [(two, 0)] and offsets(found[two, 0][2]) == [(0, 0)]
        assert connection.fetch([], session=(session, 9))[0] == INVALID_SESSION_EPOCH
        assert connection.fetch([], session=(session ^ 0x5555, 1))[0] == SESSION_NOT_FOUND
        connection.fetch([], max_wait=10, session=(session, -1))
        assert connection.fetch([], session=(session, 3))[0] == SESSION_NOT_FOUND


def test_producer_ids_differ():
    with Connection() as connection:
        ids = [connection.init_producer_id() for _ in range(20)]
        assert len({number for number, _ in ids}) == 20 and {epoch for _, epoch in ids} == {0}


def test_retried_batch_gets_its_first_offset():
    with Connection() as connection:
        topic, (producer, _) = connection.new_topic(), connection.init_producer_id()
        send = lambda sequence: connection.produce(topic, batch([b"x", b"y"], producer, 0, sequence))
        assert [send(sequence) for sequence in (0, 2, 4, 6, 8)] == [(0, offset) for offset in (0, 2, 4, 6, 8)]
        assert [send(sequence) for sequence in (0, 4, 8)] == [(0, 0), (0, 4), (0, 8)]
        assert connection.end(topic) == 10


def test_sequence_out_of_order_is_refused():
    with Connection() as connection:
        topic, (producer, _) = connection.new_topic(), connection.init_producer_id()
        send = lambda sequence: connection.produce(topic, batch([b"x"], producer, 0, sequence))
        assert [send(0), send(2), send(1)] == [(0, 0), (OUT_OF_ORDER, -1), (0, 1)]
        for sequence in range(2, 9):
            send(sequence)
        assert send(0)[0] in (OUT_OF_ORDER, DUPLICATE_SEQUENCE), "a batch that is no longer remembered"
        assert connection.end(topic) == 9


def test_new_epoch_starts_at_sequence_0_and_fences_the_old():
    with Connection() as connection:
        topic, (producer, _) = connection.new_topic(), connection.init_producer_id()
        send = lambda epoch, sequence: connection.produce(topic, batch([b"x"], producer, epoch, sequence))
        assert send(0, 0) == (0, 0)
        assert send(1, 5)[0] == OUT_OF_ORDER
        assert send(1, 0) == (0, 1)
        assert send(0, 1)[0] == INVALID_EPOCH


def test_sequence_wraps():
    with Connection() as connection:
        topic, (producer, _) = connection.new_topic(), connection.init_producer_id()
        send = lambda sequence, count: connection.produce(topic, batch([b"x"] * count, producer, 0, sequence))
        assert send(2**31 - 3, 2) == (0, 0), "an unknown producer may start anywhere"
        assert send(2**31 - 1, 2) == (0, 2)
        assert send(1, 1) == (0, 4)
        assert send(2**31 - 1, 2) == (0, 2), "the retry of the batch that wrapped"
