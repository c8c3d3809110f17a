"""Clients of the broker under test, and common steps of the tests."""

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import login
from suite import BOOTSTRAP, unique, until

CONNECTION = {"bootstrap.servers": BOOTSTRAP, **login.librdkafka()}
admin = AdminClient(CONNECTION)


def settled(futures):
    """The results of admin futures by their key."""
    return {key: future.result(timeout=20) for key, future in futures.items()}


def new_topic(stem, partitions=1, **config):
    """Creates a topic with a unique name; config keys have underscores for dots."""
    topic = unique(stem)
    config = {key.replace("_", "."): value for key, value in config.items()}
    settled(admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))
    until(lambda: not admin.list_topics(topic, timeout=10).topics[topic].error, f"metadata of {topic}")
    return topic


def producer(**config):
    """A producer with one request in flight: retries keep the order even without idempotence."""
    config = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({**CONNECTION, "linger.ms": 2, "max.in.flight": 1, **config})


def deliver(records, sender=None, **config):
    """Produces dicts of produce() arguments; returns the delivered messages in the order of their reports."""
    sender, delivered = sender or producer(**config), []

    def report(error, message):
        if error:
            raise KafkaException(error)
        delivered.append(message)

    for record in records:
        sender.produce(**record, on_delivery=report)
    assert sender.flush(30) == 0, "records still undelivered after 30 s"
    assert len(delivered) == len(records)
    return delivered


def fill(topic, values, partition=0, **config):
    """Produces the values to one partition."""
    return deliver([{"topic": topic, "value": value, "partition": partition} for value in values], **config)


def consumer(group=None, **config):
    config = {key.replace("_", "."): value for key, value in config.items()}
    base = {**CONNECTION, "group.id": group or unique("group"), "auto.offset.reset": "earliest"}
    # By the consumer protocol the broker sets it.
    if config.get("group.protocol") != "consumer":
        base["session.timeout.ms"] = 6000
    return Consumer({**base, **config})


def take(reader, count, timeout=30.0):
    """The next messages of a consumer."""
    messages, deadline = [], time.monotonic() + timeout
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages within {timeout} s"
        for message in reader.consume(count - len(messages), 0.5):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def read(topic, count, partition=0, offset=OFFSET_BEGINNING, **config):
    """That many messages of one partition."""
    reader = consumer(**config)
    try:
        reader.assign([TopicPartition(topic, partition, offset)])
        return take(reader, count)
    finally:
        reader.close()
