"""Groups of every protocol, and their offsets."""

import struct
import time

from data_scenarios import ABSENT_ID, TIME, create, produced
from wire import batch


def committed(k, group, topic, topic_id, offset=3, partition=0, epoch=-1, member="", **more):
    metadata = more.pop("CommittedMetadata", "note")
    part = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedLeaderEpoch": 0, "CommittedMetadata": metadata}
    topics = [{"Name": topic, "TopicId": topic_id, "Partitions": [part]}]
    return k.ask("OffsetCommit", GroupId=group, GenerationIdOrMemberEpoch=epoch, MemberId=member, Topics=topics, **more)


def offsets_of(k, group, topic, topic_id, partitions=(0, 1), member=None, epoch=-1, stable=False):
    """Of one topic, and of all."""
    for is_one in (True, False):
        topics = [{"Name": topic, "TopicId": topic_id, "PartitionIndexes": list(partitions)}] if is_one else None
        # Version 1 has no null.
        old = [{"Name": topic, "PartitionIndexes": list(partitions)}] if is_one else [] if k.version("OffsetFetch") == 1 else None
        one = {"GroupId": group, "MemberId": member, "MemberEpoch": epoch, "Topics": topics}
        k.ask("OffsetFetch", GroupId=group, Topics=old, Groups=[one], RequireStable=stable)


def found(k, name, kind=0):
    k.ask("FindCoordinator", Key=name, KeyType=kind, CoordinatorKeys=[name])


def described(k, *groups):
    """By every kind's own API, and in the lists."""
    names = list(groups)
    k.ask("DescribeGroups", Groups=names, IncludeAuthorizedOperations=True)
    k.ask("ConsumerGroupDescribe", GroupIds=names, IncludeAuthorizedOperations=True)
    k.ask("ShareGroupDescribe", GroupIds=names)
    k.ask("ListGroups")


def offsets(k):
    """Offsets of a group without members: committed, fetched, deleted."""
    topic, topic_id = create(k)
    group = k.named("offsets")
    for kind in (0, 1, 2, 3, -1):
        found(k, group, kind)
    found(k, "")
    found(k, f"{group}:{topic_id}:0", 2)
    k.ask("FindCoordinator", at=max(4, k.version("FindCoordinator")), CoordinatorKeys=[])
    k.ask("FindCoordinator", at=max(4, k.version("FindCoordinator")), CoordinatorKeys=[group, group, ""])
    offsets_of(k, group, topic, topic_id)
    committed(k, group, topic, topic_id)
    committed(k, group, topic, topic_id, offset=-1)
    committed(k, group, topic, topic_id, offset=-5, partition=1)
    committed(k, group, topic, topic_id, partition=7)
    committed(k, group, topic, topic_id, partition=-1)
    committed(k, group, topic, topic_id, CommittedMetadata="x" * 4097)
    committed(k, group, topic, topic_id, partition=1, CommittedMetadata=None)
    committed(k, group, topic, topic_id, epoch=0)
    committed(k, group, topic, topic_id, epoch=5, member="stranger")
    committed(k, group, topic, topic_id, epoch=-1, member="stranger")
    committed(k, group, topic, topic_id, GroupInstanceId="instance")
    committed(k, group, k.named("absent"), ABSENT_ID)
    committed(k, "", topic, topic_id)
    committed(k, group, "", topic_id)
    k.ask("OffsetCommit", GroupId=group, Topics=[])
    offsets_of(k, group, topic, topic_id)
    offsets_of(k, group, topic, topic_id, (0, 0, 9, -1))
    offsets_of(k, group, k.named("absent"), ABSENT_ID)
    offsets_of(k, "", topic, topic_id)
    offsets_of(k, group, topic, topic_id, member="stranger", epoch=3)
    offsets_of(k, group, topic, topic_id, stable=True)
    described(k, group, k.named("absent"), "")
    for target, partitions in ((topic, [0, 9]), (k.named("absent"), [0]), (topic, []), (topic, [1])):
        k.ask("OffsetDelete", GroupId=group, Topics=[{"Name": target, "Partitions": [{"PartitionIndex": index} for index in partitions]}])
    k.ask("OffsetDelete", GroupId=k.named("absent"), Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}])
    k.ask("OffsetDelete", GroupId="", Topics=[])
    offsets_of(k, group, topic, topic_id)
    k.ask("DeleteGroups", GroupsNames=[group, k.named("absent"), "", group])
    k.ask("DeleteGroups", GroupsNames=[])
    described(k, group)


def subscription(topic):
    """ConsumerProtocolSubscription, version 0."""
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)


def joined(k, group, member="", protocols=("range",), kind="consumer", instance=None, channel=None, topic="topic", **more):
    values = {"SessionTimeoutMs": 30_000, "RebalanceTimeoutMs": 2000, **more}
    all_protocols = [{"Name": name, "Metadata": subscription(topic)} for name in protocols]
    return k.begin("JoinGroup", channel, GroupId=group, MemberId=member, GroupInstanceId=instance, ProtocolType=kind, Protocols=all_protocols, **values)


def enter(k, group, instance=None, channel=None, **more):
    """The answer to a member that joins, by the member id that it may be given first."""
    answer = joined(k, group, instance=instance, channel=channel, **more)()
    if answer["ErrorCode"] == 79:
        answer = joined(k, group, answer["MemberId"], instance=instance, channel=channel, **more)()
    return answer


def synced(k, group, generation, member, assignments=(), instance=None, channel=None, **more):
    given = [{"MemberId": name, "Assignment": data} for name, data in assignments]
    values = {"ProtocolType": "consumer", "ProtocolName": "range", **more}
    return k.begin("SyncGroup", channel, GroupId=group, GenerationId=generation, MemberId=member, GroupInstanceId=instance, Assignments=given, **values)


def beat(k, group, generation, member, instance=None):
    return k.ask("Heartbeat", GroupId=group, GenerationId=generation, MemberId=member, GroupInstanceId=instance)


def left(k, group, *members):
    """Leaves with each (member id, instance)."""
    all_members = [{"MemberId": name, "GroupInstanceId": instance, "Reason": "done"} for name, instance in members]
    return k.ask("LeaveGroup", GroupId=group, MemberId=members[0][0] if members else "", Members=all_members)


def classic(k):
    """A classic group of one and of two members, with what members and strangers may do wrong."""
    topic, topic_id = create(k)
    group = k.named("classic")
    joined(k, "")()
    joined(k, group, protocols=())()
    joined(k, group, kind="")()
    joined(k, group, "stranger")()
    joined(k, group, SessionTimeoutMs=1)()
    joined(k, group, SessionTimeoutMs=1 << 30)()
    first = enter(k, group)
    generation, member = first["GenerationId"], first["MemberId"]
    described(k, group)
    beat(k, group, generation, member)
    synced(k, group, generation, "stranger")()
    synced(k, group, generation + 1, member)()
    synced(k, group, generation, member, ProtocolName="other")()
    synced(k, group, generation, member, ProtocolType="connect")()
    synced(k, "", generation, member)()
    synced(k, group, generation, member, [(member, b"\0\0\0\0\0\0\xff\xff\xff\xff")])()
    synced(k, group, generation, member)()
    described(k, group)
    for state in ("Stable", "stable", "Empty", "Nonsense"):
        k.ask("ListGroups", StatesFilter=[state])
    for kind in ("classic", "Consumer", "share", "streams", "nonsense"):
        k.ask("ListGroups", TypesFilter=[kind])
    beat(k, group, generation, member)
    beat(k, group, generation + 1, member)
    beat(k, group, generation, "stranger")
    beat(k, "", generation, member)
    beat(k, k.named("absent"), 0, member)
    committed(k, group, topic, topic_id, epoch=generation, member=member)
    committed(k, group, topic, topic_id, epoch=generation + 1, member=member)
    committed(k, group, topic, topic_id, epoch=generation, member="stranger")
    committed(k, group, topic, topic_id)
    offsets_of(k, group, topic, topic_id, member=member, epoch=generation)
    k.ask("OffsetDelete", GroupId=group, Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}])
    k.ask("DeleteGroups", GroupsNames=[group])
    joined(k, group, protocols=("other",))()
    joined(k, group, kind="connect")()
    second_of_two(k, group, member)
    left(k, group)
    left(k, group, ("stranger", None))
    left(k, "", (member, None))
    left(k, group, (member, None))
    left(k, group, (member, None))
    described(k, group)
    k.ask("DeleteGroups", GroupsNames=[group])


def second_of_two(k, group, first):
    """A second member makes the first one join again."""
    channel = k.another()
    second = joined(k, group, channel=channel)()
    waiting = joined(k, group, second["MemberId"], channel=channel) if second["ErrorCode"] == 79 else None
    again = joined(k, group, first)()
    if waiting:
        second = waiting()
    generation = again["GenerationId"]
    described(k, group)
    follower = synced(k, group, generation, second["MemberId"], channel=channel)
    synced(k, group, generation, first, [(first, b"one"), (second["MemberId"], b"two")])()
    follower()
    described(k, group)
    left(k, group, (second["MemberId"], None))
    beat(k, group, generation, first)
    joined(k, group, first)()
    synced(k, group, generation + 1, first, [(first, b"all")])()


def static(k):
    """Static members: replaced, fenced, removed."""
    group = k.named("static")
    one = enter(k, group, instance="one")
    generation, member = one["GenerationId"], one["MemberId"]
    synced(k, group, generation, member, [(member, b"a")], instance="one")()
    beat(k, group, generation, member, instance="one")
    beat(k, group, generation, "stranger", instance="one")
    beat(k, group, generation, member, instance="other")
    described(k, group)
    again = enter(k, group, instance="one")
    synced(k, group, again["GenerationId"], again["MemberId"], instance="one")()
    beat(k, group, again["GenerationId"], member, instance="one")
    beat(k, group, again["GenerationId"], again["MemberId"], instance="one")
    joined(k, group, member, instance="one")()
    joined(k, group, "stranger", instance="new")()
    described(k, group)
    left(k, group, (member, "one"), ("", "nobody"))
    left(k, group, ("", "one"))
    described(k, group)


def consumer_beat(k, group, member, epoch, topic=None, owned=None, channel=None, **more):
    values = {"RebalanceTimeoutMs": 5000 if epoch <= 0 else -1, "SubscribedTopicNames": None if topic is None else [topic], "TopicPartitions": owned}
    # The first version has members that do not name themselves.
    return k.ask("ConsumerGroupHeartbeat", channel, GroupId=group, MemberId=member, MemberEpoch=epoch, **(values | more))


def consumer(k):
    """A group of the consumer protocol: joins, wrong epochs, commits, expressions, static members, leaving."""
    topic, topic_id = create(k)
    group, member = k.named("consumer"), k.named("member")
    consumer_beat(k, "", member, 0, topic, [])
    consumer_beat(k, group, "", 0, topic, [], at=1)
    consumer_beat(k, group, member, 0, None, [])
    consumer_beat(k, group, member, 0, topic, None)
    consumer_beat(k, group, member, 0, topic, [{"TopicId": topic_id, "Partitions": [0]}])
    consumer_beat(k, group, member, 0, topic, [], RebalanceTimeoutMs=-1)
    consumer_beat(k, group, member, 0, topic, [], ServerAssignor="nonsense")
    consumer_beat(k, group, member, 0, topic, [], InstanceId="")
    consumer_beat(k, group, member, 0, topic, [], RackId="")
    consumer_beat(k, group, member, -2, topic, [])
    consumer_beat(k, group, member, -3, topic, [])
    consumer_beat(k, group, member, 5, topic, [])
    consumer_beat(k, group, member, -1)
    consumer_beat(k, group, member, 0, None, [], SubscribedTopicRegex="(", at=1)
    joined_at = consumer_beat(k, group, member, 0, topic, [])
    epoch = joined_at["MemberEpoch"]
    described(k, group)
    consumer_beat(k, group, member, epoch)
    owned = [{"TopicId": topic_id, "Partitions": [0, 1]}]
    consumer_beat(k, group, member, epoch, None, owned)
    consumer_beat(k, group, member, epoch + 1)
    consumer_beat(k, group, member, max(epoch - 1, 1))
    consumer_beat(k, group, "stranger", epoch)
    consumer_beat(k, group, member, epoch, topic)
    consumer_beat(k, group, member, epoch, ServerAssignor="range")
    consumer_beat(k, group, member, epoch, SubscribedTopicNames=[k.named("absent")])
    described(k, group)
    committed(k, group, topic, topic_id, epoch=epoch, member=member)
    committed(k, group, topic, topic_id, epoch=epoch + 9, member=member)
    committed(k, group, topic, topic_id, epoch=epoch, member="stranger")
    committed(k, group, topic, topic_id)
    offsets_of(k, group, topic, topic_id, member=member, epoch=epoch)
    offsets_of(k, group, topic, topic_id, member=member, epoch=epoch + 9)
    offsets_of(k, group, topic, topic_id, member="stranger", epoch=epoch)
    k.ask("OffsetDelete", GroupId=group, Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}])
    k.ask("DeleteGroups", GroupsNames=[group])
    joined(k, group)()
    beat(k, group, epoch, member)
    left(k, group, (member, None))
    k.ask("ListGroups", TypesFilter=["consumer"])
    k.ask("ShareGroupHeartbeat", GroupId=group, MemberId=member, MemberEpoch=0, SubscribedTopicNames=[topic])
    consumer_static(k, topic)
    consumer_beat(k, group, member, -1)
    consumer_beat(k, group, member, -1)
    described(k, group)
    k.ask("DeleteGroups", GroupsNames=[group])


def consumer_static(k, topic):
    """A static member that goes for a while, comes back under another id, and goes for good."""
    group, old, new = k.named("consumer-static"), k.named("old"), k.named("new")
    consumer_beat(k, group, old, 0, topic, [], InstanceId="one")
    consumer_beat(k, group, new, 0, topic, [], InstanceId="one")
    consumer_beat(k, group, old, -2, InstanceId="one")
    consumer_beat(k, group, old, -2, InstanceId="two")
    consumer_beat(k, group, new, 0, topic, [], InstanceId="one")
    consumer_beat(k, group, old, 1, InstanceId="one")
    described(k, group)
    left(k, group, ("", "one"))
    described(k, group)
    consumer_beat(k, group, new, -1, InstanceId="one")


def share_beat(k, group, member, epoch, topics=None, **more):
    return k.ask("ShareGroupHeartbeat", GroupId=group, MemberId=member, MemberEpoch=epoch, SubscribedTopicNames=topics, **more)


def share(k):
    """A share group: membership, offsets, and its state's APIs."""
    topic, topic_id = create(k, partitions=1)
    produced(k, topic, topic_id, batch([b"a", b"b", b"c"], timestamp=TIME))
    group, member = k.named("share"), k.new_id()
    share_beat(k, "", member, 0, [topic])
    share_beat(k, group, "", 0, [topic])
    share_beat(k, group, member, 0, None)
    share_beat(k, group, member, 0, [])
    share_beat(k, group, member, 0, [topic], RackId="")
    share_beat(k, group, member, -2, [topic])
    share_beat(k, group, member, 5, [topic])
    share_beat(k, group, member, -1)
    answer = share_beat(k, group, member, 0, [topic])
    # The state of its partitions is made after the answer; from then on there is an assignment.
    time.sleep(1)
    epoch = share_beat(k, group, member, answer["MemberEpoch"])["MemberEpoch"]
    share_beat(k, group, member, epoch)
    share_beat(k, group, member, epoch + 1)
    share_beat(k, group, "stranger", epoch)
    described(k, group)
    k.ask("DeleteGroups", GroupsNames=[group])
    committed(k, group, topic, topic_id)
    offsets_of(k, group, topic, topic_id)
    joined(k, group)()
    consumer_beat(k, group, member, 0, topic, [])
    share_offsets(k, group, topic)
    share_state(k, topic_id)
    share_beat(k, group, member, -1)
    share_beat(k, group, member, -1)
    described(k, group)
    share_offsets(k, group, topic)
    k.ask("DeleteShareGroupOffsets", GroupId=group, Topics=[{"TopicName": topic}, {"TopicName": k.named("absent")}])
    k.ask("DeleteGroups", GroupsNames=[group])
    described(k, group)


def share_offsets(k, group, topic):
    asked = [
        [{"TopicName": topic, "Partitions": [0]}],
        [{"TopicName": k.named("absent"), "Partitions": [0]}],
        [],
        None,
    ]
    for topics in asked:
        k.ask("DescribeShareGroupOffsets", Groups=[{"GroupId": group, "Topics": topics}])
    k.ask("DescribeShareGroupOffsets", Groups=[{"GroupId": k.named("absent"), "Topics": None}, {"GroupId": "", "Topics": None}])
    for target, partition in ((topic, 0), (topic, 9), (k.named("absent"), 0)):
        part = {"PartitionIndex": partition, "StartOffset": 1}
        k.ask("AlterShareGroupOffsets", GroupId=group, Topics=[{"TopicName": target, "Partitions": [part]}])
    k.ask("DeleteShareGroupOffsets", GroupId=k.named("absent"), Topics=[{"TopicName": topic}])


def share_state(k, topic_id):
    """The APIs of the share coordinator, which leaders of partitions use."""
    group = k.named("state")

    def state(api, partition=0, topic=topic_id, named=group, **part):
        return k.ask(api, GroupId=named, Topics=[{"TopicId": topic, "Partitions": [{"Partition": partition, **part}]}])

    batches = [{"FirstOffset": 2, "LastOffset": 4, "DeliveryState": 0, "DeliveryCount": 1}]
    state("ReadShareGroupState", LeaderEpoch=0)
    state("ReadShareGroupStateSummary", LeaderEpoch=0)
    state("WriteShareGroupState", StateEpoch=0, LeaderEpoch=0, StartOffset=2, StateBatches=batches)
    state("InitializeShareGroupState", StateEpoch=1, StartOffset=2)
    state("InitializeShareGroupState", StateEpoch=0, StartOffset=0)
    state("WriteShareGroupState", StateEpoch=1, LeaderEpoch=2, StartOffset=2, StateBatches=batches)
    state("WriteShareGroupState", StateEpoch=0, LeaderEpoch=2, StartOffset=2, StateBatches=batches)
    state("WriteShareGroupState", StateEpoch=1, LeaderEpoch=1, StartOffset=2, StateBatches=batches)
    state("ReadShareGroupState", LeaderEpoch=2)
    state("ReadShareGroupState", LeaderEpoch=1)
    state("ReadShareGroupStateSummary", LeaderEpoch=2)
    for wrong in ({"partition": 7}, {"partition": -1}, {"topic": ABSENT_ID}, {"named": ""}):
        state("ReadShareGroupState", LeaderEpoch=2, **wrong)
        state("InitializeShareGroupState", StateEpoch=1, StartOffset=2, **wrong)
        state("DeleteShareGroupState", **wrong)
    state("DeleteShareGroupState")
    state("ReadShareGroupState", LeaderEpoch=2)
