"""A cluster whose brokers are killed, stopped and paused, and come back with damaged or older files, under the load of an
idempotent and of a transactional writer. After each round every replica leads in turn, and its committed records are read.

A round is at least ROUND_S of load with one fault or more. Every number of a round follows from its seed.
"""

import pathlib
import random
import subprocess
import sys
import threading
import time

from broker import thalweg_binary
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic
from writer import PADDING, Writer

from damage import Damage, keep_copy, restore_all, restore_partitions
from faults import say
from network import Network
from nodes import SESSION_S, Cluster
from replicas import compare

KEPT, LEDGER = "kept", "ledger"
PARTITIONS = 2
TOPICS = {KEPT: PARTITIONS, LEDGER: PARTITIONS}
ROUND_S = 20
# A partition must be read within this time.
READ_S = 60
# A move or an election must be accepted within this time.
COMMAND_S = 30
# What is read again after every round grows with the rounds.
ROUNDS_OF_CLUSTER = 10
# Small segments, of which a round has several. Only this name allows less than Kafka's minimum.
OF_TOPICS = {"internal.segment.bytes": "262144", "index.interval.bytes": "1024"}
# A batch of a writer that could not send for a while is not larger than a segment.
SMALL_BATCHES = {"batch.size": 65536}
# Faults of one broker while the others go on, and of all brokers together.
FORMS = ("kill", "kill", "stop", "pause", "older", "blackout", "blackout", "older blackout")


class Transactional(threading.Thread):
    """Transactions of one to a few records in every partition, one after the other, of which a third is aborted."""

    def __init__(self, bootstrap, source):
        super().__init__(daemon=True)
        self.source, self.bootstrap = source, bootstrap
        self.committed, self.unknown, self.failures = [], set(), []
        self.sent = 0
        self.stopping = threading.Event()

    def run(self):
        producer = None
        while not self.stopping.is_set():
            try:
                producer = producer or self.begin()
                self.transaction(producer)
            except KafkaException as failure:
                # Its fate is unknown; the next producer of this id ends it.
                self.failures.append(str(failure))
                producer = None
                time.sleep(0.5)

    def begin(self):
        config = {"transactional.id": "ledger", "transaction.timeout.ms": 60_000, "linger.ms": 2, "log_level": 0, **SMALL_BATCHES}
        producer = Producer({"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 500, **config})
        producer.init_transactions(120)
        return producer

    def transaction(self, producer):
        numbers = list(range(self.sent, self.sent + self.source.randint(1, 4)))
        self.sent = numbers[-1] + 1
        commits = self.source.random() < 0.66
        producer.begin_transaction()
        for number in numbers:
            for partition in range(PARTITIONS):
                producer.produce(LEDGER, b"%d " % number + PADDING, partition=partition)
        if self.source.random() < 0.3:
            time.sleep(self.source.uniform(0, 0.3))
        if commits:
            self.unknown.update(numbers)
            producer.commit_transaction(120)
            self.unknown.difference_update(numbers)
            self.committed += numbers
        else:
            producer.flush(120)
            producer.abort_transaction(120)
        time.sleep(0.01)

    def finish(self):
        self.stopping.set()
        self.join()

    def count(self):
        return len(self.committed)

    def check(self, found, committed, what):
        """Compares the records that are read as committed with those that were."""
        lost = sorted(set(committed) - set(found))
        assert not lost, f"{what}: {len(lost)} of {len(committed)} committed records are lost, the first {lost[:3]}"
        known = set(self.committed) | self.unknown
        shown = [number for number in found if number not in known]
        assert not shown, f"{what}: {len(shown)} aborted records are read as committed, the first {shown[:3]}"
        assert found == sorted(set(found)), f"{what}: records are doubled or out of order"


class Damages:
    """A cluster with its writers."""

    def __init__(self, kind, directory, seed):
        self.cluster = Cluster(kind, directory, Network())
        self.source = random.Random(f"damages {seed} {kind}")
        self.damage = Damage(self.source, TOPICS)
        # The first broker may be the only controller: an older copy of it would be another cluster.
        self.may_age = [node for node in self.cluster.brokers if not node.is_controller()]
        self.copies = {}

    def __enter__(self):
        try:
            self.cluster.start()
            self.create_topics()
            bootstrap = self.cluster.bootstrap
            self.writer = Writer(bootstrap, KEPT, PARTITIONS, **{"max.in.flight": 1, **SMALL_BATCHES})
            self.ledger = Transactional(bootstrap, random.Random(self.source.random()))
            for client in (self.writer, self.ledger):
                client.start()
        except BaseException:
            self.cluster.end()
            raise
        return self

    def __exit__(self, *_):
        self.cluster.end()

    def create_topics(self):
        topics = [NewTopic(name, count, self.cluster.replicas, config=OF_TOPICS) for name, count in TOPICS.items()]
        for created in self.cluster.admin.create_topics(topics, request_timeout=60).values():
            created.result(60)

    def round(self):
        """Load with a fault or two, then the audit of every replica."""
        self.cluster.wait_until_whole()
        began, done = time.monotonic(), []
        for _ in range(self.source.choice((1, 1, 2))):
            time.sleep(self.source.uniform(2, ROUND_S / 2))
            form = self.source.choice(FORMS)
            done.append(f"{form}: {getattr(self, form.replace(' ', '_'))()}")
            say(done[-1])
            self.cluster.wait_until_whole()
        time.sleep(max(0, ROUND_S - (time.monotonic() - began)))
        loaded = time.monotonic() - began
        self.wait_for_records()
        kept = self.audit()
        say(f"{'; '.join(done)}: {loaded:.0f} s of load, {kept} acknowledged records read on every replica")

    def wait_for_records(self):
        before = self.writer.count(), self.ledger.count()
        self.cluster.wait("more records", lambda _: self.writer.count() > before[0] and self.ledger.count() > before[1])
        assert not self.writer.failures, self.writer.failures[:3]

    def kill(self):
        node = self.source.choice(self.cluster.brokers)
        node.kill()
        time.sleep(self.source.choice((0, 1, SESSION_S + 1)))
        what = self.damage.files(node)
        node.start()
        return what

    def stop(self):
        node = self.source.choice(self.cluster.brokers)
        node.stop()
        what = self.damage.files(node)
        node.start()
        return what

    def pause(self):
        node = self.source.choice(self.cluster.brokers)
        seconds = self.source.choice((1, SESSION_S + 2))
        node.pause()
        time.sleep(seconds)
        node.resume()
        return f"{node.name} for {seconds} s"

    def older(self):
        node = self.source.choice(self.may_age)
        node.kill()
        what = self.put_older(node)
        node.start()
        return what

    def put_older(self, node):
        """Puts the copy of an earlier round in place, of all or of some partitions, and copies what is there now for a later
        one."""
        copy, what = self.copies.get(node.name), f"{node.name}: a copy was made"
        now = node.directory / f"copy-{time.monotonic_ns()}"
        keep_copy(node, now)
        if copy:
            places = [place.name for place in self.damage.partitions(node) if (copy / place.name).is_dir()]
            if self.source.random() < 0.5:
                what = restore_all(node, copy)
            else:
                what = restore_partitions(node, copy, self.source.sample(places, self.source.randint(min(1, len(places)), len(places))))
        self.copies[node.name] = now
        return what

    def blackout(self):
        return self.black_out(lambda: self.damage.files(self.source.choice(self.cluster.brokers)))

    def older_blackout(self):
        return self.black_out(lambda: self.put_older(self.source.choice(self.may_age)))

    def black_out(self, between):
        nodes = list(self.cluster.nodes)
        self.source.shuffle(nodes)
        for node in nodes:
            node.kill()
        what = between()
        self.source.shuffle(nodes)
        pause_s = self.source.choice((0, 0.5, SESSION_S))
        for node in nodes:
            time.sleep(self.source.uniform(0, pause_s))
            node.start()
        return f"{what}, started {[node.id for node in nodes]}"

    def audit(self):
        """Every replica leads in turn, and what it shows as committed is compared with what was acknowledged."""
        acknowledged, committed = [dict(known) for known in self.writer.acknowledged], list(self.ledger.committed)
        ids, bootstrap = [node.id for node in self.cluster.brokers], self.cluster.bootstrap
        for leader in ids:
            self.lead([leader, *(other for other in ids if other != leader)])
            for partition in range(PARTITIONS):
                what = f"partition {partition} of {{}} on broker {leader}"
                numbers = dict(read(bootstrap, KEPT, partition, "read_committed", what.format(KEPT)))
                lost = [n for n, at in acknowledged[partition].items() if at is not None and numbers.get(at) != n]
                all_of_it = len(acknowledged[partition])
                assert not lost, f"{what.format(KEPT)}: {len(lost)} of {all_of_it} records are lost, the first {lost[:3]}"
                pairs = read(bootstrap, LEDGER, partition, "read_committed", what.format(LEDGER))
                self.ledger.check([number for _, number in pairs], committed, what.format(LEDGER))
        return sum(map(len, acknowledged)) + len(committed) * PARTITIONS

    def lead(self, replicas):
        """Makes the first of these brokers the leader of every partition."""
        self.cluster.wait_until_whole()
        order = ",".join(map(str, replicas))
        self.thalweg("move", *TOPICS, "--replicas", order, "--execute")
        self.thalweg("elect", *TOPICS)

        def leads(seen):
            partitions = [p for topic in TOPICS for p in seen.topics[topic].partitions.values()]
            return all(p.leader == replicas[0] for p in partitions)

        self.cluster.wait(f"broker {replicas[0]} leads", leads)

    def thalweg(self, *arguments):
        command = [thalweg_binary(), "topic", *arguments, "--bootstrap-server", self.cluster.bootstrap]

        deadline = time.monotonic() + COMMAND_S
        while (done := subprocess.run(command, capture_output=True, text=True, timeout=60)).returncode:
            # An election or a move may still be under way.
            assert time.monotonic() < deadline, f"{' '.join(command)}: {done.stdout}{done.stderr}"
            time.sleep(1)

    def judge(self):
        """Stops the writers, and compares everything, on every replica."""
        for client in (self.ledger, self.writer):
            client.finish()
        seen = self.cluster.wait_until_whole()
        for partition in range(PARTITIONS):
            pairs = read(self.cluster.bootstrap, KEPT, partition, "read_uncommitted", f"partition {partition} of {KEPT}")
            self.writer.check([(offset, b"%d " % number) for offset, number in pairs], partition)
        kept = self.audit()
        compare(self.cluster, seen, tuple(TOPICS))
        return kept


def read(bootstrap, topic, partition, isolation, what):
    """The (offset, number) pairs of a partition, in their order."""
    program = pathlib.Path(__file__).with_name("reader.py")
    command = [sys.executable, program, bootstrap, topic, str(partition), isolation, str(READ_S)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * READ_S)
    assert done.returncode == 0, f"{what} cannot be read: exit {done.returncode}: {done.stderr.strip()[-300:]}"
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def undergo(kind, directory, rounds, seed):
    """Runs rounds in clusters of this kind; returns how many records were read at the end of each."""
    done, kept = 0, 0
    while done < rounds:
        count = min(ROUNDS_OF_CLUSTER, rounds - done)
        with Damages(kind, directory / f"{kind}-damages-{done}", f"{seed}-{done}") as damages:
            say(f"{kind}, seed {seed}-{done}, in {damages.cluster.directory}")
            for _ in range(count):
                damages.round()
            kept += damages.judge()
        done += count
    return kept
