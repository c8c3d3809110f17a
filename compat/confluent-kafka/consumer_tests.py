"""What a consumer sees: groups and their rebalances, positions, commits, offsets by time, watermarks."""

import threading
import time

from confluent_kafka import OFFSET_END, TopicPartition

from clients import admin, consumer, deliver, fill, new_topic, producer, settled, take
from suite import each, unique, until


def assigned(*readers, partitions):
    """Polls until the readers share that many partitions, each with at least one each."""

    def shared():
        for reader in readers:
            reader.poll(0.05)
        parts = [part.partition for reader in readers for part in reader.assignment()]
        return sorted(parts) == list(range(partitions)) and all(reader.assignment() for reader in readers)

    until(shared, "an assignment of every partition", timeout=30, pause=0)


def close(*readers):
    for reader in readers:
        reader.close()


def test_commit_and_committed():
    topic, group = new_topic("commit"), unique("commit")
    fill(topic, [b"a", b"b", b"c"])
    reader = consumer(group, enable_auto_commit=False)
    reader.subscribe([topic])
    take(reader, 2)
    reader.commit(offsets=[TopicPartition(topic, 0, 2, "a note")], asynchronous=False)
    (found,) = reader.committed([TopicPartition(topic, 0)], timeout=10)
    close(reader)
    assert (found.offset, found.metadata) == (2, "a note"), found
    reader = consumer(group)
    reader.subscribe([topic])
    assert take(reader, 1)[0].value() == b"c"
    close(reader)


def test_nothing_committed_is_no_offset():
    topic = new_topic("nothing")
    reader = consumer()
    (found,) = reader.committed([TopicPartition(topic, 0)], timeout=10)
    close(reader)
    assert found.offset == -1001 and found.error is None, found


def test_auto_commit_on_close():
    topic, group = new_topic("auto"), unique("auto")
    fill(topic, [b"a", b"b"])
    first = consumer(group, enable_auto_commit=True)
    first.subscribe([topic])
    take(first, 2)
    close(first)
    second = consumer(group)
    (found,) = second.committed([TopicPartition(topic, 0)], timeout=10)
    close(second)
    assert found.offset == 2, found


def test_seek_and_position():
    topic = new_topic("seek")
    fill(topic, [b"%d" % number for number in range(100)])
    reader = consumer()
    reader.assign([TopicPartition(topic, 0, 0)])
    take(reader, 1)
    reader.seek(TopicPartition(topic, 0, 50))
    assert take(reader, 1)[0].value() == b"50"
    (position,) = reader.position([TopicPartition(topic, 0)])
    close(reader)
    assert position.offset == 51, position


def test_starts_in_the_middle_of_a_batch():
    topic = new_topic("middle")
    fill(topic, [b"%d" % number for number in range(100)], linger_ms=100, compression_type="gzip")
    reader = consumer()
    reader.assign([TopicPartition(topic, 0, 42)])
    found = take(reader, 3)
    close(reader)
    assert [(message.offset(), message.value()) for message in found] == [(42, b"42"), (43, b"43"), (44, b"44")]


def test_waits_at_the_end_for_new_records():
    topic = new_topic("tail")
    fill(topic, [b"old"])
    reader = consumer()
    reader.assign([TopicPartition(topic, 0, OFFSET_END)])
    assert reader.poll(1.0) is None
    began = time.monotonic()
    fill(topic, [b"new"])
    (message,) = take(reader, 1)
    close(reader)
    assert message.value() == b"new" and time.monotonic() - began < 2


@each("earliest", "latest")
def test_resets_an_offset_out_of_range(policy):
    topic = new_topic("range")
    fill(topic, [b"a", b"b"])
    reader = consumer(auto_offset_reset=policy)
    reader.assign([TopicPartition(topic, 0, 1_000)])
    reader.poll(1.0) if policy == "latest" else None
    fill(topic, [b"c"])
    (message,) = take(reader, 1)
    close(reader)
    assert message.value() == {"earliest": b"a", "latest": b"c"}[policy]


def test_offsets_for_times():
    topic = new_topic("times")
    stamps = [1_600_000_000_000 + 1_000 * number for number in range(10)]
    deliver([{"topic": topic, "value": b"x", "timestamp": stamp} for stamp in stamps], linger_ms=100)
    reader = consumer()
    query = lambda time: reader.offsets_for_times([TopicPartition(topic, 0, time)], timeout=10)[0].offset
    found = [query(stamps[0] - 5_000), query(stamps[4]), query(stamps[4] + 1), query(stamps[9] + 1)]
    close(reader)
    assert found == [0, 4, 5, OFFSET_END], found


def test_watermarks():
    topic = new_topic("watermarks")
    fill(topic, [b"x"] * 10)
    settled(admin.delete_records([TopicPartition(topic, 0, 4)]))
    reader = consumer()
    found = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    close(reader)
    assert found == (4, 10), found


def test_pause_and_resume():
    topic = new_topic("pause", partitions=2)
    fill(topic, [b"0"] * 10, partition=0)
    fill(topic, [b"1"] * 10, partition=1)
    reader = consumer()
    reader.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
    reader.pause([TopicPartition(topic, 1)])
    assert {message.partition() for message in take(reader, 10)} == {0}
    reader.resume([TopicPartition(topic, 1)])
    assert {message.partition() for message in take(reader, 10)} == {1}
    close(reader)


def test_isolation_levels_without_transactions():
    topic = new_topic("isolation")
    fill(topic, [b"a", b"b"])
    for level in ("read_committed", "read_uncommitted"):
        reader = consumer(isolation_level=level)
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in take(reader, 2)] == [b"a", b"b"]
        close(reader)


@each("range", "roundrobin", "cooperative-sticky")
def test_group_rebalances_as_members_come_and_go(strategy):
    topic, group = new_topic("rebalance", partitions=4), unique("rebalance")
    config = {"partition_assignment_strategy": strategy}
    first, second = consumer(group, **config), consumer(group, **config)
    first.subscribe([topic])
    assigned(first, partitions=4)
    second.subscribe([topic])
    assigned(first, second, partitions=4)
    close(first)
    assigned(second, partitions=4)
    close(second)


def test_group_shares_every_record_once():
    topic, group = new_topic("once", partitions=4), unique("once")
    readers = [consumer(group) for _ in range(3)]
    for reader in readers:
        reader.subscribe([topic])
    assigned(*readers, partitions=4)
    sender = producer()
    for number in range(1_000):
        sender.produce(topic, b"%d" % number, partition=number % 4)
    assert sender.flush(30) == 0
    found = []

    def read_some():
        for reader in readers:
            found.extend(int(message.value()) for message in reader.consume(500, 0.1))
        return len(found) >= 1_000

    until(read_some, "1,000 records", pause=0)
    close(*readers)
    assert sorted(found) == list(range(1_000))


def test_static_member_returns_without_a_rebalance():
    topic, group = new_topic("static", partitions=2), unique("static")
    revoked = threading.Event()
    first = consumer(group, group_instance_id="one", session_timeout_ms=20_000)
    second = consumer(group, group_instance_id="two", session_timeout_ms=20_000)
    first.subscribe([topic], on_revoke=lambda *_: revoked.set())
    second.subscribe([topic])
    assigned(first, second, partitions=2)
    before = second.assignment()
    revoked.clear()
    close(second)
    second = consumer(group, group_instance_id="two", session_timeout_ms=20_000)
    second.subscribe([topic])
    assigned(first, second, partitions=2)
    after = second.assignment()
    assert not revoked.is_set(), "the other member lost its partitions"
    close(first, second)
    assert [part.partition for part in before] == [part.partition for part in after]


def test_static_member_is_fenced_by_its_double():
    topic, group = new_topic("fenced"), unique("fenced")
    first = consumer(group, group_instance_id="one")
    first.subscribe([topic])
    assigned(first, partitions=1)
    second = consumer(group, group_instance_id="one")
    second.subscribe([topic])

    def fenced():
        second.poll(0.05)
        message = first.poll(0.2)
        return message is not None and message.error() and message.error().name() in ("FENCED_INSTANCE_ID", "_FATAL")

    until(fenced, "the first member fenced", timeout=20, pause=0)
    close(second)
    close(first)


def test_member_that_dies_loses_its_partitions():
    topic, group = new_topic("dies", partitions=2), unique("dies")
    first, second = consumer(group, max_poll_interval_ms=6_000), consumer(group)
    first.subscribe([topic])
    second.subscribe([topic])
    assigned(first, second, partitions=2)
    assigned(second, partitions=2)
    close(second, first)


def test_commits_of_many_partitions():
    topic, group = new_topic("wide", partitions=50), unique("wide")
    reader = consumer(group)
    wanted = [TopicPartition(topic, number, number * 10) for number in range(50)]
    reader.commit(offsets=wanted, asynchronous=False)
    found = reader.committed([TopicPartition(topic, number) for number in range(50)], timeout=10)
    close(reader)
    assert [part.offset for part in found] == [number * 10 for number in range(50)]
