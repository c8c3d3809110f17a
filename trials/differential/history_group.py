"""One group in a history, as Apache Kafka's answers describe it. Each step is a generator: it yields a request, and receives Apache
Kafka's answer. A step that does not apply, such as a heartbeat of a member that never joined, yields nothing.
"""

import os
import struct

from answers import Each
from codec import NO_ID
from pair import APIS, Channel
from parallel import ANSWER_S, Sent

# Sessions that end in a pause; longer ones are for a busy machine.
SESSION_S = int(os.environ.get("SESSION_S", "20"))
# A session timeout or rebalance timeout that ends in a pause, and one that never ends.
SHORT_MS, LONG_MS = SESSION_S * 1000, 1_000_000
NO_SUCH = "stranger"
MEMBER_ID_REQUIRED = 79
# The second of two members with this instance id takes over from the first.
INSTANCES = {3: "one", 4: "two", 5: "one"}


def assignment(topics):
    """ConsumerProtocolAssignment, version 0."""
    parts = (struct.pack(f">h{len(name)}si{len(ids)}i", len(name), name.encode(), len(ids), *ids) for name, ids in topics.items())
    return struct.pack(">hi", 0, len(topics)) + b"".join(parts) + struct.pack(">i", -1)


NO_EPOCH, FIRST_EPOCH, NOTHING = Each(-1, -1), Each(0, 0), Each([], [])
TASKS = ("ActiveTasks", "StandbyTasks", "WarmupTasks")
NO_TASKS = {name: NOTHING for name in TASKS}


class Member:
    """A member. Its epoch and what it owns are each node's: which member has what may depend on the node."""

    def __init__(self, number, group):
        self.number = number
        self.id, self.epoch, self.protocol = "", NO_EPOCH, None
        self.name = f"m{number}-{group}"
        self.others, self.owned, self.tasks = [], NOTHING, NO_TASKS
        self.is_alive, self.channel, self.regex = True, None, None
        # Whether its last request was to leave, and refused: Apache Kafka then has no session for it until its next heartbeat.
        self.is_staying = False


class Group:
    """A group, its members by number and its topics."""

    def __init__(self, pair, kind, name, shared):
        self.pair, self.kind, self.name = pair, kind, name
        self.group = f"{kind}-{name}"
        self.channel = Channel(pair, answer_s=ANSWER_S)
        self.channels = [self.channel]
        self.members = {number: Member(number, name) for number in range(6)}
        # The ids of topics by the names that steps use: those of all groups, and those of this group alone.
        self.ids = dict(shared)
        self.busy = {}
        self.producer = None
        self.has_transaction = False
        # Those by which members have asked to join.
        self.protocols = set()
        # Members that gave up partitions in a heartbeat that was refused.
        self.unheard = set()
        # Members whose leave was refused, until they join or leave.
        self.held = set()
        self.is_shutting_down = False
        # Whether a member has replaced its expression by another one.
        self.has_new_regex = False
        # Whether a join by the id of a member that never was has been refused, once members of the newer protocols had joined.
        self.has_refused_join = False
        # Whether a topic was deleted while nothing could be written, as the steps of the phase are played.
        self.is_refused, self.has_lost_topics = False, False

    def end(self):
        for channel in self.channels:
            channel.end()

    # -- requests

    def send(self, api, channel=None, at=None, **values):
        version = APIS[api].high if at is None else at
        return Sent(channel or self.channel, APIS[api], version, values, self.name)

    def wait(self, member, api, **values):
        """A request whose answer may wait for other members, on a connection that serves nothing else meanwhile."""
        if member.channel is None or member.number in self.busy:
            member.channel = Channel(self.pair, answer_s=ANSWER_S)
            self.channels.append(member.channel)
        sent = self.send(api, member.channel, **values)
        self.busy[member.number] = sent
        return sent

    def topic(self, stem):
        return stem if stem in self.ids and stem.startswith("shared") else f"{stem}-{self.name}"

    def topics(self, stems):
        return [self.topic(stem) for stem in stems]

    def id_of(self, stem):
        return self.ids.get(stem, "AAAAAAAAQACAAAAAAAAAAQ")

    # -- members of the classic protocol

    def cjoin(self, number, is_short=True, stems=("shared1",), size=0, protocols=("range",), who="self", kind="consumer"):
        """Joins, or joins again."""
        self.protocols.add("classic")
        member = self.members[number]
        instance = INSTANCES.get(number)
        id = NO_SUCH if who == NO_SUCH else member.id if member.protocol == "classic" else ""
        metadata = [{"Name": name, "Metadata": self.subscription(stems, size)} for name in protocols]
        timeout = SHORT_MS if is_short else LONG_MS
        values = {"GroupId": self.group, "GroupInstanceId": instance, "ProtocolType": kind, "Protocols": metadata}
        values |= {"SessionTimeoutMs": timeout, "RebalanceTimeoutMs": timeout}
        sent = self.wait(member, "JoinGroup", MemberId=id, **values)
        answer = yield sent
        if answer["ErrorCode"] == MEMBER_ID_REQUIRED:
            member.id, member.protocol, member.is_alive = answer["MemberId"], "classic", True
            sent = self.wait(member, "JoinGroup", MemberId=member.id, **values)
            answer = yield sent
        if answer["ErrorCode"] == 0:
            member.id, member.protocol, member.is_alive = answer["MemberId"], "classic", True
            member.epoch = Each(*(one["GenerationId"] for one in sent.found))
            member.others = [one["MemberId"] for one in answer["Members"]]
        elif answer["ErrorCode"] in (25, 82) and who == "self":
            member.id = ""
        self.has_refused_join |= bool(id) and answer["ErrorCode"] == 25 and "newer" in self.protocols and self.kind != "share"

    def subscription(self, stems, size):
        names = self.topics(stems)
        head = struct.pack(">hi", 0, len(names)) + b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
        return head + struct.pack(">i", size) + b"x" * size if size else head + struct.pack(">i", -1)

    def csync(self, number, shift=0, who="self", size=0):
        """The leader gives each partition of a topic to a member."""
        member = self.members[number]
        if member.protocol != "classic" or not member.id:
            return
        numbers = {one.id: one.number for one in self.members.values()}
        given = sorted(member.others, key=lambda id: numbers.get(id, 9))
        all_given = []
        for place, id in enumerate(given):
            ids = [partition for partition in range(2) if partition % len(given) == place]
            data = assignment({self.topic("shared1"): ids} if ids else {})
            all_given.append({"MemberId": id, "Assignment": data + b"x" * size})
        id = member.id if who == "self" else NO_SUCH
        values = {"GroupId": self.group, "GenerationId": member.epoch + shift, "MemberId": id, "GroupInstanceId": INSTANCES.get(number)}
        yield self.wait(member, "SyncGroup", ProtocolType="consumer", ProtocolName="range", Assignments=all_given, **values)

    def cbeat(self, number, shift=0, who="self", instance="own"):
        member = self.members[number]
        if member.protocol != "classic":
            return
        values = {"GroupId": self.group, "GenerationId": member.epoch + shift, "MemberId": member.id if who == "self" else NO_SUCH}
        own = INSTANCES.get(number) if instance == "own" else "two"
        answer = yield self.send("Heartbeat", GroupInstanceId=own, **values)
        if answer["ErrorCode"] in (25, 82) and who == "self" and instance == "own":
            member.id = ""

    def cleave(self, numbers, by_instance=False):
        members = [self.members[number] for number in numbers]
        if not by_instance and not all(one.id for one in members):
            return
        parts = [{"MemberId": "" if by_instance else one.id, "GroupInstanceId": INSTANCES.get(one.number), "Reason": "done"} for one in members]
        answer = yield self.send("LeaveGroup", GroupId=self.group, Members=parts)
        for one in members:
            one.is_staying = answer["ErrorCode"] == -1
        if answer["ErrorCode"] == 0:
            for one, found in zip(members, answer["Members"]):
                if found["ErrorCode"] == 0:
                    one.id, one.protocol = "", None

    # -- members of the newer protocols, which name themselves

    def beat_of(self, number, epoch, **more):
        """A heartbeat of the group's own protocol; what the member then knows."""
        member = self.members[number]
        api = {"share": "ShareGroupHeartbeat", "streams": "StreamsGroupHeartbeat"}.get(self.kind, "ConsumerGroupHeartbeat")
        protocol = self.kind if self.kind in ("share", "streams") else "consumer"
        values = {"GroupId": self.group, "MemberId": member.name, "MemberEpoch": epoch, **more}
        if protocol != "share":
            values["InstanceId"] = INSTANCES.get(number) if protocol == "consumer" else None
        sent = self.send(api, **values)
        answer = yield sent
        code = answer["ErrorCode"]
        member.is_staying = code == -1 and (member.is_staying or epoch in (-1, -2))
        if code == -1 and epoch in (-1, -2):
            self.held.add(member.name)
        elif code == 0 and epoch in (0, -1, -2):
            self.held.discard(member.name)
        if values.get("TopicPartitions") is not None or values.get("ActiveTasks") is not None:
            (self.unheard.add if code == -1 else self.unheard.discard)(member.name)
        if code == 0:
            member.id, member.protocol, member.is_alive = member.name, protocol, True
            member.epoch = Each(*(one["MemberEpoch"] for one in sent.found))
            if epoch in (-1, -2):
                member.protocol, member.owned, member.tasks = None, NOTHING, NO_TASKS
            given = (one.get("Assignment") for one in sent.found)
            member.owned = Each(*(new["TopicPartitions"] if new else old for new, old in zip(given, member.owned.values)))
            for name in TASKS if protocol == "streams" else ():
                # All of them, or none that is new.
                news = (one[name] or [] if one["ActiveTasks"] is not None else None for one in sent.found)
                member.tasks = member.tasks | {name: Each(*(old if new is None else new for new, old in zip(news, member.tasks[name].values)))}
        elif code in (25, 82, 110, 111) and epoch is member.epoch:
            member.epoch, member.owned, member.tasks = FIRST_EPOCH, NOTHING, NO_TASKS

    def join(self, number, stems=("shared1",), is_short=True, assignor=None, regex=None, more=0, topology=1, who="self"):
        """`more` is the number of topics that are not there, with long names, so that the member's record is large."""
        self.protocols.add("newer")
        timeout = SHORT_MS if is_short else LONG_MS
        names = self.topics(stems) + [f"absent-{'x' * 80}-{place}" for place in range(more)]
        if self.kind == "streams":
            values = {"Topology": self.topology(stems, topology), "ProcessId": f"process-{number % 2}", "RebalanceTimeoutMs": timeout, **NO_TASKS}
        elif self.kind == "share":
            values = {"SubscribedTopicNames": names}
        else:
            values = {"SubscribedTopicNames": names, "RebalanceTimeoutMs": timeout, "TopicPartitions": [], "ServerAssignor": assignor}
            if regex:
                values["SubscribedTopicRegex"] = f"{regex}.*-{self.name}"
        self.has_new_regex |= bool(regex) and self.members[number].regex not in (None, regex)
        self.members[number].regex = regex or self.members[number].regex
        yield from self.beat_of(number, 0, **values)

    def topology(self, stems, epoch):
        sources = self.topics(stems)
        return {"Epoch": epoch, "Subtopologies": [{"SubtopologyId": f"part-{place}", "SourceTopics": [name]} for place, name in enumerate(sources)]}

    def beat(self, number, shift=0, stems=None, is_full=True, who="self", more=0, assignor=None, shutdown=False):
        """Tells what the member owns, and a new subscription at times."""
        member = self.members[number]
        if member.protocol not in ("consumer", "share", "streams"):
            return
        if who != "self":
            api = {"share": "ShareGroupHeartbeat", "streams": "StreamsGroupHeartbeat"}.get(self.kind, "ConsumerGroupHeartbeat")
            yield self.send(api, GroupId=self.group, MemberId=NO_SUCH, MemberEpoch=member.epoch)
            return
        values = {}
        if stems is not None and self.kind != "streams":
            values["SubscribedTopicNames"] = self.topics(stems) + [f"absent-{'x' * 80}-{place}" for place in range(more)]
        if is_full and self.kind == "streams":
            values |= member.tasks
        elif is_full and self.kind != "share":
            values["TopicPartitions"] = member.owned
        if assignor and self.kind not in ("share", "streams"):
            values["ServerAssignor"] = assignor
        if shutdown and self.kind == "streams":
            values["ShutdownApplication"] = True
            self.is_shutting_down = True
        if self.kind == "streams" and is_full and stems is not None:
            values["Topology"] = self.topology(stems, 1)
        yield from self.beat_of(number, member.epoch + shift, **values)

    def leave(self, number, epoch=-1):
        if self.members[number].protocol in ("consumer", "share", "streams"):
            yield from self.beat_of(number, epoch)

    def live(self, number):
        """A heartbeat that only says that the member lives."""
        member = self.members[number]
        if member.is_alive and member.protocol == "classic" and member.id:
            yield from self.cbeat(number)
        elif member.is_alive and member.protocol in ("consumer", "share", "streams"):
            yield from self.beat(number, is_full=False)

    # -- offsets

    def epoch_of(self, number):
        """The member id and epoch of a request about offsets; of none, those of an admin."""
        member = self.members.get(number)
        return (member.id, member.epoch) if member and member.protocol else ("", -1)

    def commit(self, number=None, stem="shared1", partition=0, offset=1, size=4, shift=0):
        id, epoch = self.epoch_of(number)
        part = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedLeaderEpoch": 0, "CommittedMetadata": "x" * size}
        topics = [{"Name": self.topic(stem), "TopicId": self.id_of(stem), "Partitions": [part]}]
        yield self.send("OffsetCommit", at=9, GroupId=self.group, GenerationIdOrMemberEpoch=epoch + shift, MemberId=id, Topics=topics)

    def fetch(self, number=None, is_stable=False, shift=0):
        id, epoch = self.epoch_of(number)
        one = {"GroupId": self.group, "MemberId": id or None, "MemberEpoch": epoch + shift, "Topics": None}
        yield self.send("OffsetFetch", at=9, Groups=[one], RequireStable=is_stable)

    def forget(self, stem="shared1"):
        parts = [{"PartitionIndex": partition} for partition in range(2)]
        yield self.send("OffsetDelete", GroupId=self.group, Topics=[{"Name": self.topic(stem), "Partitions": parts}])

    def txn(self, number=None, is_committed=True, stem="shared1", offset=7, is_ended=True, size=4):
        """A transaction with offsets, of the second version."""
        self.has_transaction = True
        name = f"txn-{self.name}"
        if self.producer is None:
            answer = yield self.send("InitProducerId", TransactionalId=name, TransactionTimeoutMs=600_000)
            if answer["ErrorCode"]:
                return
            self.producer = answer["ProducerId"], answer["ProducerEpoch"]
        id, epoch = self.epoch_of(number)
        who = {"TransactionalId": name, "ProducerId": self.producer[0], "ProducerEpoch": self.producer[1]}
        part = {"PartitionIndex": 1, "CommittedOffset": offset, "CommittedLeaderEpoch": -1, "CommittedMetadata": "x" * size}
        topics = [{"Name": self.topic(stem), "Partitions": [part]}]
        yield self.send("TxnOffsetCommit", GroupId=self.group, GenerationId=epoch, MemberId=id, Topics=topics, **who)
        if is_ended:
            answer = yield self.send("EndTxn", Committed=is_committed, **who)
            if answer["ErrorCode"] == 0:
                self.producer = answer["ProducerId"], answer["ProducerEpoch"]
            else:
                self.producer = None

    def alter(self, stem="shared1", offset=0):
        """Sets back the offsets of a share group."""
        part = {"PartitionIndex": 0, "StartOffset": offset}
        yield self.send("AlterShareGroupOffsets", GroupId=self.group, Topics=[{"TopicName": self.topic(stem), "Partitions": [part]}])

    def drop(self, stem="shared1"):
        yield self.send("DeleteShareGroupOffsets", GroupId=self.group, Topics=[{"TopicName": self.topic(stem)}])

    # -- groups and topics

    def delete(self):
        yield self.send("DeleteGroups", GroupsNames=[self.group])

    def make(self, stem, partitions=2):
        answer = yield self.send("CreateTopics", timeoutMs=5000, Topics=[{"Name": self.topic(stem), "NumPartitions": partitions, "ReplicationFactor": 1}])
        if answer["Topics"][0]["ErrorCode"] == 0:
            self.ids[stem] = answer["Topics"][0]["TopicId"]

    def grow(self, stem, partitions):
        yield self.send("CreatePartitions", TimeoutMs=5000, Topics=[{"Name": self.topic(stem), "Count": partitions, "Assignments": None}])

    def remove(self, stem):
        self.has_lost_topics |= self.is_refused
        yield self.send("DeleteTopics", TimeoutMs=5000, Topics=[{"Name": self.topic(stem), "TopicId": NO_ID}])
        self.ids.pop(stem, None)

    def state(self):
        """All that admins can see of the group."""
        for api, values in {
            "DescribeGroups": {"Groups": [self.group]},
            "ConsumerGroupDescribe": {"GroupIds": [self.group]},
            "ShareGroupDescribe": {"GroupIds": [self.group]},
            "StreamsGroupDescribe": {"GroupIds": [self.group]},
            "DescribeShareGroupOffsets": {"Groups": [{"GroupId": self.group, "Topics": None}]},
        }.items():
            is_shown = api == "DescribeGroups" or api.startswith(self.kind.title()) or (api.startswith("DescribeShare") and self.kind == "share")
            if is_shown or (api.startswith("Consumer") and self.kind == "classic"):
                yield self.send(api, **values)
        yield from self.fetch()
