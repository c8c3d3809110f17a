"""A librdkafka writer that survives every fault, and the comparison of its acknowledgements with the log."""

import threading
import time

import login
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

PADDING = b"." * 300
# How long a client may take to stop cleanly after the last fault.
ENDING_S = 120
# The interval of records per partition: slow enough to observe, or fast enough to fill disks.
UNHURRIED_S = 0.004
HURRIED_S = 0.0005


class Writer(threading.Thread):
    """A producer, idempotent unless told otherwise: 0, 1, 2, ... to each partition of a topic, until stopped."""

    def __init__(self, bootstrap, topic, partitions, pause_s=UNHURRIED_S, **config):
        super().__init__(daemon=True)
        self.topic, self.partitions = topic, partitions
        # No delivery timeout: every failure is the broker's.
        base = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0, "linger.ms": 2, "log_level": 2}
        retry = {"reconnect.backoff.max.ms": 500, "retry.backoff.max.ms": 500}
        self.producer = Producer({"bootstrap.servers": bootstrap, **login.librdkafka(), **base, **retry, **config})
        self.sent = 0
        self.acknowledged = [{} for _ in range(partitions)]
        self.failures = []
        self.pause_s = pause_s
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                if len(self.producer) < 5000:
                    for partition in range(self.partitions):
                        value = b"%d " % self.sent + PADDING
                        self.producer.produce(self.topic, value, partition=partition, on_delivery=self.delivered)
                    self.sent += 1
            except KafkaException as failure:
                self.failures.append(str(failure))
                return
            self.producer.poll(0)
            time.sleep(self.pause_s)
        undelivered = self.producer.flush(ENDING_S)
        if undelivered:
            self.failures.append(f"{undelivered} records undelivered {ENDING_S} s after the last fault")

    def delivered(self, error, message):
        if error:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition()][number(message.value())] = message.offset()

    def finish(self):
        self.stopping.set()
        self.join()

    def count(self):
        """The number of records in the partition with the fewest."""
        return min(map(len, self.acknowledged))

    def check(self, found, partition):
        """Compares a partition, as (offset, value) pairs, with the acknowledgements."""
        assert not self.failures, f"{len(self.failures)} failures, the first: {self.failures[:3]}"
        assert [offset for offset, _ in found] == list(range(len(found))), "offsets have gaps"
        numbers = [number(value) for _, value in found]
        assert numbers == list(range(self.sent)), first_fault(numbers, self.sent)
        placed = {n: offset for offset, n in enumerate(numbers)}
        # The answer to a detected duplicate may lack its offset.
        wrong = [n for n, offset in self.acknowledged[partition].items() if offset is not None and placed[n] != offset]
        assert not wrong, f"acknowledged at another offset: {wrong[:3]}"


def number(value):
    """The number that a record was written with."""
    return int(value.split(b" ", 1)[0])


def read_all(bootstrap, topic, partition, timeout=180):
    """The (offset, value) pairs of a partition, from the log start offset to the end."""
    config = {"group.id": "check", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    reader = Consumer({"bootstrap.servers": bootstrap, **login.librdkafka(), **config})
    _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found, deadline = [], time.monotonic() + timeout
    while (found[-1][0] + 1 if found else 0) < end:
        assert time.monotonic() < deadline, f"read {len(found)} of {end} records within {timeout} s"
        for message in reader.consume(10_000, 0.5):
            if not message.error():
                found.append((message.offset(), message.value()))
    reader.close()
    return found


def first_fault(numbers, count):
    """Where a list of numbers deviates from 0, 1, 2, ..."""
    for index, found in enumerate(numbers):
        if found != index:
            return f"{len(numbers)} records for {count} sent; at {index}: {numbers[max(0, index - 2) : index + 3]}"
    return f"{len(numbers)} records for {count} sent"
