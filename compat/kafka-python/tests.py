"""kafka-python against the broker at $BOOTSTRAP."""

import pathlib
import re
import subprocess
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

import login
from suite import BOOTSTRAP, Skip, each, main, raises, unique, until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
CONNECTION = {"bootstrap_servers": BOOTSTRAP, **login.kafka_python()}


def admin():
    return KafkaAdminClient(**CONNECTION)


def new_topic(stem, partitions=1, **configs):
    topic, client = unique(stem), admin()
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    client.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)], wait_for_metadata=True)
    client.close()
    return topic


def fill(topic, values, **config):
    producer = KafkaProducer(**CONNECTION, linger_ms=2, **config)
    sent = [producer.send(topic, value, partition=0) for value in values]
    producer.flush(30)
    found = [future.get(30) for future in sent]
    producer.close()
    return found


def consumer(*topics, **config):
    base = {"group_id": None, "auto_offset_reset": "earliest", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    return KafkaConsumer(*topics, **{**CONNECTION, **base, **config})


def take(reader, count):
    found = []

    def enough():
        # A join that is under way when a poll times out is lost: the client then waits for an assignment forever.
        for records in reader.poll(2_000).values():
            found.extend(records)
        return len(found) >= count

    until(enough, f"{count} records", pause=0)
    return found


def read(topic, count):
    reader = consumer(topic)
    try:
        return take(reader, count)
    finally:
        reader.close()


@each("none", "gzip", "snappy", "lz4", "zstd")
def test_codec(codec):
    topic = new_topic(codec)
    values = [b"%d" % number + b" words that repeat" * 20 for number in range(1_000)]
    fill(topic, values, compression_type=None if codec == "none" else codec, batch_size=50_000)
    assert [record.value for record in read(topic, len(values))] == values


@each(0, 1, "all")
def test_acks(acks):
    topic = new_topic("acks")
    fill(topic, [b"a", b"b"], acks=acks, enable_idempotence=acks == "all")
    assert [record.value for record in read(topic, 2)] == [b"a", b"b"]


def test_idempotent_producer():
    topic = new_topic("idempotent")
    values = [b"%d" % number for number in range(2_000)]
    found = fill(topic, values, enable_idempotence=True, batch_size=500)
    assert [sent.offset for sent in found] == list(range(2_000))


def test_transactions_commit_and_abort():
    topic = new_topic("transactions")
    producer = KafkaProducer(**CONNECTION, transactional_id=unique("tx"))
    producer.init_transactions()
    expected = []
    for round in range(6):
        producer.begin_transaction()
        values = [b"%d-%d" % (round, number) for number in range(20)]
        for value in values:
            producer.send(topic, value)
        if round % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += values
    producer.close()
    reader = consumer(topic, isolation_level="read_committed")
    try:
        assert [record.value for record in take(reader, len(expected))] == expected
    finally:
        reader.close()


def test_keys_headers_and_timestamps():
    topic = new_topic("record")
    producer = KafkaProducer(**CONNECTION)
    producer.send(topic, None, key=b"k", headers=[("a", b"1")], timestamp_ms=1_600_000_000_123).get(30)
    producer.close()
    (found,) = read(topic, 1)
    assert (found.key, found.value, found.timestamp) == (b"k", None, 1_600_000_000_123), found
    assert list(found.headers) == [("a", b"1")]


def test_refuses_too_large_messages():
    topic = new_topic("large", max_message_bytes="1000")
    raises(MessageSizeTooLargeError, lambda: fill(topic, [b"x" * 5_000]))


def test_offsets_by_time_and_ends():
    topic = new_topic("offsets")
    producer = KafkaProducer(**CONNECTION)
    for number in range(5):
        producer.send(topic, b"x", timestamp_ms=1_600_000_000_000 + number * 1_000).get(30)
    producer.close()
    part, reader = TopicPartition(topic, 0), consumer()
    assert reader.offsets_for_times({part: 1_600_000_001_500})[part].offset == 2
    assert (reader.beginning_offsets([part])[part], reader.end_offsets([part])[part]) == (0, 5)
    reader.close()


def test_group_commits_and_resumes():
    topic, group = new_topic("resume"), unique("resume")
    fill(topic, [b"a", b"b", b"c"])
    first = consumer(topic, group_id=group, max_poll_records=2, enable_auto_commit=False)
    assert len(take(first, 2)) == 2
    first.commit({TopicPartition(topic, 0): OffsetAndMetadata(2, "", -1)})
    first.close()
    second = consumer(topic, group_id=group)
    assert take(second, 1)[0].value == b"c"
    second.close()


def test_group_rebalances_as_members_come_and_go():
    topic, group = new_topic("rebalance", 4), unique("rebalance")
    first, second = consumer(topic, group_id=group), None

    def share(readers, sizes):
        def shared():
            for reader in readers:
                reader.poll(300)
            return [len(reader.assignment()) for reader in readers] == sizes

        until(shared, f"partitions shared as {sizes}", timeout=30, pause=0)

    share([first], [4])
    second = consumer(topic, group_id=group)
    share([first, second], [2, 2])
    first.close()
    share([second], [4])
    second.close()


def test_admin_topics_partitions_and_configs():
    topic, client = new_topic("admin", 2, retention_ms="99000"), admin()
    raises(TopicAlreadyExistsError, lambda: client.create_topics([NewTopic(topic, 1, 1)]))
    client.create_partitions({topic: NewPartitions(4)})
    until(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 4, "four partitions")
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    assert "99000" in str(client.describe_configs([resource]))
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "88000"})])
    until(lambda: "88000" in str(client.describe_configs([resource])), "the value")
    client.delete_topics([topic])
    until(lambda: topic not in client.list_topics(), "the topic gone")
    client.close()


def test_admin_groups_and_records():
    topic, group, client = new_topic("groups"), unique("groups"), admin()
    fill(topic, [b"a", b"b", b"c"])
    part = TopicPartition(topic, 0)
    client.delete_records({part: 2})
    assert read(topic, 1)[0].offset == 2
    client.alter_group_offsets(group, {part: OffsetAndMetadata(3, "", -1)})
    assert "3" in str(client.list_group_offsets({group: [part]}))
    assert group in str(client.list_groups())
    client.delete_groups([group])
    assert group not in str(client.list_groups())
    client.close()


def test_examples_measure_latency():
    if login.kafka_python():
        raise Skip("the examples do not log in")
    topic, common = new_topic("latency", 2), ["--bootstrap-server", BOOTSTRAP, "--count", "200"]
    reader = subprocess.Popen([sys.executable, EXAMPLES / "latency_consumer.py", "--topic", topic, *common], stdout=subprocess.PIPE, text=True)
    try:
        assert reader.stdout.readline().startswith("ready")
        writer = [sys.executable, EXAMPLES / "latency_producer.py", "--topic", topic, "--rate", "200", *common]
        assert "200 records" in subprocess.run(writer, check=True, capture_output=True, text=True, timeout=60).stdout
        found = reader.communicate(timeout=60)[0]
    finally:
        reader.kill()
    assert re.search(r"200 records: p50 [0-9.]+ ms, p99 [0-9.]+ ms, max [0-9.]+ ms", found), found


main(globals())
