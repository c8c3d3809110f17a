"""What members of groups by the consumer protocol (KIP-848) see, and administrators of such groups."""

import pathlib
import subprocess
import sys
import threading

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, KafkaError, TopicPartition
from confluent_kafka.admin import NewPartitions

from admin_tests import code, only
from clients import admin, consumer, fill, new_topic, producer, take
from consumer_tests import assigned, close
from suite import each, unique, until

BY_BROKER = {"group_protocol": "consumer"}


def member(group, **config):
    return consumer(group, **BY_BROKER, **config)


def described(group):
    return only(admin.describe_consumer_groups([group]))


class Stream:
    """Records that are written while members come and go; each must be read, in order, and none twice."""

    def __init__(self, topic, partitions):
        self.topic, self.partitions = topic, partitions
        self.written, self.found = 0, []
        self.sender = producer()

    def pass_on(self, *readers, count=400):
        """Writes records, and polls until the readers have them all and share every partition."""
        for _ in range(count):
            self.sender.produce(self.topic, b"%d" % self.written, partition=self.written % self.partitions)
            self.written += 1
        assert self.sender.flush(30) == 0

        def settled():
            for reader in readers:
                for message in reader.consume(500, 0.05):
                    if not message.error():
                        self.found.append(int(message.value()))
            parts = [part.partition for reader in readers for part in reader.assignment()]
            shared = sorted(parts) == list(range(self.partitions)) and all(reader.assignment() for reader in readers)
            return shared and len(self.found) >= self.written

        until(settled, "an assignment of every partition, and all records", timeout=40, pause=0)
        assert sorted(self.found) == list(range(self.written)), "records were lost or read twice"


@each("uniform", "range")
def test_consumer_protocol_rebalances_as_members_come_and_go(assignor):
    topic, group = new_topic("incremental", partitions=4), unique("incremental")
    first = member(group, group_remote_assignor=assignor)
    second = member(group, group_remote_assignor=assignor)
    first.subscribe([topic])
    assigned(first, partitions=4)
    second.subscribe([topic])
    assigned(first, second, partitions=4)
    assert [len(reader.assignment()) for reader in (first, second)] == [2, 2]
    assert described(group).partition_assignor == assignor
    close(first)
    assigned(second, partitions=4)
    close(second)


def test_consumer_protocol_moves_only_what_it_must():
    topic, group = new_topic("moves", partitions=4), unique("moves")
    lost = []
    first, second = member(group), member(group)
    first.subscribe([topic], on_revoke=lambda _, parts: lost.extend(parts))
    assigned(first, partitions=4)
    second.subscribe([topic])
    assigned(first, second, partitions=4)
    assert len(lost) == 2, lost
    close(first, second)


def test_consumer_protocol_shares_every_record_once():
    topic, group = new_topic("shares", partitions=4), unique("shares")
    stream = Stream(topic, 4)
    readers = []
    for _ in range(3):
        readers.append(member(group))
        readers[-1].subscribe([topic])
        stream.pass_on(*readers)
    close(readers.pop(0))
    stream.pass_on(*readers)
    close(*readers)


def test_consumer_protocol_takes_over_from_a_member_that_was_killed():
    topic, group = new_topic("killed", partitions=2), unique("killed")
    program = pathlib.Path(__file__).with_name("member.py")
    other = subprocess.Popen([sys.executable, program, group, topic], stdout=subprocess.PIPE, text=True)
    survivor = member(group)
    try:
        survivor.subscribe([topic])

        def shared():
            survivor.poll(0.1)
            return len(survivor.assignment()) == 1 and len(described(group).members) == 2

        until(shared, "one partition each", timeout=30)
    finally:
        other.kill()
        other.wait()
    assigned(survivor, partitions=2)
    close(survivor)


def test_consumer_protocol_commits_and_resumes():
    topic, group = new_topic("resumes"), unique("resumes")
    fill(topic, [b"a", b"b", b"c"])
    reader = member(group, enable_auto_commit=False)
    reader.subscribe([topic])
    take(reader, 2)
    reader.commit(offsets=[TopicPartition(topic, 0, 2, "a note")], asynchronous=False)
    (found,) = reader.committed([TopicPartition(topic, 0)], timeout=10)
    close(reader)
    assert (found.offset, found.metadata) == (2, "a note"), found
    reader = member(group)
    reader.subscribe([topic])
    assert take(reader, 1)[0].value() == b"c"
    close(reader)


def test_consumer_protocol_static_member_returns_without_a_rebalance():
    topic, group = new_topic("returns", partitions=2), unique("returns")
    revoked = threading.Event()
    first, second = (member(group, group_instance_id=name) for name in ("one", "two"))
    first.subscribe([topic], on_revoke=lambda *_: revoked.set())
    second.subscribe([topic])
    assigned(first, second, partitions=2)
    before = second.assignment()
    revoked.clear()
    close(second)
    second = member(group, group_instance_id="two")
    second.subscribe([topic])
    assigned(first, second, partitions=2)
    after = second.assignment()
    assert not revoked.is_set(), "the other member lost its partitions"
    close(first, second)
    assert [part.partition for part in before] == [part.partition for part in after]


def test_consumer_protocol_refuses_the_double_of_a_static_member():
    topic, group = new_topic("double"), unique("double")
    first, double = (member(group, group_instance_id="one") for _ in range(2))
    first.subscribe([topic])
    assigned(first, partitions=1)
    double.subscribe([topic])

    def refused():
        first.poll(0.05)
        message = double.poll(0.2)
        codes = (KafkaError._FATAL, KafkaError.UNRELEASED_INSTANCE_ID)
        return message is not None and message.error() and message.error().code() in codes

    until(refused, "the double refused", timeout=20, pause=0)
    assert len(first.assignment()) == 1
    close(double, first)


def test_consumer_protocol_follows_a_regular_expression():
    stem = unique("pattern")
    topics = [new_topic(f"{stem}-{number}") for number in range(2)]
    reader = member(unique("pattern"))
    reader.subscribe([f"^{stem}-[0-9]-.*"])

    def holds(expected):
        reader.poll(0.1)
        return {part.topic for part in reader.assignment()} == set(expected)

    until(lambda: holds(topics), "both topics", timeout=30)
    topics.append(new_topic(f"{stem}-2"))
    new_topic(f"{stem}-x")
    until(lambda: holds(topics), "the topic that was created later", timeout=40)
    close(reader)


def test_consumer_protocol_sees_new_partitions():
    topic = new_topic("grows", partitions=1)
    reader = member(unique("grows"), topic_metadata_refresh_interval_ms=1_000)
    reader.subscribe([topic])
    assigned(reader, partitions=1)
    only(admin.create_partitions([NewPartitions(topic, 3)]))
    assigned(reader, partitions=3)
    close(reader)


def test_consumer_protocol_groups_migrate_and_return_while_members_run():
    topic, group = new_topic("migrates", partitions=4), unique("migrates")
    stream = Stream(topic, 4)
    classic = consumer(group, partition_assignment_strategy="cooperative-sticky")
    classic.subscribe([topic])
    stream.pass_on(classic)
    assert described(group).type == ConsumerGroupType.CLASSIC
    modern = member(group)
    modern.subscribe([topic])
    stream.pass_on(classic, modern)
    assert described(group).type == ConsumerGroupType.CONSUMER
    close(classic)
    stream.pass_on(modern)
    returned = consumer(group, partition_assignment_strategy="cooperative-sticky")
    returned.subscribe([topic])
    stream.pass_on(modern, returned)
    close(modern)
    stream.pass_on(returned)
    until(lambda: described(group).type == ConsumerGroupType.CLASSIC, "a classic group")
    close(returned)


def test_consumer_protocol_groups_are_listed_and_described():
    topic, group = new_topic("described", partitions=2), unique("described")
    reader = member(group, client_id="reader-one", group_instance_id="instance-one")
    reader.subscribe([topic])
    assigned(reader, partitions=2)
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(timeout=20).valid
    (entry,) = [entry for entry in listed if entry.group_id == group]
    assert (entry.state, entry.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    classic = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(timeout=20).valid
    assert group not in {entry.group_id for entry in classic}
    until(lambda: described(group).state == ConsumerGroupState.STABLE, "a stable group")
    found = described(group)
    (only_member,) = found.members
    assert (found.type, found.partition_assignor) == (ConsumerGroupType.CONSUMER, "uniform")
    assert (only_member.client_id, only_member.group_instance_id) == ("reader-one", "instance-one")
    for assignment in (only_member.assignment, only_member.target_assignment):
        assert sorted(part.partition for part in assignment.topic_partitions) == [0, 1]
    close(reader)


def test_consumer_protocol_groups_are_reset_and_deleted_when_empty():
    topic, group = new_topic("reset"), unique("reset")
    fill(topic, [b"a", b"b"])
    reader = member(group)
    reader.subscribe([topic])
    take(reader, 2)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    (part,) = only(admin.alter_consumer_group_offsets([wanted])).topic_partitions
    assert part.error.code() == KafkaError.UNKNOWN_MEMBER_ID, part
    assert code(lambda: only(admin.delete_consumer_groups([group]))) == KafkaError.NON_EMPTY_GROUP
    close(reader)
    until(lambda: described(group).state == ConsumerGroupState.EMPTY, "an empty group")
    only(admin.alter_consumer_group_offsets([wanted]))
    reader = member(group)
    reader.subscribe([topic])
    assert take(reader, 1)[0].value() == b"b"
    close(reader)
    until(lambda: described(group).state == ConsumerGroupState.EMPTY, "an empty group")
    only(admin.delete_consumer_groups([group]))
    assert group not in {entry.group_id for entry in admin.list_consumer_groups().result(timeout=20).valid}


def test_consumer_protocol_twenty_members_at_once():
    topic, group = new_topic("crowd", partitions=20), unique("crowd")
    readers = [member(group) for _ in range(20)]
    for reader in readers:
        reader.subscribe([topic])

    def shared():
        for reader in readers:
            reader.poll(0.01)
        parts = [part.partition for reader in readers for part in reader.assignment()]
        return sorted(parts) == list(range(20)) and all(len(reader.assignment()) == 1 for reader in readers)

    until(shared, "one partition each", timeout=60, pause=0)
    close(*readers)
