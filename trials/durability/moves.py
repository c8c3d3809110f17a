"""Moves partitions back and forth between the data directories of a broker, which is killed meanwhile."""

import random
import socket
import struct
import time

from confluent_kafka.admin import AdminClient, NewTopic
from writer import HURRIED_S, Writer

TOPIC = "moved"
PARTITIONS = 3
ALTER_REPLICA_LOG_DIRS = 34


class Moves:
    """A number of cycles under a writer: move every partition to the other directory, kill -9, restart."""

    def __init__(self, broker, cycles):
        self.broker = broker
        self.places = [broker.directory / "one", broker.directory / "two"]
        broker.data_dir = ",".join(map(str, self.places))
        broker.start()
        wanted = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": "1048576"})
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        self.admin.create_topics([wanted])[TOPIC].result(timeout=40)
        self.writer = Writer(broker.bootstrap, TOPIC, PARTITIONS, HURRIED_S)
        self.writer.start()
        chance = random.Random(7)
        self.seen = set()
        for cycle in range(cycles):
            time.sleep(0.5)
            self.note_places()
            self.ask(self.places[cycle % 2])
            time.sleep(chance.uniform(0, 0.3))
            broker.kill()
            broker.start()
        self.writer.finish()

    def note_places(self):
        self.seen |= {(p, str(at)) for p in range(PARTITIONS) for at in self.places if (at / f"{TOPIC}-{p}").exists()}

    def ask(self, path):
        """Requests the move of all partitions; librdkafka has no call for it."""
        text = lambda value: struct.pack(">h", len(value)) + value.encode()
        partitions = struct.pack(f">i{PARTITIONS}i", PARTITIONS, *range(PARTITIONS))
        body = struct.pack(">i", 1) + text(str(path)) + struct.pack(">i", 1) + text(TOPIC) + partitions
        request = struct.pack(">hhi", ALTER_REPLICA_LOG_DIRS, 1, 7) + text("moves") + body
        with socket.create_connection((self.broker.host, self.broker.port), timeout=20) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(size, socket.MSG_WAITALL)
        # After the correlation id, the throttle time, the topic and the count: the partitions, each with its error.
        results = struct.unpack(f">{'ih' * PARTITIONS}", answer[-6 * PARTITIONS :])
        assert not any(results[1::2]), f"the moves were refused: {results}"
