#!/usr/bin/env python3
"""Small requests on separate connections, and the longest wait of each kind.

    pings.py BROKER CONTROLLER TOPIC

A separate process, so that the sender of a long request does not affect the measurement. For each line on standard input it
prints the longest waits in seconds since the previous line, as JSON; it exits at the end of its input.
"""

import json
import math
import struct
import sys
import threading
import time

from wire import API_VERSIONS, METADATA, PRODUCE, Connection, array, batch, produce, string

HEARTBEAT = 12
PAUSE = 0.002
# A request that waits for a lock occupies a worker: send more of these than there are workers.
AT_ONCE = {"Heartbeat": 4, "Produce": 2, "controller": 2}


class Pings(threading.Thread):
    """Repeats one kind of request."""

    def __init__(self, address, key, version, body):
        super().__init__(daemon=True)
        self.connection = Connection(address, timeout=120.0)
        self.request = key, version, body
        self.begun, self.longest, self.failed = None, 0.0, None
        self.lock = threading.Lock()

    def run(self):
        try:
            while True:
                with self.lock:
                    self.begun = time.monotonic()
                self.connection.ask(*self.request)
                with self.lock:
                    self.longest, self.begun = max(self.longest, time.monotonic() - self.begun), None
                time.sleep(PAUSE)
        except Exception as failure:  # any failure must reach the reader of the waits
            self.failed = failure
            print(f"A ping failed: {failure!r}", file=sys.stderr, flush=True)

    def take(self):
        """The longest wait so far, including a current one; infinite after a failure."""
        with self.lock:
            now = time.monotonic()
            longest = max(self.longest, now - self.begun if self.begun else 0.0)
            self.longest = 0.0
        return math.inf if self.failed else longest


def kinds(broker, controller, topic):
    group = string("pings") + struct.pack(">i", 0) + string("nobody")
    requests = {
        "ApiVersions": (broker, API_VERSIONS, 0, b""),
        "Metadata": (broker, METADATA, 1, array([string(topic)])),
        "Produce": (broker, PRODUCE, 7, produce(topic, batch([b"ping"]))),
        "Heartbeat": (broker, HEARTBEAT, 0, group),
        # The controller's one task answers it, as it does heartbeats of brokers.
        "controller": (controller, API_VERSIONS, 0, b""),
    }
    return {kind: [Pings(*request) for _ in range(AT_ONCE.get(kind, 1))] for kind, request in requests.items()}


def main():
    pings = kinds(*sys.argv[1:])
    for alike in pings.values():
        for ping in alike:
            ping.start()
    for _ in sys.stdin:
        print(json.dumps({kind: max(ping.take() for ping in alike) for kind, alike in pings.items()}), flush=True)


if __name__ == "__main__":
    main()
