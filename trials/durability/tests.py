"""kill -9 under load, repeatedly; then all acknowledged records are read back."""

import atexit
import functools
import os
import pathlib

from broker import SUITE_SETTINGS, TARGETS, Broker
from confluent_kafka import Producer

from moves import Moves
from ordeal import PARTITIONS, Ordeal
from suite import NIGHTLY, TARGET, Skip, main
from writer import first_fault, number, read_all

CYCLES = 30 if NIGHTLY else 3
MOVE_CYCLES = 100 if NIGHTLY else 8


def own_broker(name):
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    return Broker(TARGET, pathlib.Path(os.environ["WORK"]) / name, SUITE_SETTINGS)


def survived():
    """The ordeal shared by most tests; its failure fails each of them."""
    ordeal = undergone()
    if isinstance(ordeal, Exception):
        raise ordeal
    return ordeal


@functools.cache
def undergone():
    """The ordeal, or the exception that ended it."""
    broker = own_broker("ordeal").start()
    atexit.register(broker.stop)
    try:
        ordeal = Ordeal(broker, CYCLES)
    except Exception as failure:
        return failure
    for writer in (ordeal.idempotent, ordeal.plain):
        print(f"{writer.topic}: {sum(map(len, writer.acknowledged))} records acknowledged in {CYCLES} cycles")
    print("seconds until it answers again:", ", ".join(f"{seconds:.2f}" for seconds in ordeal.restarts))
    return ordeal


def test_idempotent_writer_loses_doubles_and_reorders_nothing():
    ordeal = survived()
    for partition in range(PARTITIONS):
        ordeal.idempotent.check(read_all(ordeal.broker.bootstrap, "idempotent", partition), partition)


def test_plain_writer_loses_nothing_acknowledged():
    writer = survived().plain
    for partition in range(PARTITIONS):
        there = dict(read_all(survived().broker.bootstrap, writer.topic, partition))
        acknowledged = writer.acknowledged[partition].items()
        lost = [(n, offset) for n, offset in acknowledged if offset not in there or number(there[offset]) != n]
        assert not lost, f"{len(lost)} acknowledged records lost, the first (number, offset) {lost[0]}"
        assert len(writer.acknowledged[partition]) > 100, "too few records for a conclusion"


def test_created_topics_survive():
    there = survived().admin.list_topics(timeout=20).topics
    lost = [topic for topic in survived().topics_created if topic not in there or there[topic].error]
    assert not lost and len(survived().topics_created) == CYCLES + 3, lost


def test_committed_offsets_survive():
    ordeal = survived()
    ordeal.broker.kill()
    ordeal.broker.start()
    found = ordeal.committed()
    assert found >= ordeal.offset_committed > 0, (found, ordeal.offset_committed)


def test_torn_tail_is_cut_and_indexes_are_rebuilt():
    with own_broker("torn") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for n in range(1_000):
            producer.produce("torn", b"%d " % n, partition=0)
        assert producer.flush(30) == 0
        broker.kill()
        place = broker.data_dir / "torn-0"
        log = place / "00000000000000000000.log"
        whole = log.read_bytes().rstrip(b"\0")
        log.write_bytes(whole + whole[: min(200, len(whole) // 2)])
        for index in (*place.glob("*.index"), *place.glob("*.timeindex")):
            index.unlink()
        broker.start()
        producer.produce("torn", b"1000 ", partition=0)
        assert producer.flush(30) == 0
        numbers = [number(value) for _, value in read_all(broker.bootstrap, "torn", 0)]
        assert numbers == list(range(1_001)), first_fault(numbers, 1_001)


def test_partitions_that_move_between_directories_lose_nothing():
    if TARGET == "apache-kafka":
        raise Skip("Kafka's own moves are not tested here")
    broker = own_broker("moves")
    atexit.register(broker.stop)
    moves = Moves(broker, MOVE_CYCLES)
    for partition in range(PARTITIONS):
        moves.writer.check(read_all(broker.bootstrap, moves.writer.topic, partition), partition)
    assert len(moves.seen) == 2 * PARTITIONS, f"not every partition was seen in both directories: {moves.seen}"


main(globals(), parallel=1)
