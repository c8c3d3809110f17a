"""Writers that a broker dies under: each knows what was acknowledged, and checks later that it is there."""

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 3
PADDING = b"." * 200

# What a commit may meet while the coordinator loads its groups.
COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


class Writer(threading.Thread):
    """Produces 0, 1, 2, ... to each partition of a topic until it is stopped, through every death of the broker."""

    def __init__(self, bootstrap, topic, **config):
        super().__init__(daemon=True)
        self.topic = topic
        # It never gives a record up: what fails is an error of the broker's.
        base = {"message.timeout.ms": 0, "linger.ms": 1, "reconnect.backoff.max.ms": 200, "log_level": 2}
        self.producer = Producer({"bootstrap.servers": bootstrap, **base, **config})
        self.sent = 0
        self.acknowledged = [dict() for _ in range(PARTITIONS)]
        self.failures = []
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                for partition in range(PARTITIONS):
                    self.produce(partition)
                self.sent += 1
            except BufferError:
                self.producer.poll(0.1)
            self.producer.poll(0)
            # Some thousand records a second to each partition: batches are under way whenever the broker dies.
            if self.sent % 20 == 0:
                time.sleep(0.01)
        if self.producer.flush(60) > 0:
            self.failures.append("undelivered 60 s after the last restart")

    def produce(self, partition):
        value = b"%d " % self.sent + PADDING
        self.producer.produce(self.topic, value, partition=partition, on_delivery=self.delivered)

    def delivered(self, error, message):
        if error:
            self.failures.append(str(error))
        else:
            number = int(message.value().split(b" ", 1)[0])
            self.acknowledged[message.partition()][number] = message.offset()

    def finish(self):
        self.stopping.set()
        self.join()


def read_all(bootstrap, topic, partition):
    """The (offset, number) pairs of a partition, from the log start offset to the end."""
    config = {"group.id": "check", "enable.auto.commit": False, "check.crcs": True}
    reader = Consumer({"bootstrap.servers": bootstrap, **config})
    _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found, deadline = [], time.monotonic() + 120
    while (found[-1][0] + 1 if found else 0) < end:
        assert time.monotonic() < deadline, f"read {len(found)} of {end} records within 120 s"
        for message in reader.consume(10_000, 0.5):
            if message.error():
                raise KafkaException(message.error())
            found.append((message.offset(), int(message.value().split(b" ", 1)[0])))
    reader.close()
    return found


class Ordeal:
    """A number of cycles: load, kill -9, start again. What was acknowledged meanwhile is kept for the checks."""

    def __init__(self, broker, cycles):
        self.broker = broker
        self.topics_created = []
        self.offset_committed = -1
        self.restarts = []
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        self.create("idempotent")
        # Segments that roll within a cycle.
        self.create("plain", {"segment.bytes": "1048576", "index.interval.bytes": "512"})
        # After kill -9 Kafka remembers the last batch of a producer only, and takes a second one in flight twice.
        in_flight = 1 if broker.target == "apache-kafka" else 5
        exactly_once = {"enable.idempotence": True, "max.in.flight": in_flight}
        self.idempotent = Writer(broker.bootstrap, "idempotent", **exactly_once)
        self.plain = Writer(broker.bootstrap, "plain", acks=1)
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
