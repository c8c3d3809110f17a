"""The histories of several clients: acknowledged records, read records, committed offsets."""

import collections
import contextlib
import json
import signal
import subprocess
import threading
import time

import login
from broker import ROOT, kafka_classpath, thalweg_binary
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from java_log import log_to_stderr
from writer import ENDING_S, PADDING, UNHURRIED_S, first_fault, number

# Log levels that show each batch of a producer that is stuck.
SENDER = ("org.apache.kafka.clients.producer.internals", "DEBUG")


class JavaClient:
    """A Java client in its own process: it prints a line of JSON per event."""

    def __init__(self, directory, settings, arguments):
        """`arguments` gives those of the class, with its name, for a file of settings."""
        directory.mkdir(parents=True)
        properties = directory / "properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in (login.java() | settings).items()))
        command = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [log_to_stderr(directory / "log4j2.properties", "INFO", sender=SENDER)]
        command += ["-cp", f"{kafka_classpath()}:{ROOT / 'target' / 'compat' / 'java-client'}", *arguments(str(properties))]
        with open(directory / "errors", "wb") as errors:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, **pipes)
        self.events = collections.defaultdict(list)
        self.reader = threading.Thread(target=self.read, daemon=True)

    def read(self):
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self.saw(json.loads(line))

    def saw(self, event):
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
    """compat/java-client/Writer.java, idempotent."""

    def __init__(self, bootstrap, topic, partitions, directory, **config):
        self.acknowledged = [0] * partitions
        # It fills a batch of one partition before the next.
        base = {"enable.idempotence": "true", "acks": "all", "retries": "2147483647", "linger.ms": "2", "batch.size": "4096"}
        patience = {"delivery.timeout.ms": "600000", "request.timeout.ms": "20000", "max.block.ms": "600000"}
        super().__init__(directory, {**base, **patience, **config}, lambda file: ["Writer", bootstrap, topic, file])

    def saw(self, event):
        super().saw(event)
        if event["name"] == "producer_send_success":
            self.acknowledged[event["partition"]] += 1

    def count(self):
        """The number of records in the partition with the fewest."""
        return min(self.acknowledged)

    def check(self, found):
        """Compares the partitions, as lists of (offset, value) pairs, with the acknowledgements."""
        failures = self.events["producer_send_error"]
        assert not failures, f"{len(failures)} failures, the first: {failures[0]}"
        there = {(p, offset): int(value) for p, pairs in enumerate(found) for offset, value in pairs}
        for event in self.events["producer_send_success"]:
            place = (event["partition"], event["offset"])
            assert there.get(place) == int(event["value"]), f"{event}, but there is {there.get(place)}"
        for partition, pairs in enumerate(found):
            numbers = [int(value) for _, value in pairs]
            assert numbers == sorted(set(numbers)), f"partition {partition} is out of order or has duplicates"


class JavaReader(JavaClient):
    """VerifiableConsumer, in its own group, which commits what it has read."""

    def __init__(self, bootstrap, group, topic, directory, protocol="classic", session_ms=6000):
        settings = {"reconnect.backoff.max.ms": "500", "default.api.timeout.ms": "120000"}
        command = ["org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", bootstrap, "--topic", topic]
        command += ["--group-id", group, "--reset-policy", "earliest", "--group-protocol", protocol]
        if protocol == "classic":
            command += ["--session-timeout", str(session_ms)]
        super().__init__(directory, settings, lambda file: [*command, "--command-config", file])

    def count(self):
        return len(self.events["offsets_committed"]) - len(self.failures())

    def failures(self):
        return [event for event in self.events["offsets_committed"] if not event["success"]]


class LineWriter(threading.Thread):
    """A program that sends its input lines 0, 1, 2, ... as records. It exits with 0 when all were acknowledged."""

    def __init__(self, directory, command):
        super().__init__(daemon=True)
        directory.mkdir(parents=True)
        self.sent, self.errors = 0, directory / "errors"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=errors, stderr=errors)
        self.stopping = threading.Event()

    def run(self):
        # The process may have failed, which its exit code shows.
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
        numbers = [number(value) for _, value in found]
        assert numbers == list(range(self.sent)), first_fault(numbers, self.sent)


class LineReader(threading.Thread):
    """A program that prints records as lines, as a member of a group. Uncommitted records may be repeated; none is
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
            found = number(line)
            if found > self.next:
                self.skipped.append(f"{found} instead of {self.next}")
            self.next = max(self.next, found + 1)

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


def own_writer(bootstrap, topic, directory, metadata_age_ms):
    """`thalweg produce`, idempotent."""
    settings = {"enable.idempotence": "true", "delivery.timeout.ms": "600000", "max.block.ms": "600000"}
    settings["metadata.max.age.ms"] = str(metadata_age_ms)
    settings = [part for pair in settings.items() for part in ("--set", "=".join(pair))]
    command = [thalweg_binary(), "produce", topic, "--partition", "0", "-b", bootstrap, *login.java_arguments(), *settings]
    return LineWriter(directory, command)


def own_reader(bootstrap, group, topic, directory, session_ms=6000):
    """`thalweg consume` in a group."""
    command = [thalweg_binary(), "consume", topic, "--group", group, "--from-beginning", "-b", bootstrap]
    return LineReader(directory, [*command, *login.java_arguments(), "--set", f"session.timeout.ms={session_ms}"])


class Ledger:
    """The combined knowledge of a group's members: the record at each offset, and the committed offsets."""

    def __init__(self):
        self.lock = threading.Lock()
        self.records = {}
        self.committed = {}
        # Violations, and failed commits.
        self.errors, self.refused = [], []
        self.commits = 0

    def saw(self, partition, offset, value):
        with self.lock:
            before = self.records.setdefault((partition, offset), value)
        if before != value:
            self.error(f"offset {offset} of partition {partition} was {before} and is now {value}")

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
    """A member of a group: continues at the committed offsets, and commits what it has read."""

    # A commit that is refused for these is repeated with the new assignment.
    REBALANCES = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH)

    def __init__(self, bootstrap, group, topic, ledger, protocol="classic", session_ms=6000):
        super().__init__(daemon=True)
        self.ledger = ledger
        # By the consumer protocol the broker sets the times, and assignments are increments.
        self.is_incremental = protocol == "consumer"
        config = {
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        if not self.is_incremental:
            config |= {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 500}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, **login.librdkafka(), "error_cb": self.on_error, **config})
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
            # It stays in the group; the next assignment is checked again.
            self.take_over(consumer, partitions)
            return
        for p in found:
            if not p.error and p.offset < floors[p.partition] >= 0:
                self.ledger.error(f"partition {p.partition}: {floors[p.partition]} was committed, {p.offset} is found")
        self.take_over(consumer, partitions)

    def take_over(self, consumer, partitions):
        if self.is_incremental:
            self.forget(partitions)
            consumer.incremental_assign(partitions)
        else:
            self.next = {}
            consumer.assign(partitions)

    def revoked(self, consumer, partitions):
        if self.is_incremental:
            self.forget(partitions)
            consumer.incremental_unassign(partitions)
        else:
            self.next = {}

    def forget(self, partitions):
        for p in partitions:
            self.next.pop(p.partition, None)

    def take(self, message):
        partition, offset = message.partition(), message.offset()
        expected = self.next.get(partition, offset)
        if offset != expected:
            self.ledger.error(f"partition {partition}: expected offset {expected}, read {offset}")
        self.next[partition] = offset + 1
        self.ledger.saw(partition, offset, number(message.value()))

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
            if failure.args[0].code() not in self.REBALANCES:
                self.ledger.refused.append(f"{time.strftime('%H:%M:%S')} {failure}")

    def finish(self):
        self.stopping.set()
        self.join()
