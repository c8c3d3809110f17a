"""MirrorMaker 2 in its dedicated mode, between two brokers, in both directions; shared by the tests."""

import atexit
import functools

from broker import SUITE_SETTINGS, TARGETS, Broker
from connect import WORK, Java
from ports import free_port
from records import Cluster
from suite import TARGET, Skip, nightly_only, unique, until

SETTINGS = {
    "clusters": "primary,backup",
    "primary->backup.enabled": "true",
    "backup->primary.enabled": "true",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "3",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "2",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.topic.acls.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.heartbeats.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "offset.lag.max": "0",
    "tasks.max": "2",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "service_load",
}
# Its workers write by transactions, and fence those of a process that is gone, which needs their REST interface.
EXACTLY_ONCE = {
    "primary.exactly.once.source.support": "enabled",
    "backup.exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
}


class Mirror:
    """Two brokers and the process between them."""

    def __init__(self):
        place = WORK / "mirror"
        self.brokers = {name: Broker(TARGET, place / name, SUITE_SETTINGS).start() for name in ("primary", "backup")}
        for broker in self.brokers.values():
            atexit.register(broker.stop)
        self.primary, self.backup = (Cluster(broker.bootstrap) for broker in self.brokers.values())
        addresses = {f"{name}.bootstrap.servers": broker.bootstrap for name, broker in self.brokers.items()}
        rest = {"listeners": f"http://127.0.0.1:{free_port()}"}
        settings = SETTINGS | EXACTLY_ONCE | addresses | rest
        self.maker = Java("mirror-maker", "org.apache.kafka.connect.mirror.MirrorMaker", settings).start()
        atexit.register(self.maker.stop)


@functools.cache
def mirror():
    return Mirror()


def running():
    nightly_only()
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    mirror().maker.check_alive()
    return mirror()


def seen(message):
    return message.key(), message.value(), message.headers(), message.timestamp()


def mirrored(cluster, topic, counts):
    """Waits until the partitions of a topic have that many records; returns them all."""
    until(lambda: cluster.topics().get(topic) == len(counts), f"{topic} with {len(counts)} partitions", timeout=45)
    found = lambda: [cluster.read(topic, partition) for partition in range(len(counts))]
    until(lambda: [len(part) for part in found()] == counts, f"{counts} records in {topic}", timeout=30)
    return [list(map(seen, part)) for part in found()]


def records(topic, count, partition):
    return [(partition, b"key %d" % n, f"{topic} {partition} {n}", [("number", b"%d" % n)]) for n in range(count)]


def test_topics_are_mirrored_with_records_partitions_and_settings():
    both, topic = running(), unique("mirrored")
    both.primary.create(topic, 2, retention_ms="7200000", cleanup_policy="compact", max_message_bytes="123456")
    for partition in range(2):
        both.primary.produce(topic, records(topic, 300, partition))
    copy = mirrored(both.backup, f"primary.{topic}", [300, 300])
    assert copy == [list(map(seen, both.primary.read(topic, partition))) for partition in range(2)]
    wanted = {"retention.ms": "7200000", "cleanup.policy": "compact", "max.message.bytes": "123456"}
    settings = lambda: {key: both.backup.configs(f"primary.{topic}")[key] for key in wanted}
    until(lambda: settings() == wanted, f"the settings {wanted}")
    # What changes later follows.
    both.primary.set_config(topic, "retention.ms", "3600000")
    both.primary.add_partitions(topic, 3)
    until(lambda: settings() == wanted | {"retention.ms": "3600000"}, "the changed setting")
    until(lambda: both.backup.topics()[f"primary.{topic}"] == 3, "the new partition")
    both.primary.produce(topic, records(topic, 10, 2))
    mirrored(both.backup, f"primary.{topic}", [300, 300, 10])
    circles = [name for name in both.primary.topics() if "backup.primary." in name]
    assert not circles, f"mirrored back to where they are from: {circles}"


def test_the_other_direction_is_mirrored_too():
    both, topic = running(), unique("back")
    both.backup.create(topic)
    both.backup.produce(topic, records(topic, 100, 0))
    copy = mirrored(both.primary, f"backup.{topic}", [100])
    assert copy == [list(map(seen, both.backup.read(topic)))]


def test_offsets_of_groups_follow():
    both, topic, group = running(), unique("followed"), unique("group")
    both.primary.create(topic, 2)
    for partition in range(2):
        both.primary.produce(topic, records(topic, 100, partition))
    both.primary.commit(group, topic, {0: 100, 1: 40})
    mirrored(both.backup, f"primary.{topic}", [100, 100])
    there = lambda: both.backup.committed(group)
    # An offset at the end is exact. Another is that of an earlier record whose offset is known in both clusters.
    until(lambda: there().get((f"primary.{topic}", 0)) == 100, "the offset at the end", timeout=30)
    until(lambda: 0 < there().get((f"primary.{topic}", 1), 0) <= 40, "an offset that skips no record", timeout=30)
    both.primary.commit(group, topic, {1: 100})
    until(lambda: there().get((f"primary.{topic}", 1)) == 100, "the later offset", timeout=30)


def test_heartbeats_and_checkpoints_are_emitted():
    both = running()
    for cluster, other in ((both.primary, "backup"), (both.backup, "primary")):
        until(lambda: f"{other}.heartbeats" in cluster.topics(), f"{other}.heartbeats", timeout=45)
        before = len(cluster.read(f"{other}.heartbeats"))
        until(lambda: len(cluster.read(f"{other}.heartbeats")) > before + 1, f"further heartbeats of {other}")
        assert {f"{other}.checkpoints.internal", f"mm2-offset-syncs.{other}.internal"} <= cluster.topics().keys()


def test_records_are_mirrored_once_when_it_is_killed():
    both, topic = running(), unique("killed")
    both.primary.create(topic)
    both.primary.produce(topic, records(topic, 1_000, 0))
    mirrored(both.backup, f"primary.{topic}", [1_000])
    both.primary.produce(topic, [(0, None, f"{n} {'x' * 500}", None) for n in range(20_000)])
    until(lambda: len(both.backup.read(f"primary.{topic}", isolation="read_uncommitted")) > 1_200, "some of the next", pause=0)
    both.maker.kill()
    both.maker.start()
    until(lambda: len(both.backup.read(f"primary.{topic}")) >= 21_000, "all records", timeout=60)
    assert both.backup.values(f"primary.{topic}") == both.primary.values(topic)
