"""Clusters of real processes under faults, with clients of librdkafka and Java that know what was acknowledged.

FAULTS says how many random faults each kind of cluster undergoes, SEED which; without SEED a new one is taken and printed.
"""

import json
import os
import random
import subprocess
import time

from faults import say
from nodes import SESSION_S
from ordeal import PARTITIONS, TOPICS, Ordeal
from replicas import batches
from suite import NIGHTLY, Skip, each, main, until

FAULTS = int(os.environ.get("FAULTS", "80" if NIGHTLY else "6"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))


def nightly_only():
    if not NIGHTLY:
        raise Skip("in the nightly form")


@each("embedded", "apache-controllers", "mixed")
def test_random_faults_lose_double_and_reorder_nothing(kind):
    if kind != "embedded":
        nightly_only()
    with Ordeal(kind, "-faults") as ordeal:
        say(f"{FAULTS} faults of seed {SEED}")
        began = time.monotonic()
        done = ordeal.undergo(FAULTS, random.Random(f"{SEED} {kind}"))
        ordeal.look()
        ordeal.judge()
        say(f"{kind}: {done} faults of seed {SEED} in {time.monotonic() - began:.0f} s")


@each("embedded", "apache-controllers", "mixed")
def test_rolling_restart_is_seen_by_no_client(kind):
    if kind != "embedded":
        nightly_only()
    with Ordeal(kind, "-rolling", with_go=True) as ordeal:
        for node in ordeal.cluster.nodes:
            seconds = node.stop()
            say(f"{node.name} stopped in order in {seconds:.2f} s")
            node.start()
            ordeal.look()
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


@each("embedded", "mixed")
def test_leaders_and_coordinators_move_by_reassignment(kind):
    nightly_only()
    with Ordeal(kind, "-moves", with_go=True) as ordeal:
        ids = [node.id for node in ordeal.cluster.brokers]
        for turn in range(2 * len(ids)):
            reassign(ordeal, lambda partition: [ids[(turn + partition + i) % len(ids)] for i in range(3)])
            ordeal.look()
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


def reassign(ordeal, replicas_of):
    """Gives each partition the replicas that a function says for it, the first of which leads."""
    seen = ordeal.cluster.wait_until_whole()
    moves = []
    for topic in (*TOPICS, "__consumer_offsets"):
        for partition in seen.topics[topic].partitions:
            moves.append({"topic": topic, "partition": partition, "replicas": replicas_of(partition)})
    plan = ordeal.directory / "reassignment.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    name, file = "reassign.ReassignPartitionsCommand", ("--reassignment-json-file", str(plan))
    ordeal.tool(name, *file, "--execute")
    until(lambda: "in progress" not in ordeal.tool(name, *file, "--verify"), "the reassignment", 120)
    ordeal.tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    wanted = {(move["topic"], move["partition"]): move["replicas"] for move in moves}

    def is_done(seen):
        return all(
            partition.leader == wanted[topic, index][0] and sorted(partition.replicas) == sorted(wanted[topic, index])
            for topic in {topic for topic, _ in wanted}
            for index, partition in seen.topics[topic].partitions.items()
        )

    ordeal.cluster.wait("the leaders that were asked for", is_done)
    say(f"reassigned, the leaders of librdkafka are {[wanted[TOPICS[0], p][0] for p in range(PARTITIONS)]}")


def test_quorum_loses_its_majority_and_gets_it_back():
    nightly_only()
    with Ordeal("apache-controllers", "-majority") as ordeal:
        first, second, _ = ordeal.cluster.controllers
        for kill in (True, False):
            say(f"two controllers are {'killed' if kill else 'paused'}")
            for node in (first, second):
                node.kill() if kill else node.pause()
            time.sleep(2 * SESSION_S)
            # What has a leader is served.
            ordeal.wait_for_progress()
            for node in (first, second):
                node.start() if kill else node.resume()
            ordeal.look()
        # Something that only a majority can decide.
        reassign(ordeal, lambda partition: [3 - (partition + i) % 3 for i in range(3)])
        ordeal.judge()


def test_metadata_version_is_raised_under_load():
    nightly_only()
    with Ordeal("apache-controllers", "-features", release="3.9") as ordeal:
        # From 3.9-IV0 over those that change requests or records to 4.3-IV0.
        for level in ("metadata.version=23", "metadata.version=26", "eligible.leader.replicas.version=1"):
            ordeal.tool("FeatureCommand", "upgrade", "--feature", level)
            ordeal.look()
        ordeal.tool("FeatureCommand", "upgrade", "--feature", "metadata.version=30")
        for node in ordeal.cluster.brokers:
            node.kill()
            node.start()
            ordeal.look()
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


@each("embedded", "apache-controllers")
def test_disk_that_fills_stops_no_client(kind):
    nightly_only()
    if os.geteuid() != 0:
        raise Skip("only root can mount a disk that is small")
    small = []

    def mount(cluster):
        small.append(cluster.broker(3).data)
        small[0].mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", small[0]], check=True)

    try:
        with Ordeal(kind, "-disk", prepare=mount) as ordeal:
            ordeal.writer.hurry()
            ordeal.cluster.wait("others that lead", lambda seen: 3 not in seen.brokers)
            say("the disk is full")
            ordeal.wait_for_progress()
            subprocess.run(["mount", "-o", "remount,size=1g", small[0]], check=True)
            ordeal.writer.take_its_time()
            ordeal.look()
            ordeal.judge()
    finally:
        for place in small:
            subprocess.run(["umount", "--lazy", place], check=True)


@each("embedded", "mixed")
def test_corrupted_segment_of_a_follower_is_repaired_from_the_leader(kind):
    if kind != "embedded":
        nightly_only()
    with Ordeal(kind, "-corrupted") as ordeal:
        for node in [node for node in ordeal.cluster.brokers if node.make == "thalweg"][:2]:
            node.kill()
            for partition in range(PARTITIONS):
                damage(node.data / f"librdkafka-{partition}")
            node.start()
            ordeal.look()
        ordeal.judge()


def damage(directory):
    """Flips a bit in the middle of the last batches of a partition."""
    segment = sorted(directory.glob("*.log"))[-1]
    data = bytearray(segment.read_bytes())
    whole = sum(len(batch) for _, batch in batches(directory, segment))
    data[whole // 2 + 80] ^= 4
    segment.write_bytes(data)


main(globals(), parallel=1)
