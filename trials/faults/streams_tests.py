"""Streams groups (KIP-1071) under faults: instances of Kafka Streams are killed while brokers are killed, paused and cut off,
and while every topic that the group needs moves between brokers, also of both makes. Exactly once must hold: each line is
counted once, and a total neither repeats nor shrinks.
"""

import random
import subprocess
import threading
import time

from audited import Audited, java
from consumer_protocol_tests import FAULTS, SEED, kinds
from faults import say
from suite import nightly_only

ID, INSTANCES = "words", 3
LINES, TOTALS, OFFSETS, TRANSACTIONS = f"{ID}-lines", f"{ID}-totals", "__consumer_offsets", "__transaction_state"
REPARTITION, CHANGELOG = f"{ID}-counts-repartition", f"{ID}-counts-changelog"
SETTINGS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "4",
}


class Streamed(Audited):
    """A word count exactly once, whose instances are killed and started again. It counts lines."""

    # The others are compacted, by each broker for itself.
    compared = (LINES, TOTALS, REPARTITION)
    purged = (REPARTITION,)

    def __init__(self, kind, name, source):
        super().__init__(kind, name, SETTINGS)
        self.source, self.killed, self.stopping = source, 0, threading.Event()
        self.instances, self.failed, self.churn = {}, [], None

    def command(self):
        return java("kafka-streams", "StreamsLedger", ID, self.cluster.replicas, self.cluster.in_flight())

    def begin(self):
        super().begin()
        self.cluster.wait("the topics", lambda seen: {LINES, TOTALS} <= seen.topics.keys())
        for number in range(INSTANCES):
            self.start(number)
        self.cluster.wait("counted lines", lambda _: self.so_far > 0)
        self.churn = threading.Thread(target=self.kill_instances, daemon=True)
        self.churn.start()

    def start(self, number):
        arguments = (ID, f"instance-{number}", self.cluster.replicas, self.cluster.in_flight())
        command = java("kafka-streams", "StreamsInstance", *arguments)
        self.instances[number] = self.spawn(f"instance-{number}.log", command, stdout=subprocess.DEVNULL)

    def kill_instances(self):
        """One at a time; it stays away for longer or shorter than its session."""
        while not self.stopping.wait(self.source.uniform(5, 15)):
            number = self.source.randrange(INSTANCES)
            self.failed += [f"instance-{n} gave up" for n, one in self.instances.items() if one.poll() is not None]
            self.instances[number].kill()
            self.instances[number].wait()
            self.killed += 1
            time.sleep(self.source.choice((0, 8)))
            self.start(number)

    def settle(self):
        """No instance is killed any more."""
        self.stopping.set()
        self.churn.join()
        self.look()
        assert not self.failed, self.failed

    def end(self):
        self.stopping.set()
        if self.churn is not None:
            self.churn.join()
        for instance in self.instances.values():
            instance.kill()
        super().end()

    def judge(self):
        self.settle()
        super().judge()


@kinds("embedded", "apache-controllers", "mixed")
def test_streams_groups_count_once_under_faults(kind):
    nightly_only()
    source = random.Random(f"{SEED} {kind} streams")
    with Streamed(kind, "-streams", source) as streamed:
        say(f"{FAULTS} faults of seed {SEED}")
        done = streamed.undergo(FAULTS, source)
        streamed.judge()
        say(f"{kind}: {done} faults of seed {SEED}, {streamed.killed} instances killed")


@kinds("embedded", "apache-controllers", "mixed")
def test_streams_groups_go_on_when_their_topics_move(kind):
    nightly_only()
    source = random.Random(f"{SEED} {kind} streams moves")
    with Streamed(kind, "-streams-moves", source) as streamed:
        streamed.move_each([LINES, REPARTITION], [CHANGELOG, TOTALS], [OFFSETS], [TRANSACTIONS])
        streamed.judge()
        say(f"{kind}: {streamed.killed} instances killed")
