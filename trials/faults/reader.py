"""Reads a partition from its first offset to its end of now, and prints a line `OFFSET NUMBER` for each record:

    reader.py BOOTSTRAP TOPIC PARTITION ISOLATION_LEVEL SECONDS

It is a process of its own, because librdkafka ends its process when it meets some kinds of damaged records.
"""

import sys
import time

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

LEVELS = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}


def end_of(bootstrap, place, isolation, deadline):
    """The last stable offset, or the high watermark; a new leader may not know it at once."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    while True:
        try:
            asked = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=LEVELS[isolation], request_timeout=10)
            return asked[place].result(20).offset
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def read(bootstrap, topic, partition, isolation, seconds):
    place, deadline = TopicPartition(topic, partition, 0), time.monotonic() + seconds
    end = end_of(bootstrap, place, isolation, deadline)
    config = {"group.id": "check", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    more = {"isolation.level": isolation, "enable.partition.eof": True, "auto.offset.reset": "error"}
    reader = Consumer({"bootstrap.servers": bootstrap, **config, **more})
    reader.assign([place])
    at, last = 0, None
    # Markers and aborted records have offsets, too: where they are the last, the end of the partition is reported.
    while at < end:
        if time.monotonic() > deadline:
            sys.exit(f"at {at} of {end} after {seconds} s, the last error was {last}")
        for message in reader.consume(10_000, 0.2):
            if not message.error():
                print(message.offset(), message.value().split(b" ", 1)[0].decode())
                at = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                at = max(at, message.offset())
            else:
                # As a user would, who starts again where it failed. librdkafka goes on behind a damaged batch.
                last = message.error()
                reader.assign([TopicPartition(topic, partition, at)])
                break
    reader.close()


if __name__ == "__main__":
    read(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
