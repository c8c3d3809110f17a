"""Transactions under faults: movers read, write and commit in transactions while brokers and movers die and pause."""

import os
import pathlib
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

from faults import Fault, say, strike
from movers import GROUP, SINK, SOURCE, Mover, audit, open_places
from network import Network
from nodes import SESSION_S, Cluster
from replicas import compare
from suite import NIGHTLY, each, nightly_only, until
from writer import Writer

PARTITIONS = 3
FAULTS = int(os.environ.get("FAULTS", "8" if NIGHTLY else "2"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))
# Movers' transactions have a timeout of 6 seconds; this is how often coordinators abort overdue ones.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000", "transaction.state.log.num.partitions": "4"}
# The corresponding Kafka cluster for each of ours.
ORACLES = {"single": "apache-single", "embedded": "apache", "mixed": "apache"}


class Moving:
    """A cluster, a writer, and movers for its records."""

    def __init__(self, kind, makes):
        kind = ORACLES[kind] if os.environ.get("KIND") == "apache" else kind
        work = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="moving-"))
        self.cluster = Cluster(kind, work / f"{kind}-{'-'.join(makes)}", Network(), SETTINGS)
        self.movers = [Mover(self.cluster, make, place) for place, make in enumerate(makes)]

    def __enter__(self):
        say(f"{self.cluster.kind}, in {self.cluster.directory}")
        try:
            self.cluster.start()
            self.cluster.create_topics({SOURCE: PARTITIONS, SINK: PARTITIONS})
            config = {"max.in.flight": self.cluster.in_flight()}
            self.writer = Writer(self.cluster.bootstrap, SOURCE, PARTITIONS, **config)
            self.writer.start()
            for mover in self.movers:
                mover.start()
            self.look()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for mover in self.movers:
            mover.end()
        self.cluster.end()

    def undergo(self, faults, source):
        """Applies faults, usually one at a time; after each wave the movers must recover by themselves."""
        done = 0
        while done < faults:
            wave = [self.fault(source, node) for node in source.sample(self.targets(), source.choice((1, 1, 2)))]
            failures = strike(self.cluster, wave)
            assert not failures, failures
            done += len(wave)
            self.look()
        return done

    def targets(self):
        return [*self.cluster.brokers, *self.movers]

    def fault(self, source, node):
        kind = source.choice(("kill", "pause"))
        short, long = source.uniform(0.1, SESSION_S / 2), source.uniform(SESSION_S + 1, 2 * SESSION_S + 4)
        return Fault(kind, node, source.uniform(0, 1), source.choice((short, long)) if NIGHTLY else short)

    def look(self):
        began = time.monotonic()
        before = {mover: mover.count() for mover in self.movers}
        self.cluster.wait_until_whole()
        for mover in self.movers:
            self.cluster.wait(f"a transaction of {mover}", lambda _: mover.has_moved(before[mover]))
        say(f"moving {time.monotonic() - began:.1f} s later; {', '.join(map(str, self.movers))}")

    def leave_transactions_open(self):
        """Kills the movers during transactions, which must end within their timeout."""
        opened = until(self.catch_in_the_midst, "a transaction that is open", 60)
        for mover in self.movers:
            mover.kill()
        began = time.monotonic()
        until(lambda: not open_places(self.cluster), "the end of transactions whose producers are gone", 60)
        say(f"open when the movers died: {opened}; ended after {time.monotonic() - began:.1f} s")
        for mover in self.movers:
            mover.start()

    def catch_in_the_midst(self):
        """Pauses the movers if a transaction of theirs is open, and returns where; otherwise they continue."""
        for mover in self.movers:
            mover.pause()
        # Transactions decided before end by themselves at once.
        deadline, opened = time.monotonic() + 1, True
        while opened and time.monotonic() < deadline:
            opened = open_places(self.cluster)
        if not opened:
            for mover in self.movers:
                mover.resume()
        return opened

    def judge(self):
        """Stops the writer and the movers, and compares the output with the input."""
        self.writer.finish()
        until(lambda: self.position() == {p: self.writer.sent for p in range(PARTITIONS)}, "the last record moved", 120)
        say("everything is moved")
        for mover in self.movers:
            mover.finish()
        say("the movers have ended")
        until(lambda: not open_places(self.cluster), "the end of the last transactions", 60)
        audit(self.cluster, self.writer)
        say("everything is present once")
        self.assert_nothing_hangs()
        seen = self.cluster.wait_until_whole()
        compared = compare(self.cluster, seen, (SOURCE, SINK, "__consumer_offsets", "__transaction_state"))
        say(f"{PARTITIONS * self.writer.sent} records moved once; {compared} partitions have identical replicas")

    def position(self):
        """The movers' committed offset of each partition, if their coordinator answers."""
        asked = [ConsumerGroupTopicPartitions(GROUP)]
        (future,) = self.cluster.admin.list_consumer_group_offsets(asked, require_stable=True).values()
        try:
            return {p.partition: p.offset for p in future.result(20).topic_partitions}
        except KafkaException:
            return {}

    def assert_nothing_hangs(self):
        hanging = ("find-hanging", "--max-transaction-timeout", "0", "--broker-id")
        asked = [(*hanging, str(node.id)) for node in self.cluster.brokers] + [("list",)]
        with ThreadPoolExecutor() as pool:
            told = list(pool.map(lambda words: self.cluster.tool("TransactionsCommand", *words), asked))
        # The first line of each is a table header.
        *found, listed = [lines.splitlines()[1:] for lines in told]
        assert not any(found), found
        assert all("Complete" in line or "Empty" in line for line in listed), listed


@each(
    "librdkafka+java-embedded",
    "librdkafka-single",
    "librdkafka-embedded",
    "librdkafka-mixed",
    "java-single",
    "java-embedded",
    "java-mixed",
    "franz-go-embedded",
)
def test_records_are_moved_once(name):
    makes, kind = name.rsplit("-", 1)
    if "+" not in makes:
        nightly_only()
    with Moving(kind, (makes.split("+") * 2)[:2]) as moving:
        say(f"{FAULTS} faults of seed {SEED}")
        done = moving.undergo(FAULTS, random.Random(f"{SEED} {name}"))
        moving.leave_transactions_open()
        moving.look()
        moving.judge()
        say(f"{done} faults of seed {SEED}")
