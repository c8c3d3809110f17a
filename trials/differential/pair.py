"""Sends each request to both nodes and compares the answers. The caller sees Apache Kafka's; an id in it stands for Thalweg's in
the next request.
"""

import collections
import os
import socket
import struct
import time

from answers import CLOSED, SILENT, errors
from codec import Malformed, Reader, encode, full
from allowed import is_allowed
from differences import IDS, Comparison, Twins
from requests import apis

APIS = {api.name: api for api in apis().values()}
# The errors of a node that is not that far yet: of partitions, coordinators, and transactions that are being ended.
UNSETTLED = {3, 5, 6, 14, 15, 16, 51, 100}
TRACE = os.environ.get("TRACE") == "1"
# How long a node may take to be as far as the other, and each node to an answer: Apache Kafka gives some requests none.
PATIENCE_S, ANSWER_S = 3.0, (4.0, 15.0)
READING = ("Describe", "List", "Metadata", "FindCoordinator", "ApiVersions", "OffsetFetch", "OffsetForLeaderEpoch", "ConsumerGroupDescribe", "ShareGroupDescribe")


class Difference:
    """What differs between the answers to one request."""

    def __init__(self, api, version, path, kafka, ours, request, label):
        self.api, self.version, self.path, self.kafka, self.ours = api, version, path, kafka, ours
        self.request, self.label = request, label

    @property
    def place(self):
        return f"{self.api} {self.path}"

    def __str__(self):
        head = f"{self.api} {self.version} {self.path}: Kafka {brief(self.kafka)}, Thalweg {brief(self.ours)}"
        return f"{head}\n    {self.label}: {self.request!r:.1500}"


def brief(value):
    """A value to read: of a long list of things with names, the names."""
    if isinstance(value, list) and len(value) > 2 and all(isinstance(one, dict) and "Name" in one for one in value):
        value = [one["Name"] for one in value]
    return f"{value!r:.900}"


class Channel:
    """A connection to each node."""

    def __init__(self, pair, ports=None, answer_s=ANSWER_S):
        self.pair, self.answer_s = pair, answer_s
        self.ports = ports or [node.port for node in pair.nodes.both]
        self.sockets = [None, None]
        self.correlation = 0

    def send(self, side, frame):
        if self.sockets[side] is None:
            self.sockets[side] = socket.create_connection(("127.0.0.1", self.ports[side]), timeout=self.answer_s[side])
            self.sockets[side].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.sockets[side].sendall(frame)
        except OSError:
            pass  # Receiving says so.

    def receive(self, side):
        """The bytes of the next answer behind its correlation id; or that there is none."""
        try:
            length = struct.unpack(">i", self._exactly(side, 4))[0]
            return self._exactly(side, length)[4:]
        except TimeoutError:
            result = SILENT
        except OSError:
            result = CLOSED
        self.close(side)
        return result

    def _exactly(self, side, length):
        parts = bytearray()
        while len(parts) < length:
            part = self.sockets[side].recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("closed")
            parts += part
        return bytes(parts)

    def close(self, side):
        if self.sockets[side] is not None:
            self.sockets[side].close()
            self.sockets[side] = None

    def end(self):
        for side in (0, 1):
            self.close(side)


class Asked:
    """A request that both nodes have, and whose answers are still to come."""

    def __init__(self, channel, api, version, values, label):
        self.channel, self.api, self.version, self.label = channel, api, version, label
        self.values = full(api.fields, values, version)
        channel.correlation += 1
        for side in (0, 1):
            self.send(side)

    def send(self, side):
        self.channel.send(side, self.frame(side))

    def frame(self, side):
        flexible = self.version in self.api.flexible
        client = b"compared"
        head = struct.pack(">hhih", self.api.key, self.version, self.channel.correlation, len(client)) + client
        values = self.channel.pair.translated(self.api.fields, self.values, side)
        content = head + (b"\0" if flexible else b"") + encode(self.api.fields, values, self.version, flexible)
        return struct.pack(">i", len(content)) + content

    def receive(self, side):
        data = self.channel.receive(side)
        if isinstance(data, str):
            return data
        flexible = self.version in self.api.flexible
        try:
            if self.api.name == "ApiVersions":
                return Reader(data).message(self.api.answer, self.version, flexible)
            return Reader(data[1:] if flexible else data).message(self.api.answer, self.version, flexible)
        except Malformed as problem:
            return f"malformed: {problem}: {data.hex()}"

    def answers(self):
        """Both answers, asked for again while one node is not that far; what differs is noted."""
        pair = self.channel.pair
        answers = [self.receive(0), self.receive(1)]
        if answers[0] == SILENT:
            print(f"Apache Kafka does not answer: {self.api.name} {self.version} {self.values!r:.600}; Thalweg: {answers[1]!r:.300}", flush=True)
        deadline = time.monotonic() + PATIENCE_S
        while found := self.compare(answers):
            again = [side for side in (0, 1) if self.is_unsettled(answers, side, found)]
            if not again or time.monotonic() > deadline:
                break
            time.sleep(0.1)
            for side in again:
                self.send(side)
                answers[side] = self.receive(side)
        if TRACE:
            print(f"{self.label}: {self.api.name} {self.version} {self.values!r:.700}\n    {answers[0]!r:.700}", flush=True)
        pair.asked[self.api.name].add(self.version)
        if not isinstance(answers[0], str) and not isinstance(answers[1], str):
            pair.last[self.api.name, self.version] = answers
        pair.note([Difference(self.api.name, self.version, *one, self.values, self.label) for one in found])
        return answers

    def is_unsettled(self, answers, side, found):
        """Whether a node may answer otherwise in a moment."""
        if isinstance(answers[side], str):
            return False
        if errors(answers[side]) & UNSETTLED - errors(answers[1 - side]):
            return True
        # A place that has differed for so long once differs for good.
        is_new = any((self.api.name, path) not in self.channel.pair.lasting for path, _, _ in found)
        return is_new and self.api.name.startswith(READING)

    def compare(self, answers):
        kafka, ours = answers
        if kafka == ours or is_allowed(self.api.name, "", kafka, ours):
            return []
        if isinstance(kafka, str) or isinstance(ours, str):
            return [("", kafka, ours)]
        if self.api.name.startswith(READING) and (parted := self.channel.pair.parted):
            kafka, ours = without(parted, kafka), without(parted, ours)
        return list(Comparison(self.channel.pair.twins, self.api, self.version).of(kafka, ours))


def without(runs, answer):
    """An answer without the items of lists that these runs have named."""
    if isinstance(answer, list):
        return [item for item in answer if not is_of(runs, item)]
    return {name: without(runs, value) for name, value in answer.items()} if isinstance(answer, dict) else answer


def is_of(runs, item):
    if isinstance(item, dict):
        return any(is_of(runs, value) for value in item.values())
    if isinstance(item, list):
        return any(is_of(runs, one) for one in item)
    return isinstance(item, str) and item.endswith(tuple(runs))


class Known:
    """Gives a node's own id for one of Apache Kafka's, to values that are made for each node."""

    def __init__(self, twins, side):
        self.twins, self.side = twins, side

    def __call__(self, id):
        """Of a producer, or what is no number."""
        return self.twins.other("producerId", id) if self.side else id


class Pair:
    """Two nodes, the ids of the one in the other, and every difference so far."""

    def __init__(self, nodes):
        self.nodes, self.twins = nodes, Twins()
        self.differences, self.compared = [], 0
        self.lasting = set()
        # Runs whose things may be others on each node.
        self.parted = set()
        # What Apache Kafka serves, the versions that each API was asked at, and its last answers.
        self.served = []
        self.asked, self.last = collections.defaultdict(set), {}

    def ask(self, channel, name, version, values, label=""):
        """Apache Kafka's answer, or that there is none."""
        return Asked(channel, APIS[name], version, values, label).answers()[0]

    def both(self, channel, name, version, values, label=""):
        """Both answers, of which only the errors are compared."""
        asked = Asked(channel, APIS[name], version, values, label)
        answers = [asked.receive(0), asked.receive(1)]
        found = [answer if isinstance(answer, str) else sorted(errors(answer)) for answer in answers]
        is_same = found[0] == found[1] or is_allowed(name, "errors", *found)
        self.note([] if is_same else [Difference(name, version, "errors", *found, asked.values, label)])
        return answers

    def note(self, differences):
        self.compared += 1
        self.differences += differences
        for difference in differences:
            if (difference.api, difference.path) not in self.lasting:
                print(f"differs: {difference}", flush=True)
            self.lasting.add((difference.api, difference.path))

    def translated(self, fields, values, side):
        """The values for a node, from those for Apache Kafka."""
        return {
            field.name: self._translate(field, values[field.name], side) for field in fields if field.name in values
        }

    def _translate(self, field, value, side):
        if isinstance(value, list):
            return [self._translate(field, item, side) for item in value]
        if isinstance(value, dict):
            return self.translated(field.fields, value, side)
        if callable(value):
            return value(Known(self.twins, side))
        if side and (isinstance(value, str) or field.name in IDS):
            return self.twins.other(field.name, value)
        return value
