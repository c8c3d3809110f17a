"""Topics, their records, and what is asked about them."""

import gzip
import struct
import time
import zlib

from codec import NO_ID
from framings import framings
from wire import batch, records, varint

ABSENT_ID = "AAAAAAAAQACAAAAAAAAAAQ"
TIME = int(time.time() * 1000) - 60_000


def create(k, stem="topic", partitions=2, **configs):
    """A topic that both nodes serve: its name and its id."""
    name = k.named(stem)
    settings = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
    topic = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": settings}
    k.good("CreateTopics", Topics=[topic])
    return name, served(k, name)


def served(k, name):
    """The id of a topic, once it is served."""
    answer = k.good("Metadata", at=13, Topics=[{"Name": name}])
    partitions = [{"PartitionIndex": part["PartitionIndex"], "Timestamp": -1} for part in answer["Topics"][0]["Partitions"]]
    k.good("ListOffsets", at=9, ReplicaId=-1, Topics=[{"Name": name, "Partitions": partitions}])
    return answer["Topics"][0]["TopicId"]


def topics(k):
    """Creation in every form, good and bad, with and without effect; then description, growth and deletion."""
    first, second, third = (k.named(stem) for stem in ("first", "second", "third"))
    one = {"NumPartitions": 1, "ReplicationFactor": 1}
    assigned = {"NumPartitions": -1, "ReplicationFactor": -1}
    good = [
        {"Name": first, **one, "Configs": [{"Name": "retention.ms", "Value": "1000000"}, {"Name": "cleanup.policy", "Value": "compact,delete"}]},
        {"Name": second, "NumPartitions": -1, "ReplicationFactor": -1},
        {"Name": third, **assigned, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}, {"PartitionIndex": 1, "BrokerIds": [1]}]},
    ]
    bad = [
        {"Name": "", **one},
        {"Name": ".", **one},
        {"Name": "a/b", **one},
        {"Name": "x" * 250, **one},
        {"Name": k.named("no.dots_"), "NumPartitions": 0, "ReplicationFactor": 1},
        {"Name": k.named("negative"), "NumPartitions": -2, "ReplicationFactor": 1},
        {"Name": k.named("many"), "NumPartitions": 1, "ReplicationFactor": 2},
        {"Name": k.named("none"), "NumPartitions": 1, "ReplicationFactor": 0},
        {"Name": k.named("setting"), **one, "Configs": [{"Name": "no.such", "Value": "1"}]},
        {"Name": k.named("value"), **one, "Configs": [{"Name": "retention.ms", "Value": "soon"}]},
        {"Name": k.named("nothing"), **one, "Configs": [{"Name": "retention.ms", "Value": None}]},
        {"Name": k.named("range"), **one, "Configs": [{"Name": "segment.bytes", "Value": "1"}]},
        {"Name": k.named("both"), **one, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}]},
        {"Name": k.named("gap"), **assigned, "Assignments": [{"PartitionIndex": 1, "BrokerIds": [1]}]},
        {"Name": k.named("unknown"), **assigned, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [7]}]},
        {"Name": k.named("double"), **assigned, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1, 1]}]},
        {"Name": k.named("empty"), **assigned, "Assignments": [{"PartitionIndex": 0, "BrokerIds": []}]},
        {"Name": k.named("uneven"), **assigned, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}, {"PartitionIndex": 1, "BrokerIds": []}]},
    ]
    k.ask("CreateTopics", Topics=good + bad, validateOnly=True)
    k.ask("CreateTopics", Topics=bad)
    k.ask("CreateTopics", Topics=good[:2])
    k.ask("CreateTopics", Topics=good)
    k.ask("CreateTopics", Topics=[{"Name": k.named("twice"), **one}] * 2)
    k.ask("CreateTopics", Topics=[{"Name": k.named("dots.in_it"), **one}])
    k.ask("CreateTopics", Topics=[{"Name": k.named("dots_in.it"), **one}])
    k.ask("CreateTopics", Topics=[])
    ids = [served(k, name) for name in (first, second, third)]
    asked = [{"Name": name} for name in (first, second, k.named("absent"), "a/b", "")]
    k.ask("Metadata", Topics=asked, IncludeTopicAuthorizedOperations=True, IncludeClusterAuthorizedOperations=True)
    k.ask("Metadata", Topics=[{"Name": first}, {"Name": first}])
    k.ask("Metadata", Topics=[])
    k.ask("Metadata", Topics=[{"Name": k.named("absent")}], AllowAutoTopicCreation=True)
    for topic in [{"TopicId": ids[0]}, {"TopicId": ABSENT_ID}, {"TopicId": NO_ID, "Name": first}, {"TopicId": ids[0], "Name": first}]:
        k.ask("Metadata", at=max(k.version("Metadata"), 12), Topics=[{"Name": None, **topic}])
    limited = {"ResponsePartitionLimit": 3}
    named = [{"Name": name} for name in sorted((first, second, third, k.named("absent")))]
    k.ask("DescribeTopicPartitions", Topics=named, **limited)
    k.ask("DescribeTopicPartitions", Topics=named, ResponsePartitionLimit=2000, Cursor={"TopicName": second, "PartitionIndex": 1})
    for wrong in ({"ResponsePartitionLimit": 0}, {"ResponsePartitionLimit": -1}, {"Cursor": {"TopicName": second, "PartitionIndex": -1}}):
        k.ask("DescribeTopicPartitions", Topics=named, **wrong)
    # The unknown one is behind what the limit has room for.
    k.ask("DescribeTopicPartitions", Topics=[{"Name": first}, {"Name": k.named("gone")}, {"Name": third}], ResponsePartitionLimit=1)
    k.ask("CreatePartitions", TimeoutMs=5000, Topics=[{"Name": first, "Count": 3, "Assignments": None}], ValidateOnly=True)
    grown = [
        {"Name": first, "Count": 3, "Assignments": None},
        {"Name": second, "Count": 2, "Assignments": None},
        {"Name": third, "Count": 1, "Assignments": None},
        {"Name": k.named("absent"), "Count": 3, "Assignments": None},
        {"Name": k.named("twice"), "Count": 0, "Assignments": None},
    ]
    k.ask("CreatePartitions", TimeoutMs=5000, Topics=grown)
    for assignments in ([], [{"BrokerIds": [1]}], [{"BrokerIds": [9]}], [{"BrokerIds": [1, 1]}], [{"BrokerIds": []}], [{"BrokerIds": [1]}] * 2):
        for count in (3, 2**31 - 1):
            k.ask("CreatePartitions", TimeoutMs=5000, Topics=[{"Name": second, "Count": count, "Assignments": assignments}])
    k.ask("CreatePartitions", TimeoutMs=5000, Topics=[{"Name": third, "Count": 4, "Assignments": None}] * 2)
    k.ask("Metadata", Topics=[{"Name": name} for name in (first, second, third)])
    k.ask("DeleteTopics", TimeoutMs=5000, Topics=[{"Name": k.named("absent")}], TopicNames=[k.named("absent")])
    k.ask("DeleteTopics", TimeoutMs=5000, at=6, Topics=[{"TopicId": ABSENT_ID}, {"TopicId": ids[1]}, {"Name": first, "TopicId": ids[0]}])
    k.ask("DeleteTopics", TimeoutMs=5000, at=6, Topics=[{"Name": None}, {"Name": second, "TopicId": NO_ID}])
    k.ask("DeleteTopics", TimeoutMs=5000, Topics=[{"Name": first}, {"Name": first}], TopicNames=[first, first])
    k.ask("DeleteTopics", TimeoutMs=5000, Topics=[{"Name": third}], TopicNames=[third])
    k.ask("Metadata", Topics=[{"Name": name} for name in (first, second, third)])


def produced(k, topic, topic_id, data, partition=0, acks=-1, **more):
    part = {"Index": partition, "Records": data}
    topics = [{"Name": topic, "TopicId": topic_id, "PartitionData": [part]}]
    return k.ask("Produce", Acks=acks, TimeoutMs=5000, TopicData=topics, **more)


def fetched(k, topic, topic_id, offset, partition=0, **more):
    part = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}
    part |= {key: more.pop(key) for key in ("CurrentLeaderEpoch", "LastFetchedEpoch", "PartitionMaxBytes") if key in more}
    request = {"MaxBytes": 1 << 24, "IsolationLevel": 0, **more}
    return k.ask("Fetch", Topics=[{"Topic": topic, "TopicId": topic_id, "Partitions": [part]}], **request)


def compressed(values, attributes, squeeze):
    return batch(values, attributes=attributes, payload=squeeze(records(values)), timestamp=TIME)


def old(magic, value=b"old", attributes=0):
    """A message of an old format."""
    body = bytes([magic, attributes]) + (struct.pack(">q", TIME) if magic else b"") + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def with_key(key, value, headers=()):
    """One record with a key and headers."""
    body = b"\0" + varint(0) + varint(0) + varint(len(key)) + key + varint(len(value)) + value + varint(len(headers))
    body += b"".join(varint(len(name)) + name + varint(len(text)) + text for name, text in headers)
    return batch([value], payload=varint(len(body)) + body, timestamp=TIME)


def writing(k):
    """Produce in each form: formats, compressions, sequences, errors."""
    topic, topic_id = create(k)
    compact, compact_id = create(k, "compact", 1, cleanup_policy="compact")
    stamped, stamped_id = create(k, "stamped", 1, message_timestamp_type="LogAppendTime")
    small, small_id = create(k, "small", 1, max_message_bytes="200")
    whole = batch([b"a", b"bb", b"ccc"], timestamp=TIME)
    broken = whole[:-1] + bytes([whole[-1] ^ 1])
    forms = [
        whole,
        with_key(b"key", b"value", [(b"h", b"1"), (b"", b"")]),
        compressed([b"a" * 100] * 3, 1, gzip.compress),
        compressed([b"a" * 100] * 3, 1, lambda data: data),
        compressed([b"a" * 100] * 3, 2, lambda data: data),
        compressed([b"a" * 100] * 3, 4, lambda data: data),
        compressed([b"a" * 100] * 3, 5, lambda data: data),
        broken,
        whole[:-3],
        whole + whole,
        whole[:40],
        b"",
        old(0),
        old(1),
        batch([], timestamp=TIME),
        batch([b"a"], timestamp=TIME, count=2),
        batch([b"a"], timestamp=TIME, payload=b""),
        batch([b"a"], timestamp=TIME, payload=b"\xff" * 9),
        batch([b"a"], attributes=0x20, timestamp=TIME),
        batch([b"a"], attributes=0x10, timestamp=TIME),
        batch([b"a"], attributes=0x40, timestamp=TIME),
        batch([b"a"], magic=3, timestamp=TIME),
        batch([b"a"], timestamp=-1),
        batch([b"a"], timestamp=TIME + 10**10),
    ]
    for data in forms:
        produced(k, topic, topic_id, data)
    for data in (whole, with_key(b"key", b"value"), compressed([b"a"], 1, gzip.compress)):
        produced(k, compact, compact_id, data)
        produced(k, stamped, stamped_id, data)
    produced(k, small, small_id, batch([b"a" * 300], timestamp=TIME))
    produced(k, small, small_id, whole)
    for acks in (1, 2, -2):
        produced(k, topic, topic_id, whole, acks=acks)
    produced(k, topic, topic_id, whole, partition=9)
    produced(k, topic, topic_id, whole, partition=-1)
    produced(k, k.named("absent"), ABSENT_ID, whole)
    produced(k, "", NO_ID, whole)
    parts = [{"Index": index, "Records": whole} for index in (0, 1, 7)]
    k.ask("Produce", Acks=-1, TimeoutMs=5000, TopicData=[{"Name": topic, "TopicId": topic_id, "PartitionData": parts}])
    k.ask("Produce", Acks=-1, TimeoutMs=5000, TopicData=[])
    sequences(k, topic, topic_id)
    for offset in (0, 1, 5):
        fetched(k, topic, topic_id, offset)
    fetched(k, stamped, stamped_id, 99)
    for timestamp in (-1, -2, -3, -4, -5, -6, 0, TIME, TIME + 1, TIME + 10**10, -7):
        part = {"PartitionIndex": 0, "Timestamp": timestamp}
        k.ask("ListOffsets", ReplicaId=-1, Topics=[{"Name": topic, "Partitions": [part]}, {"Name": compact, "Partitions": [part]}])


def framing(k):
    """Compressed records in every framing of their codec."""
    topic, topic_id = create(k)
    values = [b"%03d" % number * 30 for number in range(6)]
    for name, codec, payload in framings(records(values)):
        produced(k, topic, topic_id, batch(values, attributes=codec, payload=payload, timestamp=TIME), about=name)


def sequences(k, topic, topic_id):
    """An idempotent producer: in order, again, too far, of an older epoch, of an epoch to come."""
    made = k.good("InitProducerId", TransactionalId=None, TransactionTimeoutMs=60_000)
    pid = made["ProducerId"]

    def send(sequence, epoch=0, count=2, producer=pid):
        values = [b"value"] * count
        data = lambda known: batch(values, producer_id=known(producer), epoch=epoch, sequence=sequence, timestamp=TIME)
        produced(k, topic, topic_id, data, partition=1)

    for sequence in (0, 2, 0, 2, 4, 3, 9, 4, -1):
        send(sequence)
    send(0, epoch=1)
    send(2, epoch=0)
    send(5, epoch=2)
    send(0, epoch=-1)
    send(0, producer=987_654_321)
    send(7, producer=987_654_322)
    k.ask("DescribeProducers", Topics=[{"Name": topic, "PartitionIndexes": [0, 1, 9]}, {"Name": k.named("absent"), "PartitionIndexes": [0]}])
    renewed = k.ask("InitProducerId", TransactionalId=None, TransactionTimeoutMs=60_000, ProducerId=pid, ProducerEpoch=0)
    k.ask("InitProducerId", TransactionalId=None, TransactionTimeoutMs=60_000, ProducerId=renewed["ProducerId"], ProducerEpoch=7)


def reading(k):
    """Fetch from anywhere, with sessions, epochs and limits; offsets by time and epoch; deletion of records."""
    topic, topic_id = create(k)
    for number in range(5):
        produced(k, topic, topic_id, batch([b"%d" % number] * 3, timestamp=TIME + number))
    produced(k, topic, topic_id, batch([b"x" * 5000], timestamp=TIME + 9), partition=1)
    for offset in (0, 4, 14, 15, 16, -1, -2, 1 << 40):
        fetched(k, topic, topic_id, offset)
    for epoch in (0, 1, 7, -2):
        fetched(k, topic, topic_id, 0, CurrentLeaderEpoch=epoch)
        fetched(k, topic, topic_id, 0, LastFetchedEpoch=epoch)
    fetched(k, topic, topic_id, 0, PartitionMaxBytes=1)
    fetched(k, topic, topic_id, 0, partition=1, PartitionMaxBytes=100)
    fetched(k, topic, topic_id, 0, MaxBytes=1)
    fetched(k, topic, topic_id, 0, MaxBytes=0)
    fetched(k, topic, topic_id, 0, MinBytes=1 << 20, MaxWaitMs=50)
    for partition in (-1, 7):
        fetched(k, topic, topic_id, 0, partition=partition)
    fetched(k, k.named("absent"), ABSENT_ID, 0)
    fetched(k, topic, NO_ID, 0)
    for more in ({}, {"CurrentLeaderEpoch": 0}, {"CurrentLeaderEpoch": 1}):
        fetched(k, topic, topic_id, 0, ReplicaId=5, ReplicaState={"ReplicaId": 5, "ReplicaEpoch": -1}, **more)
    k.ask("Fetch", ReplicaId=5, ReplicaState={"ReplicaId": 5, "ReplicaEpoch": -1}, Topics=[], MaxBytes=1 << 20)
    fetched(k, topic, topic_id, 0, IsolationLevel=1)
    fetched(k, topic, topic_id, 0, IsolationLevel=2)
    fetched(k, topic, topic_id, 0, partition=7, IsolationLevel=2)
    fetched(k, k.named("absent"), ABSENT_ID, 0, IsolationLevel=2)
    fetched(k, topic, topic_id, 0, IsolationLevel=2, SessionId=123_456, SessionEpoch=1)
    session(k, topic, topic_id)
    for epoch in (0, 1, -1, -5):
        for current in (-1, 0, 3, -2):
            part = {"Partition": 0, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}
            k.ask("OffsetForLeaderEpoch", ReplicaId=-1, Topics=[{"Topic": topic, "Partitions": [part]}])
    absent = {"Topic": k.named("absent"), "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]}
    k.ask("OffsetForLeaderEpoch", ReplicaId=-1, Topics=[absent, {"Topic": topic, "Partitions": [{"Partition": 9, "LeaderEpoch": 0}]}])
    for current in (-1, 0, 1, -2):
        for isolation in (0, 1, 3):
            part = {"PartitionIndex": 0, "CurrentLeaderEpoch": current, "Timestamp": -1}
            k.ask("ListOffsets", ReplicaId=-1, IsolationLevel=isolation, Topics=[{"Name": topic, "Partitions": [part]}])
    same = {"PartitionIndex": 0, "Timestamp": -1}
    k.ask("ListOffsets", ReplicaId=-1, Topics=[{"Name": topic, "Partitions": [same, same]}])
    k.ask("ListOffsets", ReplicaId=-1, Topics=[{"Name": k.named("absent"), "Partitions": [same]}, {"Name": topic, "Partitions": [{"PartitionIndex": 9, "Timestamp": -1}]}])
    k.ask("ListOffsets", ReplicaId=2, Topics=[{"Name": topic, "Partitions": [same]}])
    for offset in (4, 3, -1, -2, 99, 0):
        deleted(k, topic, 0, offset)
    deleted(k, topic, 9, 0)
    deleted(k, k.named("absent"), 0, 0)
    k.ask("DeleteRecords", Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": 1, "Offset": 0}] * 2}], TimeoutMs=5000)
    fetched(k, topic, topic_id, 0)
    fetched(k, topic, topic_id, 15)
    k.ask("DescribeLogDirs", Topics=[{"Topic": topic, "Partitions": [0, 1, 7]}, {"Topic": k.named("absent"), "Partitions": [0]}])
    k.ask("DescribeLogDirs", Topics=[])
    for path in ("/no/such/directory", "", "relative"):
        k.ask("AlterReplicaLogDirs", Dirs=[{"Path": path, "Topics": [{"Name": topic, "Partitions": [0, 9]}]}])
    k.ask("AlterReplicaLogDirs", Dirs=[])


def deleted(k, topic, partition, offset):
    k.ask("DeleteRecords", Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}], TimeoutMs=5000)


def session(k, topic, topic_id):
    """A fetch session: opened, used, with a wrong epoch, with partitions that come and go, closed."""
    channel = k.another()
    opened = fetched(k, topic, topic_id, 0, SessionEpoch=0, channel=channel)
    number = opened.get("SessionId", 0)
    steps = [
        {"SessionEpoch": 1, "Topics": []},
        {"SessionEpoch": 2, "Topics": [{"Topic": topic, "TopicId": topic_id, "Partitions": [{"Partition": 1, "FetchOffset": 0, "PartitionMaxBytes": 1000}]}]},
        {"SessionEpoch": 3, "Topics": [], "ForgottenTopicsData": [{"Topic": topic, "TopicId": topic_id, "Partitions": [0]}]},
        {"SessionEpoch": 9, "Topics": []},
        {"SessionEpoch": 4, "Topics": []},
        {"SessionEpoch": 5, "Topics": [{"Topic": k.named("absent"), "TopicId": ABSENT_ID, "Partitions": [{"Partition": 0, "FetchOffset": 0}]}]},
        {"SessionEpoch": -1, "Topics": []},
        {"SessionEpoch": 5, "Topics": []},
    ]
    for step in steps:
        k.ask("Fetch", channel=channel, MaxBytes=1 << 20, SessionId=number, MaxWaitMs=0, **step)
    k.ask("Fetch", channel=channel, MaxBytes=1 << 20, SessionId=123_456, SessionEpoch=1, MaxWaitMs=0)


