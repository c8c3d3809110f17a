"""Transactions: committed records are read, aborted ones are not, offsets are included, and a replaced producer is fenced."""

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from clients import consumer, fill, new_topic, producer, take
from suite import raises, unique, until


def begin(transactional_id=None, **config):
    """A transactional producer, initialised."""
    sender = producer(transactional_id=transactional_id or unique("tx"), **config)
    sender.init_transactions(30)
    return sender


def committed(topic, count, partitions=1):
    """Checks that a read_committed reader finds exactly these records."""
    reader = consumer(isolation_level="read_committed", enable_partition_eof=True)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ends = [], set()

    def read_to_the_ends():
        for message in reader.consume(500, 0.2):
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                ends.add(message.partition())
            elif message.error():
                raise KafkaException(message.error())
            else:
                found.append(message.value())
        return len(found) >= count and len(ends) == partitions

    until(read_to_the_ends, f"{count} committed records", pause=0)
    reader.close()
    return found


def test_transaction_commit_and_abort():
    topic, sender = new_topic("transaction"), begin()
    expected = []
    for number in range(6):
        sender.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(50)]
        for value in values:
            sender.produce(topic, value)
        if number % 2:
            sender.abort_transaction(30)
        else:
            sender.commit_transaction(30)
            expected += values
    assert committed(topic, len(expected)) == expected


def test_transaction_over_partitions_and_topics():
    topics = [new_topic("spread", partitions=3), new_topic("spread", partitions=2)]
    sender = begin()
    sender.begin_transaction()
    for number in range(300):
        sender.produce(topics[0], b"%d" % number, partition=number % 3)
        sender.produce(topics[1], b"%d" % number, partition=number % 2)
    sender.commit_transaction(30)
    for topic, partitions in zip(topics, (3, 2)):
        assert sorted(map(int, committed(topic, 300, partitions))) == list(range(300))


def test_open_transaction_is_not_read_committed():
    topic, sender = new_topic("open"), begin()
    sender.begin_transaction()
    sender.produce(topic, b"open")
    assert sender.flush(30) == 0
    assert committed(topic, 0) == []
    plain = consumer(isolation_level="read_uncommitted")
    plain.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in take(plain, 1)] == [b"open"]
    plain.close()
    sender.commit_transaction(30)
    assert committed(topic, 1) == [b"open"]


def test_transactional_id_taken_over_fences_the_one_before():
    topic, name = new_topic("fenced"), unique("fenced")
    old = begin(name)
    old.begin_transaction()
    old.produce(topic, b"old")
    assert old.flush(30) == 0
    new = begin(name)
    refused = raises(KafkaException, lambda: old.commit_transaction(30))
    assert refused.args[0].code() == KafkaError._FENCED, refused
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(30)
    assert committed(topic, 1) == [b"new"]


def test_transaction_sends_offsets():
    source, sink, group = new_topic("source"), new_topic("sink"), unique("pipe")
    fill(source, [b"%d" % number for number in range(100)])
    sender = begin()

    def pipe(commits):
        """Moves available records from source to sink in one transaction."""
        reader = consumer(group, isolation_level="read_committed", enable_auto_commit=False)
        reader.subscribe([source])
        messages = take(reader, 50)
        sender.begin_transaction()
        for message in messages:
            sender.produce(sink, message.value())
        offsets = reader.position(reader.assignment())
        sender.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
        if commits:
            sender.commit_transaction(30)
        else:
            sender.abort_transaction(30)
        reader.close()
        return [message.value() for message in messages]

    first = pipe(commits=True)
    lost = pipe(commits=False)
    again = pipe(commits=True)
    assert lost[:50] == again[:50]
    moved = committed(sink, len(first) + len(again))
    assert moved == first + again
    assert moved == [b"%d" % number for number in range(len(moved))]


def test_transaction_timeout_aborts():
    topic = new_topic("late")
    sender = begin(transaction_timeout_ms=1_000)
    sender.begin_transaction()
    sender.produce(topic, b"late")
    assert sender.flush(30) == 0
    reader = consumer(isolation_level="read_committed")
    stable = lambda: reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    until(lambda: stable() >= 2, "the end of a transaction that took too long", timeout=40)
    reader.close()
    assert committed(topic, 0) == []
