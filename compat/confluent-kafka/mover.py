"""Moves records from a topic to another, each exactly once: reads, writes and commits offsets in one transaction.

    mover.py BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID MAX_IN_FLIGHT

trials/faults runs it, pauses it and kills it. Partition p of the source goes to partition p of the sink. It prints a line
for each transaction, `committed N` or `aborted WHY`; it aborts every seventh on purpose. SIGTERM stops it cleanly.

librdkafka 2.16 may wait forever in send_offsets_to_transaction after a coordinator was unavailable, despite the timeout: its
request to the group's coordinator never times out, also with Apache Kafka. Then the mover prints `hung` and
restarts, as a supervisor would do.
"""

import os
import signal
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

RECORDS_AT_ONCE = 500
TRANSACTION_TIMEOUT_MS = 6000
# Longer than any fault. The client's timeout does not exceed the transaction's.
PATIENCE_S = 60
HUNG_S = 20


class Mover:
    """A producer and a consumer, from their creation to a fatal error."""

    def __init__(self, bootstrap, source, sink, group, transactional_id, in_flight):
        self.source, self.sink = source, sink
        common = {"bootstrap.servers": bootstrap, "log_level": 3, "reconnect.backoff.max.ms": 500}
        times = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 1, "max.in.flight": int(in_flight)}
        self.producer = Producer({**common, **times, "transactional.id": transactional_id})
        reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        patience = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "isolation.level": "read_committed"}
        self.consumer = Consumer({**common, **reading, **patience})
        self.batch = []
        self.number = 0

    def begin(self):
        again(self.producer.init_transactions, PATIENCE_S)
        # Drop records read before a rebalance: the new owner reads them again.
        drop = lambda *_: self.batch.clear()
        self.consumer.subscribe([self.source], on_assign=drop, on_revoke=drop, on_lost=drop)

    def read(self):
        deadline = time.monotonic() + 0.1
        while len(self.batch) < RECORDS_AT_ONCE and time.monotonic() < deadline:
            message = self.consumer.poll(0.02)
            if message is not None and not message.error():
                self.batch.append(message)
            elif message is not None and message.error().fatal():
                raise KafkaException(message.error())

    def move(self):
        """Moves available records in one transaction."""
        self.read()
        if not self.batch:
            return
        batch, self.batch = self.batch, []
        self.number += 1
        try:
            self.producer.begin_transaction()
            for message in batch:
                self.producer.produce(self.sink, message.value(), partition=message.partition())
            offsets = {message.partition(): message.offset() + 1 for message in batch}
            offsets = [TopicPartition(self.source, partition, offset) for partition, offset in offsets.items()]
            again(self.producer.send_offsets_to_transaction, offsets, self.consumer.consumer_group_metadata(), PATIENCE_S)
            if self.number % 7 == 0:
                self.abort(batch, "by itself")
                return
            again(self.producer.commit_transaction, PATIENCE_S)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self.abort(batch, failure)
            return
        print("committed", len(batch), flush=True)

    def abort(self, batch, why):
        again(self.producer.abort_transaction, PATIENCE_S)
        print("aborted", why, flush=True)
        assigned = {p.partition for p in self.consumer.assignment()}
        first = {message.partition(): message.offset() for message in reversed(batch)}
        for partition in assigned & first.keys():
            self.consumer.seek(TopicPartition(self.source, partition, first[partition]))


def again(call, *arguments):
    """Calls, and retries while the error is retriable."""
    while True:
        done = threading.Event()
        threading.Thread(target=watch, args=(call.__name__, done), daemon=True).start()
        try:
            return call(*arguments)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            print("again", call.__name__, failure, flush=True)
        finally:
            done.set()


def watch(name, done):
    """Restarts the whole program if a call does not return."""
    # In steps, because a paused process does not hang.
    for _ in range(HUNG_S):
        if done.wait(1):
            return
    print("hung", name, flush=True)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def main():
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    while not stopping:
        mover = Mover(*sys.argv[1:])
        try:
            mover.begin()
            while not stopping:
                mover.move()
        except KafkaException as failure:
            print("renewed", failure, flush=True)
        mover.consumer.close()


main()
