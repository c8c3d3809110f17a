"""Transactions, committed and aborted, with producers that are fenced."""

from data_scenarios import TIME, create, fetched, produced
from group_scenarios import offsets_of
from wire import batch


def begun(k, name, at=None, **more):
    return k.ask("InitProducerId", at=at, **{"TransactionalId": name, "TransactionTimeoutMs": 60_000, **more})


def added(k, name, producer, epoch, topic, partitions=(0,), verify=False):
    topics = [{"Name": topic, "Partitions": list(partitions)}]
    one = {"TransactionalId": name, "ProducerId": producer, "ProducerEpoch": epoch, "VerifyOnly": verify, "Topics": topics}
    old = {"V3AndBelowTransactionalId": name, "V3AndBelowProducerId": producer, "V3AndBelowProducerEpoch": epoch}
    return k.ask("AddPartitionsToTxn", Transactions=[one], V3AndBelowTopics=topics, **old)


def written(k, topic, topic_id, producer, epoch, sequence, name, partition=0):
    make = lambda known: batch([b"in", b"txn"], producer_id=known(producer), epoch=epoch, sequence=sequence, attributes=0x10, timestamp=TIME)
    return produced(k, topic, topic_id, make, partition=partition, TransactionalId=name)


def ended(k, name, producer, epoch, committed):
    return k.ask("EndTxn", TransactionalId=name, ProducerId=producer, ProducerEpoch=epoch, Committed=committed)


def offsets_in(k, name, group, producer, epoch, topic, offset=1, **more):
    parts = [{"PartitionIndex": 0, "CommittedOffset": offset, "CommittedLeaderEpoch": -1, "CommittedMetadata": "m"}]
    topics = [{"Name": topic, "Partitions": parts}]
    return k.ask("TxnOffsetCommit", TransactionalId=name, GroupId=group, ProducerId=producer, ProducerEpoch=epoch, Topics=topics, **more)


def described(k, name, topic):
    k.ask("DescribeTransactions", TransactionalIds=[name, k.named("absent")])
    k.ask("DescribeProducers", Topics=[{"Name": topic, "PartitionIndexes": [0, 1]}])


def transactions(k):
    """One committed, one aborted, with records and offsets in them; a producer that takes over."""
    topic, topic_id = create(k)
    name, group = k.named("txn"), k.named("group")
    for wrong in ({"TransactionalId": ""}, {"TransactionTimeoutMs": 0}, {"TransactionTimeoutMs": -1}, {"TransactionTimeoutMs": 1 << 30}):
        begun(k, name, **wrong)
    begun(k, name, ProducerId=77)
    begun(k, name, ProducerEpoch=3)
    made = k.good("InitProducerId", TransactionalId=name, TransactionTimeoutMs=60_000)
    producer, epoch = made["ProducerId"], made["ProducerEpoch"]
    described(k, name, topic)
    ended(k, name, producer, epoch, True)
    ended(k, name, producer, epoch, False)
    made = k.good("InitProducerId", TransactionalId=name, TransactionTimeoutMs=60_000)
    producer, epoch = made["ProducerId"], made["ProducerEpoch"]
    added(k, name, producer, epoch, topic)
    added(k, name, producer, epoch, topic, (0, 9))
    added(k, name, producer, epoch, k.named("absent"))
    added(k, name, producer, epoch + 1, topic)
    added(k, name, producer + 1000, epoch, topic)
    added(k, k.named("absent"), producer, epoch, topic)
    added(k, "", producer, epoch, topic)
    added(k, name, producer, epoch, topic, verify=True)
    added(k, name, producer, epoch, topic, (1,), verify=True)
    added(k, name, producer, epoch, "__consumer_offsets")
    added(k, name, producer, epoch, "", ())
    described(k, name, topic)
    written(k, topic, topic_id, producer, epoch, 0, name)
    written(k, topic, topic_id, producer, epoch, 0, None, partition=0)
    written(k, topic, topic_id, producer, epoch, 5, name)
    written(k, topic, topic_id, producer, epoch, 0, k.named("other"))
    produced(k, topic, topic_id, batch([b"plain"], timestamp=TIME), TransactionalId=name)
    k.ask("AddOffsetsToTxn", TransactionalId=name, ProducerId=producer, ProducerEpoch=epoch, GroupId=group)
    k.ask("AddOffsetsToTxn", TransactionalId=name, ProducerId=producer, ProducerEpoch=epoch, GroupId="")
    k.ask("AddOffsetsToTxn", TransactionalId=name, ProducerId=producer, ProducerEpoch=epoch + 1, GroupId=group)
    offsets_in(k, name, group, producer, epoch, topic)
    offsets_in(k, name, group, producer, epoch, k.named("absent"))
    offsets_in(k, name, group, producer, epoch + 1, k.named("absent"))
    offsets_in(k, name, "", producer, epoch, topic)
    offsets_in(k, name, group, producer, epoch, topic, GenerationId=3, MemberId="stranger")
    offsets_of(k, group, topic, topic_id)
    offsets_of(k, group, topic, topic_id, stable=True)
    described(k, name, topic)
    described(k, name, "__consumer_offsets")
    for filters in ({}, {"StateFilters": ["Ongoing"]}, {"StateFilters": ["Nonsense"]}, {"ProducerIdFilters": [producer]}, {"DurationFilter": 1 << 40}):
        k.ask("ListTransactions", **filters)
    for pattern in ("txn.*", "nothing", "(", ""):
        k.ask("ListTransactions", TransactionalIdPattern=pattern)
    fetched(k, topic, topic_id, 0, IsolationLevel=1)
    k.ask("ListOffsets", ReplicaId=-1, IsolationLevel=1, Topics=[{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}])
    ended(k, name, producer, epoch + 1, True)
    ended(k, name, producer + 1000, epoch, True)
    ended(k, k.named("absent"), producer, epoch, True)
    answer = ended(k, name, producer, epoch, True)
    again = ended(k, name, producer, epoch, True)
    ended(k, name, producer, epoch, False)
    offsets_of(k, group, topic, topic_id, stable=True)
    described(k, name, topic)
    fetched(k, topic, topic_id, 0, IsolationLevel=1)
    # From version 5 on a producer goes on with the id and the epoch of the answer.
    for ending in (answer, again):
        if ending.get("ProducerId", -1) >= 0:
            producer, epoch = ending["ProducerId"], ending["ProducerEpoch"]
    aborted(k, name, topic, topic_id, producer, epoch)


def aborted(k, name, topic, topic_id, producer, epoch):
    added(k, name, producer, epoch, topic, (0, 1))
    written(k, topic, topic_id, producer, epoch, 2, name)
    written(k, topic, topic_id, producer, epoch, 0, name, partition=1)
    ended(k, name, producer, epoch, False)
    described(k, name, topic)
    fetched(k, topic, topic_id, 0, IsolationLevel=1)
    fetched(k, topic, topic_id, 0, partition=1, IsolationLevel=1)
    taken = begun(k, name)
    added(k, name, producer, epoch, topic)
    written(k, topic, topic_id, producer, epoch, 4, name)
    ended(k, name, producer, epoch, True)
    begun(k, name, ProducerId=producer, ProducerEpoch=epoch)
    begun(k, name, ProducerId=taken["ProducerId"], ProducerEpoch=taken["ProducerEpoch"])
    added(k, name, taken["ProducerId"], taken["ProducerEpoch"] + 1, topic)
    begun(k, name)
    described(k, name, topic)
    begun(k, k.named("two-phase"), at=6, Enable2Pc=True)
    begun(k, k.named("two-phase"), at=6, KeepPreparedTxn=True)
    markers(k, topic)


def markers(k, topic):
    """What transaction coordinators send to leaders."""
    for producer, parts in ((987_000, [0, 9]), (-1, [0]), (987_001, [])):
        topics = [{"Name": topic, "PartitionIndexes": parts}, {"Name": k.named("absent"), "PartitionIndexes": [0]}]
        k.ask("WriteTxnMarkers", Markers=[{"ProducerId": producer, "ProducerEpoch": 0, "TransactionResult": True, "Topics": topics, "CoordinatorEpoch": 0}])
    k.ask("WriteTxnMarkers", Markers=[])
