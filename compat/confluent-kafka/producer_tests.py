"""What a producer sees: acknowledgements, codecs, sizes, order, headers, time stamps."""

import os

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from clients import consumer, deliver, fill, new_topic, producer, read, take
from suite import each, raises, unique


@each(0, 1, "all")
def test_produce_acks(acks):
    topic = new_topic("acks")
    fill(topic, [b"one", b"two"], acks=acks)
    assert [message.value() for message in read(topic, 2)] == [b"one", b"two"]


@each("none", "gzip", "snappy", "lz4", "zstd")
def test_produce_codec(codec):
    topic = new_topic(codec)
    values = [b"%d " % number + b"words that repeat " * 20 for number in range(3_000)]
    fill(topic, values, compression_type=codec, linger_ms=20)
    assert [message.value() for message in read(topic, len(values))] == values


@each("gzip", "zstd", "uncompressed", "producer")
def test_produce_to_a_topic_with_compression_type(kind):
    topic = new_topic("recompressed", compression_type=kind)
    values = [b"%d " % number + b"words that repeat " * 20 for number in range(500)]
    fill(topic, values, compression_type="lz4", linger_ms=20)
    assert [message.value() for message in read(topic, len(values))] == values


def test_idempotent_produce_keeps_order():
    topic = new_topic("idempotent")
    values = [b"%d" % number for number in range(20_000)]
    delivered = fill(topic, values, enable_idempotence=True, batch_num_messages=100, max_in_flight=5)
    assert [message.offset() for message in delivered] == list(range(len(values)))
    assert [message.value() for message in read(topic, len(values))] == values


def test_reports_carry_partition_and_offset():
    topic = new_topic("reports", partitions=2)
    assert [message.offset() for message in fill(topic, [b"a", b"b"], partition=1)] == [0, 1]
    assert [message.offset() for message in fill(topic, [b"c"], partition=0)] == [0]
    assert [message.offset() for message in fill(topic, [b"d"], partition=1)] == [2]


def test_keys_choose_the_partition():
    topic = new_topic("keys", partitions=4)
    records = [{"topic": topic, "key": b"%d" % (number % 20), "value": b"%d" % number} for number in range(400)]
    placed = {}
    for message in deliver(records):
        assert placed.setdefault(message.key(), message.partition()) == message.partition()
    assert len(set(placed.values())) > 1


def test_null_key_and_value_and_empty_ones():
    topic = new_topic("null")
    kinds = [(None, None), (b"", b""), (b"k", None), (None, b"v")]
    deliver([{"topic": topic, "key": key, "value": value} for key, value in kinds])
    assert [(message.key(), message.value()) for message in read(topic, 4)] == kinds


def test_headers():
    topic = new_topic("headers")
    headers = [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b""), ("binary", bytes(range(256)))]
    deliver([{"topic": topic, "value": b"x", "headers": headers}])
    assert read(topic, 1)[0].headers() == headers


def test_create_time_is_the_producers():
    topic = new_topic("create-time")
    deliver([{"topic": topic, "value": b"x", "timestamp": 1_600_000_000_123}])
    assert read(topic, 1)[0].timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_123)


def test_log_append_time_is_the_brokers():
    topic = new_topic("append-time", message_timestamp_type="LogAppendTime")
    deliver([{"topic": topic, "value": b"x", "timestamp": 1_600_000_000_123}], compression_type="zstd")
    kind, stamp = read(topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME and stamp > 1_600_000_000_123, (kind, stamp)


def test_message_of_a_megabyte():
    topic = new_topic("megabyte")
    value = os.urandom(1_000_000)
    fill(topic, [value], message_max_bytes=1_048_500)
    assert read(topic, 1)[0].value() == value


def test_message_larger_than_the_fetch_limit():
    topic = new_topic("larger")
    value = os.urandom(400_000)
    fill(topic, [value, b"after"])
    limits = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 1_000, "message_max_bytes": 1_000}
    assert [message.value() for message in read(topic, 2, **limits)] == [value, b"after"]


def test_topic_with_large_messages():
    topic = new_topic("large", max_message_bytes=5_000_000)
    value = os.urandom(4_000_000)
    fill(topic, [value], message_max_bytes=6_000_000)
    assert read(topic, 1, fetch_max_bytes=6_000_000, receive_message_max_bytes=7_000_000)[0].value() == value


def test_refuses_more_than_max_message_bytes():
    topic = new_topic("refused", max_message_bytes=1_000)
    failure = raises(KafkaException, lambda: fill(topic, [b"x" * 2_000]))
    assert failure.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE, failure
    fill(topic, [b"small"])
    assert read(topic, 1)[0].value() == b"small"


def test_refuses_keyless_records_on_a_compacted_topic():
    topic = new_topic("compacted", cleanup_policy="compact")
    failure = raises(KafkaException, lambda: fill(topic, [b"no key"]))
    assert failure.args[0].code() == KafkaError.INVALID_RECORD, failure
    deliver([{"topic": topic, "key": b"k", "value": b"v"}])


def test_refuses_an_unknown_partition():
    topic = new_topic("unknown-partition")
    failure = raises(KafkaException, lambda: fill(topic, [b"x"], partition=7, message_timeout_ms=3_000))
    assert failure.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._MSG_TIMED_OUT), failure


def test_creates_a_topic_automatically():
    topic = unique("automatic")
    fill(topic, [b"first"], partition=-1)
    assert read(topic, 1)[0].value() == b"first"


def test_many_partitions_at_once():
    topic = new_topic("many", partitions=16)
    records = [{"topic": topic, "value": b"%d" % number, "partition": number % 16} for number in range(16_000)]
    deliver(records)
    reader = consumer()
    reader.subscribe([topic])
    by_partition = {}
    for message in take(reader, len(records)):
        by_partition.setdefault(message.partition(), []).append(int(message.value()))
    reader.close()
    assert len(by_partition) == 16 and all(found == sorted(found) for found in by_partition.values())


def test_producers_share_a_partition():
    topic = new_topic("shared")
    senders = [producer(enable_idempotence=True, max_in_flight=5) for _ in range(4)]
    for number in range(500):
        for index, sender in enumerate(senders):
            sender.produce(topic, b"%d:%d" % (index, number))
    assert all(sender.flush(30) == 0 for sender in senders)
    seen = {}
    for message in read(topic, 2_000):
        index, number = message.value().split(b":")
        seen.setdefault(index, []).append(int(number))
    assert all(found == list(range(500)) for found in seen.values()), "a producer's records are out of order"
