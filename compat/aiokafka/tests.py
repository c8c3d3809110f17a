"""aiokafka against the broker at $BOOTSTRAP."""

import asyncio
import contextlib
import functools

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError

import login
from suite import BOOTSTRAP, each, main, unique

CONNECTION = {"bootstrap_servers": BOOTSTRAP, **login.aiokafka()}


def in_loop(test):
    """Runs a coroutine as a test, within a minute."""

    @functools.wraps(test)
    def run(*parameters):
        asyncio.run(asyncio.wait_for(test(*parameters), 60))

    return run


@contextlib.asynccontextmanager
async def started(client):
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if hasattr(client, "close") else client.stop())


def admin():
    return started(AIOKafkaAdminClient(**CONNECTION))


def producer(**config):
    return started(AIOKafkaProducer(**CONNECTION, **config))


def consumer(*topics, **config):
    base = {"auto_offset_reset": "earliest", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    return started(AIOKafkaConsumer(*topics, **{**CONNECTION, **base, **config}))


async def new_topic(stem, partitions=1, **configs):
    topic = unique(stem)
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    async with admin() as client:
        answer = await client.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        assert answer.topic_errors[0][1] == 0, answer
        while (await client.describe_topics([topic]))[0]["error_code"]:
            await asyncio.sleep(0.05)
    return topic


async def fill(topic, values, **config):
    async with producer(**config) as sender:
        sent = [await sender.send(topic, value, partition=0) for value in values]
        return [await future for future in sent]


async def take(reader, count):
    return [await reader.getone() for _ in range(count)]


async def read(topic, count):
    async with consumer(topic) as reader:
        return await take(reader, count)


async def until(what, holds):
    for _ in range(600):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within 30 s: {what}")


@each("none", "gzip", "snappy", "lz4", "zstd")
@in_loop
async def test_codec(codec):
    topic = await new_topic(codec)
    values = [b"%d" % number + b" words that repeat" * 20 for number in range(1_000)]
    await fill(topic, values, compression_type=None if codec == "none" else codec)
    assert [record.value for record in await read(topic, len(values))] == values


@each(0, 1, "all")
@in_loop
async def test_acks(acks):
    topic = await new_topic("acks")
    await fill(topic, [b"a", b"b"], acks=acks)
    assert [record.value for record in await read(topic, 2)] == [b"a", b"b"]


@in_loop
async def test_idempotent_producer():
    topic = await new_topic("idempotent")
    values = [b"%d" % number for number in range(2_000)]
    found = await fill(topic, values, enable_idempotence=True, max_batch_size=500)
    assert [sent.offset for sent in found] == list(range(2_000))


@in_loop
async def test_transactions_commit_abort_and_carry_offsets():
    source, sink, group = await new_topic("source"), await new_topic("sink"), unique("pipe")
    values = [b"%d" % number for number in range(40)]
    await fill(source, values)
    committed = {"isolation_level": "read_committed"}
    async with producer(transactional_id=unique("tx")) as sender:
        for commits in (False, True):
            async with consumer(source, group_id=group, enable_auto_commit=False, **committed) as reader:
                records = await take(reader, len(values))
                await sender.begin_transaction()
                for record in records:
                    await sender.send(sink, record.value)
                offsets = {TopicPartition(source, 0): records[-1].offset + 1}
                await sender.send_offsets_to_transaction(offsets, group)
                await (sender.commit_transaction() if commits else sender.abort_transaction())
    async with consumer(sink, **committed) as reader:
        assert [record.value for record in await take(reader, len(values))] == values
    async with consumer(source, group_id=group, enable_auto_commit=False, **committed) as reader:
        await until("the assignment", lambda: asyncio.sleep(0, reader.assignment()))
        assert await reader.committed(TopicPartition(source, 0)) == len(values)


@in_loop
async def test_keys_headers_and_timestamps():
    topic = await new_topic("record")
    async with producer() as sender:
        await sender.send_and_wait(topic, None, key=b"k", headers=[("a", b"1")], timestamp_ms=1_600_000_000_123)
    (found,) = await read(topic, 1)
    assert (found.key, found.value, found.timestamp) == (b"k", None, 1_600_000_000_123), found
    assert list(found.headers) == [("a", b"1")]


@in_loop
async def test_refuses_too_large_messages():
    topic = await new_topic("large", max_message_bytes="1000")
    try:
        await fill(topic, [b"x" * 5_000])
    except MessageSizeTooLargeError:
        return
    raise AssertionError("the message was accepted")


@in_loop
async def test_offsets_by_time_and_ends():
    topic = await new_topic("offsets")
    async with producer() as sender:
        for number in range(5):
            await sender.send_and_wait(topic, b"x", timestamp_ms=1_600_000_000_000 + number * 1_000)
    part = TopicPartition(topic, 0)
    async with consumer(topic) as reader:
        assert (await reader.offsets_for_times({part: 1_600_000_001_500}))[part].offset == 2
        assert (await reader.beginning_offsets([part]), await reader.end_offsets([part])) == ({part: 0}, {part: 5})


@in_loop
async def test_group_commits_and_resumes():
    topic, group = await new_topic("resume"), unique("resume")
    await fill(topic, [b"a", b"b", b"c"])
    async with consumer(topic, group_id=group, enable_auto_commit=False) as first:
        await take(first, 2)
        await first.commit({TopicPartition(topic, 0): 2})
    async with consumer(topic, group_id=group) as second:
        assert (await take(second, 1))[0].value == b"c"


@in_loop
async def test_group_rebalances_as_members_come_and_go():
    topic, group = await new_topic("rebalance", 4), unique("rebalance")

    def shared(*readers):
        async def holds():
            return [len(reader.assignment()) for reader in readers] == [4 // len(readers)] * len(readers)

        return until(f"{len(readers)} members share", holds)

    async with consumer(topic, group_id=group) as second:
        async with consumer(topic, group_id=group) as first:
            await shared(first, second)
        await shared(second)


@in_loop
async def test_admin_topics_partitions_and_configs():
    topic = await new_topic("admin", 2, retention_ms="99000")
    async with admin() as client:
        await client.create_partitions({topic: NewPartitions(4)})

        async def grown():
            return len((await client.describe_topics([topic]))[0]["partitions"]) == 4

        await until("four partitions", grown)
        found = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        assert "99000" in str(found[0].resources)
        await client.delete_topics([topic])

        async def gone():
            return topic not in await client.list_topics()

        await until("the topic gone", gone)


@in_loop
async def test_admin_groups_and_records():
    topic, group = await new_topic("groups"), unique("groups")
    await fill(topic, [b"a", b"b", b"c"])
    part = TopicPartition(topic, 0)
    async with admin() as client:
        await client.delete_records({part: RecordsToDelete(2)})
        assert (await read(topic, 1))[0].offset == 2
        async with consumer(topic, group_id=group) as reader:
            await reader.commit({part: 3})
            (described,) = await client.describe_consumer_groups([group])
            assert "Stable" in str(described)
        assert (await client.list_consumer_group_offsets(group))[part].offset == 3
        assert group in str(await client.list_consumer_groups())


main(globals())
