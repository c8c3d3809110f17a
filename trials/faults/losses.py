"""Brokers that return empty while no other broker is available, and a writer that tracks acknowledgements.

Two forms. `blackout`: all processes are killed, and one broker's directory is emptied before they restart, or the directory
of one partition is removed from it. `stall`: the leader of a partition is killed, comes back with an empty directory, and the
controllers are paused for longer than a session.
In both, only the controllers keep the empty replica from leading.
"""

import random
import time

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition
from writer import Writer, number, read_all

from faults import say
from network import Network
from nodes import Cluster
from replicas import compare

TOPIC = "kept"
PARTITIONS = 3
ELR = "eligible.leader.replicas.version"
# Short, because every round waits for sessions to expire.
SESSION_S = 2
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_S * 1000),
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "4000",
}
# Minimum records per partition between two faults.
BETWEEN = 500
# All records are read at the end of each cluster; a round reads only new ones.
ROUNDS_OF_CLUSTER = 20


class Losses:
    """A cluster with a writer and its acknowledgements."""

    def __init__(self, kind, elr, directory, source):
        self.cluster = Cluster(kind, directory, Network(), SETTINGS)
        self.elr, self.source = elr, source
        # The first broker may be the only controller: without its directory the cluster would be lost.
        self.may_lose = [node for node in self.cluster.brokers if not node.is_controller()]
        self.verified = [0] * PARTITIONS

    def __enter__(self):
        try:
            self.cluster.start()
            self.set_feature()
            self.cluster.create_topics({TOPIC: PARTITIONS})
            # With one request in flight, producers do not depend on brokers remembering several batches.
            self.writer = Writer(self.cluster.bootstrap, TOPIC, PARTITIONS, **{"max.in.flight": 1})
            self.writer.start()
        except BaseException:
            self.cluster.end()
            raise
        return self

    def __exit__(self, *_):
        self.cluster.end()

    def set_feature(self):
        """Enables or disables eligible leader replicas, regardless of the cluster's default."""
        wanted = int(self.elr)
        if self.feature() != wanted:
            direction = "upgrade" if wanted else "downgrade"
            self.cluster.tool("FeatureCommand", direction, "--feature", f"{ELR}={wanted}")
            assert self.feature() == wanted

    def feature(self):
        told = self.cluster.tool("FeatureCommand", "describe")
        line = next(line for line in told.splitlines() if ELR in line)
        return int(line.split("FinalizedVersionLevel:")[1].split()[0])

    def wait_for_records(self):
        """Waits until the cluster is healthy, and every partition has more records."""
        self.cluster.wait_until_whole()
        wanted = self.writer.count() + BETWEEN
        self.cluster.wait(f"{wanted} records in every partition", lambda _: self.failed() or self.writer.count() >= wanted)
        assert not self.failed(), self.writer.failures[:3]
        return self.cluster.wait_until_whole()

    def failed(self):
        return bool(self.writer.failures)

    def round(self, form):
        """Applies one fault, then checks that everything is present."""
        seen = self.wait_for_records()
        began = time.monotonic()
        what = getattr(self, form)(seen)
        self.cluster.wait_until_whole()
        away = time.monotonic() - began
        acknowledged = self.check_tail()
        say(f"{what}; healthy after {away:.1f} s, {acknowledged} acknowledged in total and present")

    def blackout(self, _seen):
        # All acknowledged records are on all three, because all were in sync.
        emptied = self.source.sample(self.may_lose, self.source.choice([1, 1, 2]))
        # Dedicated controllers may keep running.
        with_controllers = self.source.random() < 0.5 or any(node.is_controller() for node in self.cluster.brokers)
        nodes = [node for node in self.cluster.nodes if node.is_broker() or with_controllers]
        self.source.shuffle(nodes)
        for node in nodes:
            node.kill()
        if by_folder := self.source.random() < 0.3:
            for node in emptied:
                node.empty_partition(TOPIC, self.source.randrange(PARTITIONS))
        else:
            for node in emptied:
                node.empty()
        self.source.shuffle(nodes)
        # The empty one first, last or in between; at once, or after the others' sessions have expired.
        pause_s = self.source.choice([0, 0.3, SESSION_S * 0.8])
        for node in nodes:
            time.sleep(self.source.uniform(0, pause_s))
            node.start()
        order, gone = [node.id for node in nodes], [node.id for node in emptied]
        killed, what = "all" if with_controllers else "all brokers", "removed a partition of" if by_folder else "emptied"
        return f"blackout: killed {killed}, {what} {gone}, started {order}"

    def stall(self, seen):
        partitions = seen.topics[TOPIC].partitions.values()
        leaders = {partition.leader for partition in partitions}
        struck = self.source.choice([node for node in self.may_lose if node.id in leaders] or self.may_lose)
        struck.kill()
        struck.empty()
        time.sleep(self.source.choice([0, SESSION_S + 1]))
        struck.start()
        # Before it is noticed, while it copies, or after it has copied everything.
        before_s = self.source.uniform(0, 2 * SESSION_S)
        time.sleep(before_s)
        held = [node for node in self.cluster.nodes if node.is_controller()]
        for node in held:
            node.pause()
        held_s = SESSION_S * self.source.uniform(1.2, 2.5)
        time.sleep(held_s)
        for node in held:
            node.resume()
        return f"stall: emptied {struck.id}, controllers paused after {before_s:.1f} s for {held_s:.1f} s"

    def check_tail(self):
        """Continues reading, and looks for the records acknowledged meanwhile."""
        acknowledged = [dict(known) for known in self.writer.acknowledged]
        for partition, known in enumerate(acknowledged):
            end = 1 + max((offset for offset in known.values() if offset is not None), default=-1)
            found = read_from(self.cluster.bootstrap, TOPIC, partition, self.verified[partition], end)
            lost = [
                (n, offset)
                for n, offset in known.items()
                if offset is not None and offset >= self.verified[partition] and found.get(offset) != n
            ]
            assert not lost, f"partition {partition}: {len(lost)} acknowledged records lost, the first {lost[:3]}"
            self.verified[partition] = end
        assert not self.failed(), self.writer.failures[:3]
        return sum(map(len, acknowledged))

    def judge(self):
        """Stops the writer, reads everything from the first offset on, and compares the replicas."""
        self.writer.finish()
        seen = self.cluster.wait_until_whole()
        for partition in range(PARTITIONS):
            self.writer.check(read_all(self.cluster.bootstrap, TOPIC, partition), partition)
        compare(self.cluster, seen, (TOPIC,))
        return sum(map(len, self.writer.acknowledged))


def read_from(bootstrap, topic, partition, start, end, timeout=60):
    """The numbers of a partition's records by offset, in a range of offsets."""
    config = {"group.id": "check", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    # A missing offset is an error, not a reason to reset.
    reader = Consumer({"bootstrap.servers": bootstrap, **config, "auto.offset.reset": "error"})
    reader.assign([TopicPartition(topic, partition, start if start < end else OFFSET_END)])
    found, at, deadline = {}, start, time.monotonic() + timeout
    while at < end:
        assert time.monotonic() < deadline, f"partition {partition}: at {at} of {end} after {timeout} s"
        for message in reader.consume(10_000, 0.2):
            if message.error():
                gone = message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
                assert not gone, f"partition {partition} at {at} of {end}: {message.error()}"
                continue
            found[message.offset()], at = number(message.value()), message.offset() + 1
    reader.close()
    return found


def undergo(kind, elr, directory, rounds, seed):
    """Runs rounds in clusters of this kind, alternating the forms; returns the number of checked records."""
    source, done, kept = random.Random(f"{seed} {kind} {elr}"), 0, 0
    while done < rounds:
        count = min(ROUNDS_OF_CLUSTER, rounds - done)
        with Losses(kind, elr, directory / f"{kind}-{'elr' if elr else 'no-elr'}-{done}", source) as losses:
            say(f"{kind}, {ELR}={int(elr)}, in {losses.cluster.directory}")
            for number_of_round in range(done, done + count):
                losses.round(("blackout", "stall")[number_of_round % 2])
            kept += losses.judge()
        done += count
    return kept
