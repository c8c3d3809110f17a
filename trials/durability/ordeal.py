"""A broker that is killed under load, and everything created, written and committed meanwhile."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from writer import HURRIED_S, Writer

PARTITIONS = 3

# Errors of a commit while the coordinator loads its groups.
COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


class Ordeal:
    """Runs cycles of load, kill -9 and restart, and records acknowledgements for the checks."""

    def __init__(self, broker, cycles):
        self.broker = broker
        self.topics_created = []
        self.offset_committed = -1
        self.restarts = []
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        self.create("idempotent")
        # Segments that roll within a cycle.
        self.create("plain", {"segment.bytes": "1048576", "index.interval.bytes": "512"})
        # After kill -9 Kafka remembers only a producer's last batch, and duplicates a second one in flight.
        in_flight = 1 if broker.target == "apache-kafka" else 5
        self.idempotent = self.writer("idempotent", **{"max.in.flight": in_flight})
        self.plain = self.writer("plain", **{"enable.idempotence": False, "acks": 1})
        self.idempotent.start()
        self.plain.start()
        for cycle in range(cycles):
            self.live(cycle, 2.5)
            broker.kill()
            began = time.monotonic()
            broker.start()
            self.restarts.append(time.monotonic() - began)
        self.live(cycles, 1)
        self.idempotent.finish()
        self.plain.finish()

    def writer(self, topic, **config):
        # So batches are in flight whenever the broker dies.
        return Writer(self.broker.bootstrap, topic, PARTITIONS, HURRIED_S, **config)

    def create(self, topic, config=None):
        wanted = NewTopic(topic, PARTITIONS, 1, config=config or {})
        self.admin.create_topics([wanted], request_timeout=30)[topic].result(timeout=40)
        self.topics_created.append(topic)

    def live(self, cycle, seconds):
        """Lets the writers write for a while, creates a topic, and commits offsets until the end."""
        deadline = time.monotonic() + seconds
        self.create(f"created-{cycle}")
        committer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "committer", "log_level": 2})
        while time.monotonic() < deadline:
            offset = self.offset_committed + 1
            try:
                committer.commit(offsets=[TopicPartition("plain", 0, offset)], asynchronous=False)
                self.offset_committed = offset
            except KafkaException as failure:
                if failure.args[0].code() not in COORDINATOR_STARTS:
                    raise
                time.sleep(0.05)
        committer.close()

    def committed(self):
        """The committed offset, once the coordinator has loaded its groups."""
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "committer", "log_level": 2})
        while True:
            try:
                (found,) = reader.committed([TopicPartition("plain", 0)], timeout=20)
                reader.close()
                return found.offset
            except KafkaException as failure:
                if failure.args[0].code() not in COORDINATOR_STARTS:
                    raise
                time.sleep(0.05)
