"""Topics, records and offsets of groups as librdkafka sees them, to compare with what Connect should have done."""

import concurrent.futures
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType


class Cluster:
    """A broker with a client."""

    def __init__(self, bootstrap):
        self.config = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self.config)

    def create(self, topic, partitions=1, **config):
        config = {key.replace("_", "."): value for key, value in config.items()}
        done(self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)]))

    def topics(self):
        """Partitions of each topic."""
        return {name: len(topic.partitions) for name, topic in self.admin.list_topics(timeout=20).topics.items()}

    def configs(self, topic):
        """The settings of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = done(self.admin.describe_configs([resource]))[resource]
        return {name: entry.value for name, entry in found.items()}

    def set_config(self, topic, key, value):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        done(self.admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))

    def add_partitions(self, topic, total):
        done(self.admin.create_partitions([NewPartitions(topic, total)]))

    def produce(self, topic, records):
        """Writes (partition, key, value, headers) each."""
        producer = Producer({**self.config, "enable.idempotence": True})
        for partition, key, value, headers in records:
            producer.produce(topic, value, key, partition, headers=headers)
        assert producer.flush(20) == 0, "records were not acknowledged"

    def read(self, topic, partition=0, isolation="read_committed"):
        """The messages of a partition, from the log start offset to its end."""
        config = {"group.id": "reader", "enable.auto.commit": False, "isolation.level": isolation, "enable.partition.eof": True}
        reader = Consumer({**self.config, **config})
        try:
            reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            found, deadline = [], time.monotonic() + 30
            while True:
                assert time.monotonic() < deadline, f"read {len(found)} records of {topic}, and no end of it within 30 s"
                for message in reader.consume(10_000, 0.5):
                    if message.error() is None:
                        found.append(message)
                    elif message.error().name() == "_PARTITION_EOF":
                        return found
                    else:
                        raise KafkaException(message.error())
        finally:
            reader.close()

    def values(self, topic, partition=0):
        """The committed values of a partition, as text."""
        if topic not in self.topics():
            return []
        return [message.value().decode() for message in self.read(topic, partition)]

    def commit(self, group, topic, offsets):
        """Commits offsets of a group, by partition."""
        consumer = Consumer({**self.config, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, *pair) for pair in offsets.items()], asynchronous=False)
        consumer.close()

    def committed(self, group):
        """The offsets of a group by topic and partition."""
        (found,) = done(self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])).values()
        return {(entry.topic, entry.partition): entry.offset for entry in found.topic_partitions}


def done(futures):
    """The results of an administrative call."""
    concurrent.futures.wait(futures.values(), timeout=20)
    return {key: future.result(timeout=1) for key, future in futures.items()}
