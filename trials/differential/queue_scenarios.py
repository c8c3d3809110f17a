"""What members of a share group read and acknowledge."""

import time

from data_scenarios import ABSENT_ID, TIME, create, deleted, produced
from group_scenarios import share_beat
from transaction_scenarios import added, ended, written
from wire import batch

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GAP = 0
OF_GROUP = 32
# To acquire as many records as are wanted, not whole batches.
RECORDS = 1
# How long a fetch waits for records that are there, and for those that are not.
SOME_MS, NONE_MS = 3000, 200


def settings(k, group, **values):
    configs = [{"Name": name.replace("_", "."), "ConfigOperation": 0, "Value": value} for name, value in values.items()]
    k.good("IncrementalAlterConfigs", Resources=[{"ResourceType": OF_GROUP, "ResourceName": group, "Configs": configs}])


class Member:
    """A member of a share group, with a connection and a share session of its own."""

    def __init__(self, k, group, topic, topic_id):
        self.k, self.group, self.topic, self.topic_id = k, group, topic, topic_id
        self.id, self.channel, self.session = k.new_id(), k.another(), 0
        answer = share_beat(k, group, self.id, 0, [topic])
        # The state of its partitions is made after the answer; from then on there is an assignment.
        time.sleep(1)
        self.epoch = share_beat(k, group, self.id, answer["MemberEpoch"])["MemberEpoch"]

    def topics(self, acknowledged, partitions, topic_id=None):
        parts = []
        for partition in partitions:
            batches = [{"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": types} for first, last, types in acknowledged]
            parts.append({"PartitionIndex": partition, "AcknowledgementBatches": batches})
        return [{"TopicId": topic_id or self.topic_id, "Partitions": parts}] if parts else []

    def fetch(self, *acknowledged, partitions=(0,), topic_id=None, session=None, **more):
        """Each acknowledgement is a first offset, a last one, and their types."""
        values = {"MaxWaitMs": SOME_MS, "MinBytes": 1, "MaxBytes": 1 << 20, "MaxRecords": 100, "BatchSize": 100, **more}
        topics = self.topics(acknowledged, partitions, topic_id)
        values = {"GroupId": self.group, "MemberId": self.id, "Topics": topics, **values}
        answer = self.k.ask("ShareFetch", channel=self.channel, ShareSessionEpoch=self.session if session is None else session, **values)
        self.advance(answer, session)
        return answer

    def acknowledge(self, *acknowledged, partitions=(0,), topic_id=None, session=None, **more):
        values = {"GroupId": self.group, "MemberId": self.id, "Topics": self.topics(acknowledged, partitions, topic_id), **more}
        answer = self.k.ask("ShareAcknowledge", channel=self.channel, ShareSessionEpoch=self.session if session is None else session, **values)
        self.advance(answer, session)
        return answer

    def advance(self, answer, session):
        """A request of the session's epoch is followed by the next, also where Apache Kafka then fails."""
        if session is None and answer["ErrorCode"] in (0, -1):
            self.session += 1

    def end(self):
        """Gives back what it has acquired."""
        self.acknowledge(partitions=(), session=-1)
        self.session = 0

    def leave(self):
        share_beat(self.k, self.group, self.id, -1)


def queue(k):
    """Records of a share group: acquired, acknowledged in every way, good and bad, and left to others."""
    topic, topic_id = create(k)
    for number in range(6):
        produced(k, topic, topic_id, batch([b"%d" % number] * 3, timestamp=TIME + number))
    produced(k, topic, topic_id, batch([b"x" * 5000] * 2, timestamp=TIME), partition=1)
    for part in (acknowledgements, limits, left_to_another, moved_back):
        group = k.named(part.__name__)
        settings(k, group, share_auto_offset_reset="earliest")
        part(k, lambda: Member(k, group, topic, topic_id))
        described(k, group, topic)
    deletions(k)
    of_transactions(k)


def described(k, group, topic):
    k.ask("DescribeShareGroupOffsets", Groups=[{"GroupId": group, "Topics": [{"TopicName": topic, "Partitions": [0, 1]}]}])


def sessions(k, member):
    """Sessions that are not there, and requests that open none."""
    for epoch in (5, -1, -2, 1):
        member.fetch(session=epoch, MaxWaitMs=NONE_MS)
        member.acknowledge((0, 0, [ACCEPT]), session=epoch)
    member.acknowledge((0, 0, [ACCEPT]), session=0)
    for id in ("", "stranger", k.new_id()):
        member.fetch(session=1, MemberId=id, MaxWaitMs=NONE_MS)
    for group in ("", k.named("absent"), k.named("share")):
        member.fetch(session=1, GroupId=group, MaxWaitMs=NONE_MS)
    member.fetch((0, 0, [ACCEPT]), session=0, MaxWaitMs=NONE_MS)
    for wrong in ({"MaxRecords": 0}, {"MaxRecords": -1}, {"BatchSize": 0}, {"BatchSize": -1}, {"ShareAcquireMode": 2}, {"ShareAcquireMode": -1}):
        member.fetch(session=7, MaxWaitMs=NONE_MS, **wrong)


def acknowledgements(k, join):
    """Of what is acquired and of what is not, by a fetch and alone."""
    member = join()
    sessions(k, member)
    member.fetch(MaxRecords=5, BatchSize=5)
    member.fetch(session=0, partitions=(), MaxWaitMs=NONE_MS)
    member.session = 1
    member.fetch(MaxRecords=4, BatchSize=2, ShareAcquireMode=RECORDS)
    member.acknowledge((0, 1, [ACCEPT]), (2, 2, [RELEASE]))
    member.acknowledge((0, 1, [ACCEPT]))
    member.acknowledge((3, 5, [ACCEPT, REJECT, RELEASE]))
    for types in ([], [5], [-1], [ACCEPT, ACCEPT], [RENEW]):
        member.acknowledge((6, 6, types))
    for batches in ([(8, 7, [ACCEPT])], [(6, 6, [ACCEPT]), (6, 6, [ACCEPT])], [(7, 8, [ACCEPT]), (6, 6, [ACCEPT])], [(100, 101, [ACCEPT])], [(-1, 0, [ACCEPT])]):
        member.acknowledge(*batches)
    member.acknowledge((0, 0, [ACCEPT]), partitions=(1,))
    member.acknowledge((0, 0, [ACCEPT]), partitions=(7,))
    member.acknowledge((6, 6, [RENEW]), IsRenewAck=True)
    member.acknowledge((6, 6, [ACCEPT]), IsRenewAck=True)
    member.fetch((6, 6, [RENEW]), IsRenewAck=True, MaxWaitMs=NONE_MS)
    member.fetch((6, 6, [RENEW]), IsRenewAck=True, MaxWaitMs=0, MinBytes=0, MaxBytes=0, MaxRecords=0, BatchSize=0)
    member.fetch((2, 2, [ACCEPT]), (8, 8, [GAP]))
    member.fetch((2, 2, [ACCEPT]), (5, 5, [REJECT]), MaxRecords=1, BatchSize=1)
    member.fetch(MaxRecords=1, BatchSize=1, ShareAcquireMode=RECORDS)
    member.fetch(MaxRecords=1000, BatchSize=1)
    member.fetch(partitions=(7,), MaxWaitMs=NONE_MS)
    member.fetch(session=99, MaxWaitMs=NONE_MS)
    member.acknowledge((6, 6, [ACCEPT]), session=99)
    member.fetch(partitions=(), MaxWaitMs=NONE_MS)
    member.acknowledge((0, 0, [ACCEPT]), topic_id=ABSENT_ID)
    member.fetch(topic_id=ABSENT_ID, MaxWaitMs=NONE_MS)
    member.end()
    member.leave()


def limits(k, join):
    """Of bytes: of a batch that does not fit, and of nothing at all. Partitions come into a session and go."""
    member = join()
    member.fetch()
    for room in (100, 6000, 0):
        member.fetch(partitions=(1,), MaxBytes=room, MaxWaitMs=NONE_MS)
    member.fetch(partitions=(), MinBytes=1 << 20, MaxBytes=1 << 20, MaxWaitMs=NONE_MS)
    member.fetch(partitions=(), MinBytes=1 << 20, MaxBytes=1, MaxWaitMs=NONE_MS)
    member.acknowledge((0, 1, [RELEASE]), partitions=(1,))
    forgotten = [{"TopicId": member.topic_id, "Partitions": [1]}]
    member.fetch(partitions=(), ForgottenTopicsData=forgotten, MaxWaitMs=NONE_MS)
    member.acknowledge((0, 1, [ACCEPT]), partitions=(1,))
    member.fetch(partitions=(1,))
    member.end()
    member.leave()


def left_to_another(k, join):
    """What a session leaves goes to another, with what was released; until the group has no more of it."""
    one, other = join(), join()
    one.fetch(MaxRecords=9, BatchSize=9)
    other.fetch(MaxRecords=3, BatchSize=3)
    other.acknowledge((6, 8, [ACCEPT]))
    one.acknowledge((0, 0, [ACCEPT]), session=-1)
    one.session = 0
    # The rest is given back behind the answer.
    time.sleep(0.5)
    other.fetch(partitions=())
    other.acknowledge((1, 8, [RELEASE]), (12, 17, [RELEASE]))
    for _ in range(9):
        answer = other.fetch(partitions=(), MaxWaitMs=NONE_MS)
        for topic in answer["Responses"]:
            for part in topic["Partitions"]:
                for found in part["AcquiredRecords"]:
                    other.acknowledge((found["FirstOffset"], found["LastOffset"], [RELEASE]), partitions=(part["PartitionIndex"],))
    other.fetch(partitions=(), MaxWaitMs=NONE_MS)
    for member in (one, other):
        member.end()
        member.leave()


def moved_back(k, join):
    """A group is set back while a session of a member that has left is still open."""
    one = join()
    group, topic, topic_id = one.group, one.topic, one.topic_id
    one.fetch()
    one.acknowledge((0, 17, [ACCEPT]))
    offsets = [{"TopicName": topic, "Partitions": [{"PartitionIndex": 0, "StartOffset": 3}]}]
    k.ask("AlterShareGroupOffsets", GroupId=group, Topics=offsets)
    one.leave()
    k.ask("AlterShareGroupOffsets", GroupId=group, Topics=offsets)
    described(k, group, topic)
    other = join()
    other.fetch(MaxWaitMs=NONE_MS)
    produced(k, topic, topic_id, batch([b"new"], timestamp=TIME))
    other.fetch(partitions=())
    other.acknowledge((18, 18, [ACCEPT]))
    other.fetch(partitions=())
    described(k, group, topic)
    for member in (one, other):
        member.end()
    other.leave()


def deletions(k):
    """Of records that are acquired, and of the topic."""
    topic, topic_id = create(k, "short", partitions=1)
    for number in range(3):
        produced(k, topic, topic_id, batch([b"%d" % number] * 2, timestamp=TIME))
    group = k.named("deletions")
    settings(k, group, share_auto_offset_reset="earliest")
    member = Member(k, group, topic, topic_id)
    member.fetch(BatchSize=2)
    deleted(k, topic, 0, 3)
    member.acknowledge((0, 1, [ACCEPT]))
    member.acknowledge((2, 5, [GAP, ACCEPT, RELEASE, ACCEPT]))
    member.fetch(partitions=())
    k.ask("DeleteTopics", TimeoutMs=5000, Topics=[{"Name": topic}], TopicNames=[topic])
    time.sleep(0.5)
    member.fetch(partitions=(), MaxWaitMs=NONE_MS)
    member.acknowledge((4, 4, [ACCEPT]))
    member.end()
    member.leave()


def of_transactions(k):
    """Committed records, aborted ones and their markers, by both levels of isolation."""
    topic, topic_id = create(k, "txns", partitions=1)
    name = k.named("writer")
    for is_committed in (True, False):
        made = k.good("InitProducerId", TransactionalId=name, TransactionTimeoutMs=60_000)
        producer, epoch = made["ProducerId"], made["ProducerEpoch"]
        added(k, name, producer, epoch, topic)
        written(k, topic, topic_id, producer, epoch, 0, name)
        ended(k, name, producer, epoch, is_committed)
    # Its answer comes when the marker of the last one is written.
    k.good("InitProducerId", TransactionalId=name, TransactionTimeoutMs=60_000)
    produced(k, topic, topic_id, batch([b"plain"], timestamp=TIME))
    for level in ("read_committed", "read_uncommitted"):
        group = k.named(level.replace("_", "-"))
        settings(k, group, share_auto_offset_reset="earliest", share_isolation_level=level)
        member = Member(k, group, topic, topic_id)
        member.fetch()
        member.fetch((0, 6, [ACCEPT, ACCEPT, GAP, RELEASE, RELEASE, GAP, REJECT]))
        member.fetch(partitions=(), MaxWaitMs=NONE_MS)
        described(k, group, topic)
        member.end()
        member.leave()
