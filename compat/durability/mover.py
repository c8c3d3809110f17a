"""A mover that a broker dies under: it takes numbers from one topic to another, as transactions that carry its offsets."""

import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

# Of the topic that is moved.
PARTITIONS = 3
# Records that one transaction moves at the most.
TAKEN = 200


class Gone(Exception):
    """The producer cannot go on, and another takes its place."""


class Mover(threading.Thread):
    """Moves each record of a topic exactly once, through every death of the broker; each third transaction it aborts."""

    def __init__(self, bootstrap, source, sink):
        super().__init__(daemon=True)
        self.bootstrap, self.source, self.sink = bootstrap, source, sink
        self.wanted = None
        self.moved = self.committed = self.aborted = self.replaced = 0
        self.failure = None
        self.stopping = threading.Event()

    def run(self):
        try:
            while not self.stopping.is_set():
                producer = self.begin()
                try:
                    while not self.stopping.is_set():
                        self.move(producer)
                except Gone:
                    self.replaced += 1
        except Exception as failure:
            self.failure = failure

    def begin(self):
        quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200}
        config = {"transactional.id": f"move-{self.source}", "transaction.timeout.ms": 20_000, "linger.ms": 1}
        producer = Producer({"bootstrap.servers": self.bootstrap, **config, **quiet})
        patiently(lambda: producer.init_transactions(10))
        return producer

    def move(self, producer):
        """One transaction. A reader that is new each time begins where the last one that counted has ended."""
        reader = Consumer({
            "bootstrap.servers": self.bootstrap,
            "group.id": f"move-{self.source}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        })
        try:
            partitions = [TopicPartition(self.source, partition) for partition in range(PARTITIONS)]
            begin = patiently(lambda: reader.committed(partitions, timeout=10))
            reader.assign([TopicPartition(p.topic, p.partition, max(p.offset, 0)) for p in begin])
            messages = [m for m in reader.consume(TAKEN, 0.3) if not m.error()]
            if not messages:
                return
            self.transact(producer, reader, messages)
        finally:
            reader.close()

    def transact(self, producer, reader, messages):
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self.sink, message.value(), partition=message.partition())
            ends = {m.partition(): m.offset() + 1 for m in messages}
            offsets = [TopicPartition(self.source, partition, offset) for partition, offset in ends.items()]
            metadata = reader.consumer_group_metadata()
            patiently(lambda: producer.send_offsets_to_transaction(offsets, metadata, 10))
            if (self.committed + self.aborted) % 3 == 2:
                patiently(lambda: producer.abort_transaction(10))
                self.aborted += 1
            else:
                patiently(lambda: producer.commit_transaction(10))
                self.committed += 1
                self.moved += len(messages)
        except KafkaException as failure:
            error = failure.args[0]
            if not error.txn_requires_abort():
                raise Gone from failure
            try:
                patiently(lambda: producer.abort_transaction(10))
            except KafkaException as fatal:
                raise Gone from fatal
            self.aborted += 1

    def finish(self):
        self.stopping.set()
        self.join(120)
        assert not self.is_alive(), "the mover does not come to its end"


def patiently(call):
    """Calls until the broker is there again."""
    while True:
        try:
            return call()
        except KafkaException as failure:
            error = failure.args[0]
            again = error.retriable() or error.code() in (
                KafkaError._TRANSPORT,
                KafkaError._TIMED_OUT,
                KafkaError._ALL_BROKERS_DOWN,
                KafkaError._RESOLVE,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.NOT_COORDINATOR,
                KafkaError._WAIT_COORD,
            )
            if error.fatal() or error.txn_requires_abort() or not again:
                raise
