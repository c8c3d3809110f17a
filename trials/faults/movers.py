"""Movers written with several clients, which are killed and paused like brokers, and the audit of their output.

A mover reads `in` and writes `out`, and commits its offsets in the same transactions. So whatever fails, each record of
`in` is in `out` once, in the order of its partition, for read_committed readers.
"""

import collections
import os
import signal
import subprocess
import threading
import time

from broker import ROOT, kafka_classpath
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from writer import ENDING_S, first_fault, number

COMPAT = ROOT / "target" / "compat"
JAVA = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
SOURCE, SINK, GROUP = "in", "out", "movers"


def command(make, arguments):
    """The command and environment of a kind of mover."""
    if make == "librdkafka":
        program = ROOT / "compat" / "confluent-kafka" / "mover.py"
        return [COMPAT / "confluent-kafka" / "bin" / "python", program, *arguments], {}
    if make == "java":
        return [*JAVA, f"{kafka_classpath()}:{COMPAT / 'java-client'}", "Mover", *arguments], {}
    test = ["-test.run", "TestMovesUntilItIsKilled", "-test.timeout", "0"]
    return [COMPAT / "franz-go" / "suite", *test], {"MOVER": " ".join(arguments)}


class Mover:
    """One mover with its own transactional id; faults treat it as a node."""

    def __init__(self, cluster, make, place):
        self.cluster, self.make, self.name = cluster, make, f"mover-{make}-{place}"
        self.directory = cluster.directory / self.name
        self.directory.mkdir()
        self.process = None
        # Counts of committed and aborted transactions, and of the client's restarts.
        self.events = collections.Counter()

    def __str__(self):
        return f"{self.name}: {', '.join(f'{event} {count}' for event, count in sorted(self.events.items()))}"

    def start(self):
        arguments = [self.cluster.bootstrap, SOURCE, SINK, GROUP, self.name, str(self.cluster.in_flight())]
        program, more = command(self.make, arguments)
        with open(self.directory / "errors", "ab") as errors:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(program, env={**os.environ, **more}, cwd=self.directory, **pipes)
        threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True).start()

    def read(self, lines):
        with open(self.directory / "log", "ab") as log:
            for line in lines:
                log.write(b"%.3f " % time.time() + line)
                log.flush()
                self.events[line.split(b" ", 1)[0].decode()] += 1

    def count(self):
        return self.events["committed"]

    def has_moved(self, before):
        """Whether it has committed more transactions than before."""
        assert self.process.poll() is None, f"{self} exited unexpectedly: see {self.directory / 'errors'}"
        return self.count() > before

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        """Kills it if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def finish(self):
        """Stops it cleanly."""
        self.process.terminate()
        self.process.wait(ENDING_S)


def read_committed(bootstrap, topic, partition, timeout=180):
    """The numbers of a partition's committed records, up to the last stable offset."""
    config = {"group.id": "check", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "enable.partition.eof": True, **config}
    )
    reader.assign([TopicPartition(topic, partition, 0)])
    found, deadline = [], time.monotonic() + timeout
    while True:
        assert time.monotonic() < deadline, f"read {len(found)} committed records within {timeout} s"
        for message in reader.consume(10_000, 0.5):
            if not message.error():
                found.append(number(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reader.close()
                return found


def ends(admin, topics, isolation):
    """The end of each partition: the high watermark, or the last stable offset for committed records."""
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in topics}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=10)
    return {(p.topic, p.partition): future.result(20).offset for p, future in answers.items()}


def open_places(cluster):
    """Where the last stable offset is behind the high watermark: partition, last stable offset, high watermark."""
    seen = cluster.metadata()
    if not seen:
        return ["nobody answers"]
    places = [(topic, p) for topic in (SINK, "__consumer_offsets") for p in seen.topics[topic].partitions]
    try:
        # In this order, so that what is written meanwhile does not look stable.
        high = ends(cluster.admin, places, IsolationLevel.READ_UNCOMMITTED)
        stable = ends(cluster.admin, places, IsolationLevel.READ_COMMITTED)
    except KafkaException as failure:
        return [str(failure)]
    return [(place, stable[place], high[place]) for place in places if stable[place] < high[place]]


def audit(cluster, writer):
    """Compares the moved records with the source."""
    assert not writer.failures, writer.failures[:3]
    for partition in range(writer.partitions):
        found = read_committed(cluster.bootstrap, SINK, partition)
        assert found == list(range(writer.sent)), f"partition {partition}: {first_fault(found, writer.sent)}"
