"""What AdminClient sees: topics, configurations, groups, offsets, records, and the errors of each."""

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from clients import admin, consumer, deliver, fill, new_topic, read, settled, take
from suite import raises, unique, until


def code(call):
    """The error code of the KafkaException that the call raises."""
    return raises(KafkaException, call).args[0].code()


def only(futures):
    (future,) = futures.values()
    return future.result(timeout=20)


def describe(kind, name):
    return only(admin.describe_configs([ConfigResource(kind, name)]))


def alter(name, operation, key, value, kind=ConfigResource.Type.TOPIC, **options):
    entry = ConfigEntry(key, value, incremental_operation=operation)
    return only(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])], **options))


def test_create_and_delete_topic():
    topic = new_topic("created", partitions=3)
    assert len(admin.list_topics(timeout=10).topics[topic].partitions) == 3
    settled(admin.delete_topics([topic]))
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic gone")


def test_deleted_topic_can_be_created_again_empty():
    topic = new_topic("again")
    fill(topic, [b"old"])
    settled(admin.delete_topics([topic]))
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic gone")
    settled(admin.create_topics([NewTopic(topic, 1, 1)]))
    until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic back")
    fill(topic, [b"new"])
    assert [(message.offset(), message.value()) for message in read(topic, 1)] == [(0, b"new")]


def test_create_topic_that_exists():
    topic = new_topic("exists")
    assert code(lambda: only(admin.create_topics([NewTopic(topic, 1, 1)]))) == KafkaError.TOPIC_ALREADY_EXISTS


def test_create_topic_validate_only():
    topic = unique("validated")
    only(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=10).topics


def test_create_topic_with_broker_defaults():
    topic = unique("defaults")
    only(admin.create_topics([NewTopic(topic)]))
    until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic")
    assert len(admin.list_topics(timeout=10).topics[topic].partitions) == 1


def test_create_topic_with_assignment():
    topic = unique("assigned")
    (node,) = admin.list_topics(timeout=10).brokers
    only(admin.create_topics([NewTopic(topic, 2, replica_assignment=[[node], [node]])]))
    found = until(lambda: admin.list_topics(timeout=10).topics.get(topic), "the topic")
    assert found.partitions[1].replicas == [node]


def test_create_topic_with_a_bad_name():
    assert code(lambda: only(admin.create_topics([NewTopic("bad/name", 1, 1)]))) == KafkaError.TOPIC_EXCEPTION


def test_create_topic_with_too_many_replicas():
    call = lambda: only(admin.create_topics([NewTopic(unique("wide"), 1, 3)]))
    assert code(call) == KafkaError.INVALID_REPLICATION_FACTOR


def test_create_topic_with_no_partitions():
    call = lambda: only(admin.create_topics([NewTopic(unique("none"), 0, 1)]))
    assert code(call) in (KafkaError.INVALID_PARTITIONS, KafkaError._INVALID_ARG)


def test_create_topic_with_a_bad_config():
    for config in ({"no.such.config": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}):
        call = lambda: only(admin.create_topics([NewTopic(unique("bad"), 1, 1, config=config)]))
        assert code(call) == KafkaError.INVALID_CONFIG, config


def test_delete_unknown_topic():
    assert code(lambda: only(admin.delete_topics([unique("absent")]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_create_partitions():
    topic = new_topic("grown")
    fill(topic, [b"kept"])
    only(admin.create_partitions([NewPartitions(topic, 3)]))
    until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3, "three partitions")
    fill(topic, [b"new"], partition=2)
    assert read(topic, 1, partition=2)[0].value() == b"new"
    assert read(topic, 1, partition=0)[0].value() == b"kept"


def test_create_fewer_partitions():
    topic = new_topic("shrunk", partitions=2)
    assert code(lambda: only(admin.create_partitions([NewPartitions(topic, 1)]))) == KafkaError.INVALID_PARTITIONS


def test_create_partitions_of_unknown_topic():
    call = lambda: only(admin.create_partitions([NewPartitions(unique("absent"), 2)]))
    assert code(call) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_topics():
    topic = new_topic("described", partitions=2)
    found = only(admin.describe_topics(TopicCollection([topic])))
    assert found.name == topic and len(found.partitions) == 2 and not found.is_internal
    assert str(found.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA" and found.partitions[0].leader is not None


def test_describe_unknown_topic():
    call = lambda: only(admin.describe_topics(TopicCollection([unique("absent")])))
    assert code(call) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_cluster():
    found = admin.describe_cluster().result(timeout=20)
    assert found.cluster_id and len(found.nodes) == 1 and found.controller.id == found.nodes[0].id


def test_describe_topic_configs_with_their_sources():
    topic = new_topic("configs", retention_ms="1234567")
    found = describe(ConfigResource.Type.TOPIC, topic)
    assert found["retention.ms"].value == "1234567"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["max.message.bytes"].value == "1048588" and found["max.message.bytes"].is_default
    assert found["cleanup.policy"].value == "delete"


def test_describe_configs_of_unknown_topic():
    call = lambda: describe(ConfigResource.Type.TOPIC, unique("absent"))
    assert code(call) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_broker_configs():
    (node,) = admin.list_topics(timeout=10).brokers
    found = describe(ConfigResource.Type.BROKER, str(node))
    assert found["offsets.topic.num.partitions"].value == "4"
    assert found["offsets.topic.num.partitions"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["log.segment.bytes"].value == "1073741824" and found["log.dirs"].is_read_only


def test_incremental_alter_sets_and_deletes():
    topic = new_topic("altered")
    retention = lambda: describe(ConfigResource.Type.TOPIC, topic)["retention.ms"].value
    default = retention()
    alter(topic, AlterConfigOpType.SET, "retention.ms", "777777")
    until(lambda: retention() == "777777", "the value set")
    alter(topic, AlterConfigOpType.DELETE, "retention.ms", None)
    until(lambda: retention() == default, "the default back")


def test_incremental_alter_appends_and_subtracts():
    topic = new_topic("appended", cleanup_policy="delete")
    policy = lambda: describe(ConfigResource.Type.TOPIC, topic)["cleanup.policy"].value
    alter(topic, AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    until(lambda: sorted(policy().split(",")) == ["compact", "delete"], "both policies")
    alter(topic, AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    until(lambda: policy() == "compact", "one policy")


def test_incremental_alter_validate_only():
    topic = new_topic("validated")
    retention = lambda: describe(ConfigResource.Type.TOPIC, topic)["retention.ms"].value
    default = retention()
    alter(topic, AlterConfigOpType.SET, "retention.ms", "5", validate_only=True)
    assert retention() == default


def test_incremental_alter_refuses_bad_values():
    topic = new_topic("refused")
    for key, value in (("retention.ms", "soon"), ("no.such.config", "1"), ("min.insync.replicas", "0")):
        call = lambda: alter(topic, AlterConfigOpType.SET, key, value)
        assert code(call) == KafkaError.INVALID_CONFIG, key


def test_altered_max_message_bytes_takes_effect():
    topic = new_topic("effect")
    alter(topic, AlterConfigOpType.SET, "max.message.bytes", "500")

    def refused():
        try:
            fill(topic, [b"x" * 1_000])
        except KafkaException as failure:
            return failure.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    until(refused, "a refusal")


def test_broker_config_altered_and_deleted():
    (node,) = admin.list_topics(timeout=10).brokers
    threads = lambda: describe(ConfigResource.Type.BROKER, str(node))["log.cleaner.backoff.ms"]
    default = threads().value
    alter(str(node), AlterConfigOpType.SET, "log.cleaner.backoff.ms", "16000", ConfigResource.Type.BROKER)
    found = until(lambda: threads() if threads().value == "16000" else None, "the value set")
    assert found.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    alter(str(node), AlterConfigOpType.DELETE, "log.cleaner.backoff.ms", None, ConfigResource.Type.BROKER)
    until(lambda: threads().value == default, "the default back")


def test_list_offsets():
    topic = new_topic("offsets")
    stamps = [1_600_000_002_000, 1_600_000_009_000, 1_600_000_005_000]
    deliver([{"topic": topic, "value": b"x", "timestamp": stamp} for stamp in stamps])
    part = TopicPartition(topic, 0)
    query = lambda spec: only(admin.list_offsets({part: spec}, isolation_level=IsolationLevel.READ_COMMITTED))
    assert query(OffsetSpec.earliest()).offset == 0
    assert query(OffsetSpec.latest()).offset == 3
    top = query(OffsetSpec.max_timestamp())
    assert (top.offset, top.timestamp) == (1, 1_600_000_009_000), top
    assert query(OffsetSpec.for_timestamp(1_600_000_003_000)).offset == 1


def test_delete_records():
    topic = new_topic("trimmed")
    fill(topic, [b"%d" % number for number in range(10)])
    assert only(admin.delete_records([TopicPartition(topic, 0, 6)])).low_watermark == 6
    assert read(topic, 1)[0].offset() == 6
    assert only(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 10


def test_delete_records_past_the_end():
    topic = new_topic("past")
    fill(topic, [b"x"])
    call = lambda: only(admin.delete_records([TopicPartition(topic, 0, 100)]))
    assert code(call) == KafkaError.OFFSET_OUT_OF_RANGE


def test_list_and_describe_groups():
    topic, group = new_topic("members", partitions=2), unique("members")
    fill(topic, [b"x"])
    reader = consumer(group, client_id="reader-one")
    reader.subscribe([topic])
    take(reader, 1)
    listed = {entry.group_id: entry for entry in admin.list_consumer_groups().result(timeout=20).valid}
    assert listed[group].state == ConsumerGroupState.STABLE, listed[group].state
    found = only(admin.describe_consumer_groups([group]))
    (member,) = found.members
    assert found.state == ConsumerGroupState.STABLE and found.partition_assignor == "range"
    assert member.client_id == "reader-one" and len(member.assignment.topic_partitions) == 2
    reader.close()
    described = lambda: only(admin.describe_consumer_groups([group])).state
    until(lambda: described() == ConsumerGroupState.EMPTY, "an empty group")


def test_delete_group():
    topic, group = new_topic("deleted"), unique("deleted")
    reader = consumer(group)
    reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    reader.close()
    only(admin.delete_consumer_groups([group]))
    assert group not in {entry.group_id for entry in admin.list_consumer_groups().result(timeout=20).valid}
    assert code(lambda: only(admin.delete_consumer_groups([group]))) == KafkaError.GROUP_ID_NOT_FOUND


def test_delete_group_with_members():
    topic, group = new_topic("busy"), unique("busy")
    fill(topic, [b"x"])
    reader = consumer(group)
    reader.subscribe([topic])
    take(reader, 1)
    assert code(lambda: only(admin.delete_consumer_groups([group]))) == KafkaError.NON_EMPTY_GROUP
    reader.close()


def test_alter_and_list_group_offsets():
    topic, group = new_topic("moved"), unique("moved")
    fill(topic, [b"%d" % number for number in range(10)])
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    only(admin.alter_consumer_group_offsets([wanted]))
    found = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(part.topic, part.offset) for part in found.topic_partitions] == [(topic, 7)]
    reader = consumer(group)
    reader.subscribe([topic])
    assert take(reader, 1)[0].value() == b"7"
    reader.close()


def test_alter_offsets_of_a_group_with_members():
    topic, group = new_topic("held"), unique("held")
    fill(topic, [b"x"])
    reader = consumer(group)
    reader.subscribe([topic])
    take(reader, 1)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    (part,) = only(admin.alter_consumer_group_offsets([wanted])).topic_partitions
    assert part.error.code() == KafkaError.UNKNOWN_MEMBER_ID, part
    reader.close()


def test_scram_credentials_of_a_user():
    user, mechanism = unique("user"), ScramMechanism.SCRAM_SHA_512
    upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 8192), b"pencil")
    only(admin.alter_user_scram_credentials([upsertion]))
    described = until(lambda: scram_credentials(user), "the credential")
    assert [(info.mechanism, info.iterations) for info in described] == [(mechanism, 8192)]
    few = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4095), b"pencil")
    assert code(lambda: only(admin.alter_user_scram_credentials([few]))) == KafkaError.UNACCEPTABLE_CREDENTIAL
    deletion = UserScramCredentialDeletion(user, mechanism)
    only(admin.alter_user_scram_credentials([deletion]))
    until(lambda: not scram_credentials(user), "the credential gone")
    assert code(lambda: only(admin.alter_user_scram_credentials([deletion]))) == KafkaError.RESOURCE_NOT_FOUND


def scram_credentials(user):
    """One user's entry in the description of all users."""
    described = admin.describe_user_scram_credentials().result(timeout=20)
    return described[user].scram_credential_infos if user in described else []
