"""A long request of one client is no wait for another: while the longest arrays of every served API are read, decided and
answered, pings on another connection are answered soon. Made from the schema, so that no API is left out.
"""

import os
import random
import threading
import time

from frame_tests import own_broker
from random_tests import served
from requests import Writer, apis, unsigned
from suite import TARGET, Skip
from wire import API_VERSIONS, Closed, Connection

ELEMENTS = 400_000
PATIENCE = 0.1
# What else the machine does is no fault of the broker.
TRIES = 6
MARK = b"\xfe\xfdMARK\xfd\xfe"


class Longest(Writer):
    """Requests in which one array has many elements, each with a name of its own or all with the same."""

    def __init__(self, names, topic_id):
        super().__init__(random.Random(7), names)
        self.ids = [topic_id]
        self.long, self.has_own_names = None, False

    def request(self, api, version, field, has_own_names):
        self.long, self.has_own_names = field, has_own_names
        return self.frame(api, version, 77)

    def _array(self, field, version, flexible, is_null):
        count = ELEMENTS if field is self.long else 1
        head = unsigned(count + 1) if flexible else count.to_bytes(4, "big")
        self.within = field is self.long
        element = self._one(field, field.element, version, flexible, False)
        if field is not self.long:
            return head + element
        self.within = False
        parts = element.split(MARK)
        if len(parts) == 1:
            return head + element * count
        return head + b"".join((b"%08x" % index).join(parts) for index in range(count))

    within = False

    def _text(self, field):
        return MARK if self.within and self.has_own_names else self.names[0]

    def _number(self, field, kind):
        if kind == "bool":
            # Nothing is made, where a request says so.
            return field.name not in ("AllowAutoTopicCreation",)
        return {"Acks": 1, "SessionTimeoutMs": 10_000, "SessionId": 0, "GenerationId": -1}.get(field.name, 0)

    def _noise(self):
        return b"noise"

    def _records(self):
        return b""


def arrays(fields, version):
    for field in fields:
        if version in field.versions and version not in field.tagged:
            if field.kind.startswith("[]"):
                yield field
            yield from arrays(field.fields, version)


class Pings:
    """The longest wait for an answer to a small request, on a connection of its own."""

    def __init__(self, bootstrap):
        self.connection, self.longest, self.stopped = Connection(bootstrap), 0.0, False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.stopped:
            begun = time.monotonic()
            self.connection.ask(API_VERSIONS, 0)
            self.longest = max(self.longest, time.monotonic() - begun)
            time.sleep(0.002)

    def stop(self):
        self.stopped = True
        self.thread.join()
        return self.longest


def send(connection, bootstrap, frame):
    """Sends a request and waits for its answer, or for the end of the connection; gives the connection to go on with."""
    try:
        connection.socket.sendall(frame)
        left, buffer = int.from_bytes(connection.exactly(4), "big"), memoryview(bytearray(1 << 20))
        # Thrown away as it comes: to put a long answer together would hold the thread of the pings up.
        while left > 0:
            received = connection.socket.recv_into(buffer[: min(left, len(buffer))])
            if received == 0:
                raise Closed("in the middle of an answer")
            left -= received
        return connection
    except (Closed, ConnectionError):
        return Connection(bootstrap, timeout=120.0)


def test_no_client_waits_for_the_long_request_of_another():
    if os.environ.get("NIGHTLY") != "1":
        raise Skip("minutes of the longest requests; compat/run --nightly has them")
    if TARGET != "thalweg":
        raise Skip("Kafka promises no such thing")
    with own_broker("cost") as broker:
        connection = Connection(broker.bootstrap, timeout=120.0)
        topic = connection.new_topic("cost", 3)
        writer, known, late = Longest([topic.encode()], bytes(15) + b"\1"), apis(), []
        for key, _, version in served(connection):
            api = known[key]
            for field in arrays(api.fields, version):
                for has_own_names in (True, False):
                    frame, waits = writer.request(api, version, field, has_own_names), []
                    while len(waits) < TRIES and min(waits, default=PATIENCE + 1) > PATIENCE:
                        pings = Pings(broker.bootstrap)
                        connection = send(connection, broker.bootstrap, frame)
                        waits.append(pings.stop())
                    if min(waits) > PATIENCE:
                        late.append(f"{api.name} {version}, {field.name}, {len(frame)} bytes: {min(waits):.3f} s")
        assert not late, "\n".join(late)
