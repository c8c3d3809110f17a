#!/usr/bin/env python3
"""What groups of the consumer protocol (KIP-848) cost a broker: Thalweg and Apache Kafka, in turns.

    PYTHONPATH=compat/harness trials/compare/groups.py [--rounds 3] [--seconds 60] [thalweg] [apache-kafka]

For each target and round, on a broker of its own with the settings that Kafka has by default:

- heartbeats: 10,000 members in 1,000 groups, each on a connection of its own, every 5 seconds. The broker's share of a core while
  nothing else happens, and its memory.
- joining: 500 members join one group that reads a topic of 1,000 partitions, all at once. How long it takes until every partition has
  its owner and all members are in one epoch, and the broker's processor seconds until then.

Prints a line of JSON for each run, then the medians and their ratios.
"""

import argparse
import asyncio
import json
import pathlib
import resource
import statistics
import struct
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "compat" / "harness"), str(HERE.parent / "raw")]

from broker import TARGETS  # noqa: E402
from systems import System  # noqa: E402
from wire import Connection, string, unsigned  # noqa: E402

FIND_COORDINATOR, CONSUMER_GROUP_HEARTBEAT = 10, 68
NOT_COORDINATOR = (14, 15, 16)
GROUPS, MEMBERS_EACH, GROUP_PARTITIONS = 1_000, 10, 10
JOINERS, JOINED_PARTITIONS = 500, 1_000
CONNECTS_AT_ONCE = 100
REBALANCE_TIMEOUT_MS = 45_000

SETTINGS = {
    "offsets.topic.num.partitions": "50",
    "group.consumer.max.size": "20000",
    "connections.max.idle.ms": "3600000",
}


def compact(text):
    return unsigned(len(text) + 1) + text.encode()


class Reader:
    """A flexible answer, from its beginning."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values[0]

    def uvarint(self):
        number, shift = 0, 0
        while True:
            byte = self.take(">B")
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def text(self):
        length = self.uvarint() - 1
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def tags(self):
        for _ in range(self.uvarint()):
            self.uvarint()
            self.at += self.uvarint()


class Member:
    """One member on its own connection, as a client of the protocol acts: it gives up at once what it is to give up."""

    def __init__(self, target, group, topic):
        self.host, self.port = target.host, target.port
        self.group, self.topic = group, topic
        self.id = str(uuid.uuid4())
        self.epoch, self.owned, self.topic_id = 0, set(), b""
        self.interval = 5.0
        self.reports = True
        self.correlation = 0

    async def connect(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    def _request(self):
        """The whole state where the member joins or has something to report, as Java's client does; else only who it is."""
        self.correlation += 1
        body = compact(self.group) + compact(self.id) + struct.pack(">i", self.epoch) + b"\0\0"
        joins = self.epoch == 0
        body += struct.pack(">i", REBALANCE_TIMEOUT_MS if joins else -1)
        body += unsigned(2) + compact(self.topic) if joins else b"\0"
        body += b"\0\0"  # no regular expression, no assignor
        if joins or self.reports:
            partitions = sorted(self.owned)
            topics = unsigned(1)
            if partitions:
                numbers = b"".join(struct.pack(">i", index) for index in partitions)
                topics = unsigned(2) + self.topic_id + unsigned(len(partitions) + 1) + numbers + b"\0"
            body += topics
        else:
            body += b"\0"
        client = b"groups"
        header = struct.pack(">hhih", CONSUMER_GROUP_HEARTBEAT, 1, self.correlation, len(client)) + client + b"\0"
        frame = header + body + b"\0"
        return struct.pack(">i", len(frame)) + frame

    async def beat(self):
        """One heartbeat. Whether the answer changed something."""
        while True:
            self.writer.write(self._request())
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            answer = Reader(await self.reader.readexactly(length))
            answer.take(">i")
            answer.tags()
            answer.take(">i")
            error, message = answer.take(">h"), answer.text()
            if error in NOT_COORDINATOR:
                await asyncio.sleep(0.1)
                continue
            if error:
                raise AssertionError(f"member {self.id} of {self.group}: error {error}, {message}")
            answer.text()
            epoch = answer.take(">i")
            self.interval = answer.take(">i") / 1000
            before = (self.epoch, self.owned)
            self.epoch, self.reports = epoch, False
            if answer.take(">b") >= 0:
                owned = set()
                for _ in range(answer.uvarint() - 1):
                    self.topic_id = bytes(answer.data[answer.at : answer.at + 16])
                    answer.at += 16
                    owned = {answer.take(">i") for _ in range(answer.uvarint() - 1)}
                    answer.tags()
                # What was assigned is acknowledged by the next heartbeat, which follows at once.
                self.owned, self.reports = owned, True
            return (self.epoch, self.owned) != before

    def close(self):
        self.writer.close()


async def keep(member, stopping, first):
    """Heartbeats at the interval that the broker asks for, and at once where there is something to report."""
    await asyncio.sleep(first)
    while not stopping.is_set():
        await member.beat()
        if member.reports:
            continue
        try:
            await asyncio.wait_for(stopping.wait(), member.interval)
        except asyncio.TimeoutError:
            pass


def owners(members):
    """Whether every partition has one owner, and all members are in one epoch."""
    owned = [index for member in members for index in member.owned]
    return len(owned) == len(set(owned)), len(owned), len({member.epoch for member in members}) == 1


async def connected(members):
    places = asyncio.Semaphore(CONNECTS_AT_ONCE)

    async def connect(member):
        async with places:
            await member.connect()

    await asyncio.gather(*(connect(member) for member in members))


async def settled(members, partitions, groups, timeout):
    """Waits until every group has settled."""
    by_group = [members[at : at + len(members) // groups] for at in range(0, len(members), len(members) // groups)]
    deadline = time.monotonic() + timeout
    while by_group:
        by_group = [group for group in by_group if owners(group) != (True, partitions, True)]
        if not by_group:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(by_group)} of {groups} groups have not settled: {owners(by_group[0])}")
        await asyncio.sleep(0.02)


async def heartbeats(target, topic, seconds):
    members = [Member(target, f"group-{group}", topic) for group in range(GROUPS) for _ in range(MEMBERS_EACH)]
    await connected(members)
    stopping = asyncio.Event()
    began = time.monotonic()
    # Members of an installation do not beat in step.
    tasks = [
        asyncio.create_task(keep(member, stopping, 5.0 * index / len(members))) for index, member in enumerate(members)
    ]
    waiting = asyncio.gather(*tasks)
    await settled(members, GROUP_PARTITIONS, GROUPS, 300)
    found = {"settled_s": time.monotonic() - began}
    await asyncio.sleep(15)
    cpu, sent, began = target.cpu_s(), sum(member.correlation for member in members), time.monotonic()
    await asyncio.sleep(seconds)
    passed, cpu = time.monotonic() - began, target.cpu_s() - cpu
    rate = (sum(member.correlation for member in members) - sent) / passed
    found |= {
        "cores": cpu / passed,
        "heartbeats_per_second": rate,
        "us_per_heartbeat": cpu / passed / rate * 1e6,
        "rss_mib": target.resident_kib() / 1024,
    }
    stopping.set()
    await waiting
    for member in members:
        member.close()
    return found


async def joining(target, topic):
    members = [Member(target, "crowd", topic) for _ in range(JOINERS)]
    first = Member(target, "warm", topic)
    await connected([first, *members])
    # The coordinator is there, and has seen the topic.
    while not first.owned:
        await first.beat()
    stopping = asyncio.Event()
    cpu, began = target.cpu_s(), time.monotonic()
    waiting = asyncio.gather(*(keep(member, stopping, 0) for member in members))
    await settled(members, JOINED_PARTITIONS, 1, 300)
    found = {"settled_s": time.monotonic() - began, "cpu_s": target.cpu_s() - cpu}
    stopping.set()
    await waiting
    for member in [first, *members]:
        member.close()
    return found


def run(name, work, seconds):
    with System(name, work, SETTINGS, heap="2g") as target:
        connection = Connection(target.bootstrap)
        shared = connection.new_topic("shared", partitions=GROUP_PARTITIONS)
        wide = connection.new_topic("wide", partitions=JOINED_PARTITIONS)
        # Which creates the topic of the coordinators.
        connection.ask(FIND_COORDINATOR, 1, string("warm") + b"\0")
        found = {"target": name, "joining": asyncio.run(joining(target, wide))}
        found["heartbeats"] = asyncio.run(heartbeats(target, shared, seconds))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    runs = []
    for at in range(options.rounds):
        for name in options.targets:
            with tempfile.TemporaryDirectory(prefix="groups-") as work:
                runs.append(run(name, pathlib.Path(work) / f"{name}-{at}", options.seconds))
                print(json.dumps(runs[-1]), flush=True)
    medians = {}
    for name in options.targets:
        own = [one for one in runs if one["target"] == name]
        medians[name] = {
            f"{part}.{figure}": statistics.median(one[part][figure] for one in own)
            for part in ("joining", "heartbeats")
            for figure in own[0][part]
        }
    for figure in medians[options.targets[0]]:
        values = [medians[name][figure] for name in options.targets]
        ratio = f"   ratio {values[0] / values[1]:.3f}" if len(values) == 2 and values[1] else ""
        print(f"{figure:34} " + "  ".join(f"{value:12.4g}" for value in values) + ratio)


if __name__ == "__main__":
    main()
