"""What clients of several makes saw: records that were acknowledged, records that were read, offsets that were committed."""

import collections
import contextlib
import json
import os
import signal
import subprocess
import threading
import time

from broker import ROOT, kafka_classpath, thalweg_binary
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

PADDING = b"." * 300
# How long a client may take to end in order after the last fault.
ENDING_S = 120
# Between two records to each partition.
UNHURRIED_S = 0.004


class Writer(threading.Thread):
    """An idempotent producer of librdkafka: 0, 1, 2, ... to each partition of a topic, through everything that happens."""

    def __init__(self, bootstrap, topic, partitions, **config):
        super().__init__(daemon=True)
        self.topic, self.partitions = topic, partitions
        base = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0, "linger.ms": 2, "log_level": 2}
        retry = {"reconnect.backoff.max.ms": 500, "retry.backoff.max.ms": 500}
        self.producer = Producer({"bootstrap.servers": bootstrap, **base, **retry, **config})
        self.sent = 0
        self.acknowledged = [{} for _ in range(partitions)]
        self.failures = []
        self.pause_s = UNHURRIED_S
        self.stopping = threading.Event()

    def hurry(self):
        """Fills disks."""
        self.pause_s = 0.0005

    def take_its_time(self):
        self.pause_s = UNHURRIED_S

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
            number = int(message.value().split(b" ", 1)[0])
            self.acknowledged[message.partition()][number] = message.offset()

    def finish(self):
        self.stopping.set()
        self.join()

    def count(self):
        return sum(map(len, self.acknowledged))

    def check(self, found, partition):
        """Holds a partition, as (offset, value) pairs, against what was acknowledged."""
        assert not self.failures, f"{len(self.failures)} failures, the first: {self.failures[:3]}"
        assert [offset for offset, _ in found] == list(range(len(found))), "offsets have gaps"
        numbers = [int(value.split(b" ", 1)[0]) for _, value in found]
        assert numbers == list(range(self.sent)), first_fault(numbers, self.sent)
        placed = {number: offset for offset, number in enumerate(numbers)}
        # A retry that the broker knows for a duplicate may be answered without its offset.
        wrong = [n for n, offset in self.acknowledged[partition].items() if offset >= 0 and placed[n] != offset]
        assert not wrong, f"acknowledged at another offset: {wrong[:3]}"


class JavaClient:
    """One of Kafka's verifiable clients, in a process of its own: a line of JSON for each thing that it sees."""

    def __init__(self, bootstrap, topic, directory, tool, settings, *arguments):
        directory.mkdir(parents=True)
        properties = directory / "properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath()]
        command += [f"org.apache.kafka.tools.{tool}", "--bootstrap-server", bootstrap, "--topic", topic]
        command += ["--command-config", str(properties), *arguments]
        with open(directory / "errors", "wb") as errors:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, **pipes)
        self.events = collections.defaultdict(list)
        self.reader = threading.Thread(target=self.read, daemon=True)

    def read(self):
        for line in self.process.stdout:
            if line.startswith(b"{"):
                event = json.loads(line)
                self.events[event["name"]].append(event)

    def start(self):
        self.reader.start()

    def kill(self):
        self.process.kill()

    def finish(self):
        self.process.terminate()
        self.process.wait(ENDING_S)
        self.reader.join()


class JavaWriter(JavaClient):
    """VerifiableProducer, idempotent."""

    def __init__(self, bootstrap, topic, directory, **config):
        base = {"enable.idempotence": "true", "acks": "all", "retries": "2147483647", "linger.ms": "2"}
        patience = {"delivery.timeout.ms": "600000", "request.timeout.ms": "20000", "max.block.ms": "600000"}
        settings = {**base, **patience, **config}
        rate = ("--throughput", "300", "--acks", "-1")
        super().__init__(bootstrap, topic, directory, "VerifiableProducer", settings, *rate)

    def count(self):
        return len(self.events["producer_send_success"])

    def check(self, found):
        """Holds the partitions, as lists of (offset, value) pairs, against what was acknowledged."""
        failures = self.events["producer_send_error"]
        assert not failures, f"{len(failures)} failures, the first: {failures[0]}"
        there = {(p, offset): int(value) for p, pairs in enumerate(found) for offset, value in pairs}
        for event in self.events["producer_send_success"]:
            place = (event["partition"], event["offset"])
            assert there.get(place) == int(event["value"]), f"{event}, but there is {there.get(place)}"
        for partition, pairs in enumerate(found):
            numbers = [int(value) for _, value in pairs]
            assert numbers == sorted(set(numbers)), f"partition {partition} is not in order or has doubles"


class JavaReader(JavaClient):
    """VerifiableConsumer, in a group of its own, which commits what it has read."""

    def __init__(self, bootstrap, group, topic, directory):
        settings = {"reconnect.backoff.max.ms": "500", "default.api.timeout.ms": "120000"}
        group = ("--group-id", group, "--session-timeout", "6000", "--reset-policy", "earliest")
        super().__init__(bootstrap, topic, directory, "VerifiableConsumer", settings, *group)

    def count(self):
        return len(self.events["offsets_committed"]) - len(self.failures())

    def failures(self):
        return [event for event in self.events["offsets_committed"] if not event["success"]]


class LineWriter(threading.Thread):
    """A program that makes records of the lines of its input: 0, 1, 2, ... It ends well when all were acknowledged."""

    def __init__(self, directory, command):
        super().__init__(daemon=True)
        directory.mkdir(parents=True)
        self.sent, self.errors = 0, directory / "errors"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=errors, stderr=errors)
        self.stopping = threading.Event()

    def run(self):
        # The other end may have failed, which its exit code says.
        with contextlib.suppress(BrokenPipeError), self.process.stdin as lines:
            while not self.stopping.is_set():
                lines.write(b"%d %s\n" % (self.sent, PADDING))
                lines.flush()
                self.sent += 1
                time.sleep(UNHURRIED_S)

    def kill(self):
        self.process.kill()

    def finish(self):
        self.stopping.set()
        self.join()
        self.process.wait(ENDING_S)

    def check(self, found):
        assert self.process.returncode == 0, self.errors.read_text()
        numbers = [int(value.split(b" ", 1)[0]) for _, value in found]
        assert numbers == list(range(self.sent)), first_fault(numbers, self.sent)


class LineReader(threading.Thread):
    """A program that prints records as lines, as a member of a group. What was not committed may come again; nothing is
    skipped."""

    def __init__(self, directory, command):
        super().__init__(daemon=True)
        directory.mkdir(parents=True)
        self.errors, self.next, self.skipped = directory / "errors", 0, []
        with open(self.errors, "wb") as errors:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, **pipes)

    def run(self):
        for line in self.process.stdout:
            number = int(line.split(b" ", 1)[0])
            if number > self.next:
                self.skipped.append(f"{number} came for {self.next}")
            self.next = max(self.next, number + 1)

    def count(self):
        return self.next

    def kill(self):
        self.process.kill()

    def finish(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(ENDING_S)
        self.join()

    def check(self):
        assert self.process.returncode == 0 and not self.skipped, (self.errors.read_text(), self.skipped[:5])


def own_writer(bootstrap, topic, directory):
    """`thalweg produce`, idempotent."""
    settings = {"enable.idempotence": "true", "delivery.timeout.ms": "600000", "max.block.ms": "600000"}
    settings = [part for pair in settings.items() for part in ("--set", "=".join(pair))]
    command = [thalweg_binary(), "produce", topic, "--partition", "0", "-b", bootstrap, *settings]
    return LineWriter(directory, command)


def own_reader(bootstrap, group, topic, directory):
    """`thalweg consume` in a group."""
    command = [thalweg_binary(), "consume", topic, "--group", group, "--from-beginning", "-b", bootstrap]
    return LineReader(directory, [*command, "--set", "session.timeout.ms=6000"])


class Ledger:
    """What the members of a group know together: what each offset holds, and how far offsets were committed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.records = {}
        self.committed = {}
        # What must not be, and commits that failed.
        self.errors, self.refused = [], []
        self.commits = 0

    def saw(self, partition, offset, value):
        with self.lock:
            before = self.records.setdefault((partition, offset), value)
        if before != value:
            self.error(f"offset {offset} of partition {partition} held {before} and holds {value}")

    def acknowledge(self, partition, offset):
        with self.lock:
            self.commits += 1
            self.committed[partition] = max(offset, self.committed.get(partition, -1))

    def floor(self, partition):
        with self.lock:
            return self.committed.get(partition, -1)

    def count(self):
        return self.commits

    def error(self, text):
        self.errors.append(f"{time.strftime('%H:%M:%S')} {text}")


class Member(threading.Thread):
    """A member of a group: reads on from what was committed, and commits what it has read."""

    def __init__(self, bootstrap, group, topic, ledger):
        super().__init__(daemon=True)
        self.ledger = ledger
        config = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "error_cb": self.on_error, **config})
        self.topic = topic
        self.next = {}
        self.stopping = threading.Event()

    def run(self):
        self.consumer.subscribe([self.topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked)
        while not self.stopping.is_set():
            for message in self.consumer.consume(500, 0.3):
                if message.error():
                    if message.error().fatal():
                        self.ledger.error(f"fatal to a member: {message.error()}")
                    continue
                self.take(message)
            self.commit()
        self.consumer.close()

    def on_error(self, error):
        if error.fatal():
            self.ledger.error(f"fatal to a member: {error}")

    def assigned(self, consumer, partitions):
        floors = {p.partition: self.ledger.floor(p.partition) for p in partitions}
        try:
            found = consumer.committed(partitions, timeout=30)
        except KafkaException:
            # It takes part in the group all the same; the next assignment is looked at again.
            consumer.assign(partitions)
            return
        for p in found:
            if not p.error and p.offset < floors[p.partition] >= 0:
                self.ledger.error(f"partition {p.partition}: {floors[p.partition]} was committed, {p.offset} is found")
        self.next = {}
        consumer.assign(partitions)

    def revoked(self, _consumer, _partitions):
        self.next = {}

    def take(self, message):
        partition, offset = message.partition(), message.offset()
        expected = self.next.get(partition, offset)
        if offset != expected:
            self.ledger.error(f"partition {partition}: {expected} was to be read, {offset} was")
        self.next[partition] = offset + 1
        self.ledger.saw(partition, offset, int(message.value().split(b" ", 1)[0]))

    def commit(self):
        if not self.next:
            return
        offsets = [TopicPartition(self.topic, partition, offset) for partition, offset in self.next.items()]
        try:
            for done in self.consumer.commit(offsets=offsets, asynchronous=False):
                if not done.error:
                    self.ledger.acknowledge(done.partition, done.offset)
        except KafkaException as failure:
            if failure.args[0].fatal():
                self.ledger.error(f"fatal to a member: {failure}")
            if failure.args[0].code() != KafkaError.REBALANCE_IN_PROGRESS:
                self.ledger.refused.append(f"{time.strftime('%H:%M:%S')} {failure}")

    def finish(self):
        self.stopping.set()
        self.join()


def read_all(bootstrap, topic, partition, timeout=180):
    """The (offset, value) pairs of a partition, from the log start offset to the end."""
    config = {"group.id": "check", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    reader = Consumer({"bootstrap.servers": bootstrap, **config})
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
    """Where a list of numbers departs from 0, 1, 2, ..."""
    for index, number in enumerate(numbers):
        if number != index:
            return f"{len(numbers)} records for {count} sent; at {index}: {numbers[max(0, index - 2) : index + 3]}"
    return f"{len(numbers)} records for {count} sent"
