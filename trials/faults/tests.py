"""Clusters of real processes under faults, with librdkafka and Java clients that track acknowledgements.

FAULTS is the number of random faults per kind of cluster, SEED their seed; by default a new one is chosen and printed.
KIND selects one kind of cluster for tests that run on several: `apache`, only Apache Kafka, validates the tests.
"""

import os
import random
import subprocess
import time

import certificate_tests
import consumer_protocol_tests
import damage_tests
from faults import say
import loss_tests
from moves import reassign
from network import CLIENTS
from nodes import SESSION_S, told
from ordeal import PARTITIONS, Ordeal
from replicas import batches
import share_tests
import streams_tests
from suite import NIGHTLY, Skip, each, main, nightly_only, until
import transaction_tests
import upgrade_tests
from writer import HURRIED_S, UNHURRIED_S, read_all

FAULTS = int(os.environ.get("FAULTS", "80" if NIGHTLY else "6"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))


def kinds(*own):
    """The kinds of a test, or the selected one."""
    return each(*([os.environ["KIND"]] if "KIND" in os.environ else own))


@kinds("embedded", "apache-controllers", "mixed")
def test_random_faults_lose_double_and_reorder_nothing(kind):
    if kind != "embedded":
        nightly_only()
    source = random.Random(f"{SEED} {kind}")
    # The features of Kafka's controllers: 4.3's defaults, or those of clusters created by 3.9.
    release = None if kind == "embedded" else source.choice([None, "3.9"])
    # Whether the voters are configured, or in the quorum's log.
    dynamic = kind != "embedded" and source.choice([False, True])
    with Ordeal(kind, "-faults", release=release, dynamic=dynamic) as ordeal:
        quorum = "voters in the log" if dynamic else "configured voters"
        say(f"{FAULTS} faults of seed {SEED}, {quorum}" + (f", formatted as {release}" if release else ""))
        began = time.monotonic()
        done = ordeal.undergo(FAULTS, source)
        ordeal.look()
        ordeal.judge()
        say(f"{kind}: {done} faults of seed {SEED} in {time.monotonic() - began:.0f} s")


@kinds("embedded", "apache-controllers", "mixed")
def test_rolling_restart_is_seen_by_no_client(kind):
    if kind != "embedded":
        nightly_only()
    with Ordeal(kind, "-rolling", with_strict=True) as ordeal:
        for node in ordeal.cluster.nodes:
            seconds = node.stop()
            say(f"{node.name} stopped cleanly in {seconds:.2f} s")
            node.start()
            ordeal.look()
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


@kinds("embedded", "mixed")
def test_leaders_and_coordinators_move_by_reassignment(kind):
    nightly_only()
    with Ordeal(kind, "-moves", with_strict=True) as ordeal:
        ids = [node.id for node in ordeal.cluster.brokers]
        for turn in range(2 * len(ids)):
            reassign(ordeal, lambda partition: [ids[(turn + partition + i) % len(ids)] for i in range(3)])
            ordeal.look()
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


@kinds("embedded")
def test_answers_of_a_leader_that_come_too_late_double_nothing(kind):
    """Producers learn of a new leader before the old one has answered, and resend."""
    nightly_only()
    with Ordeal(kind, "-answers", metadata_age_ms=1000) as ordeal:
        # The first broker may be the controller.
        for struck, other in ((2, 3), (3, 2)):
            reassign(ordeal, lambda _: [struck, other, 1])
            node, network = ordeal.cluster.broker(struck), ordeal.cluster.network
            answers = {(node.name, CLIENTS)}
            say(f"{node.name} can no longer reach clients")
            network.cut(answers)
            # All clients have their maximum in flight, and the followers have it, too.
            time.sleep(1)
            node.pause()
            ordeal.cluster.wait("other leaders", lambda seen: not leads(seen, struck))
            # Producers know the new leaders for this long, and still wait for answers.
            time.sleep(4)
            say(f"over: {node.name} reaches clients on new connections")
            node.resume()
            network.heal(answers, reset=True)
            ordeal.look()
        ordeal.judge()


def leads(seen, node_id):
    return any(p.leader == node_id for topic in seen.topics.values() for p in topic.partitions.values())


def test_quorum_loses_its_majority_and_gets_it_back():
    nightly_only()
    with Ordeal("apache-controllers", "-majority") as ordeal:
        first, second, _ = ordeal.cluster.controllers
        for kill in (True, False):
            say(f"two controllers are {'killed' if kill else 'paused'}")
            for node in (first, second):
                node.kill() if kill else node.pause()
            time.sleep(2 * SESSION_S)
            # Partitions with a leader are served.
            ordeal.wait_for_progress()
            for node in (first, second):
                node.start() if kill else node.resume()
            ordeal.look()
        # A decision that needs a majority.
        reassign(ordeal, lambda partition: [3 - (partition + i) % 3 for i in range(3)])
        ordeal.judge()


def test_metadata_version_is_raised_under_load():
    nightly_only()
    with Ordeal("apache-controllers", "-features", release="3.9") as ordeal:
        # From 3.9-IV0 to 4.3-IV0, by those that change requests or records.
        for level in ("metadata.version=23", "metadata.version=26", "eligible.leader.replicas.version=1"):
            ordeal.cluster.tool("FeatureCommand", "upgrade", "--feature", level)
            ordeal.look()
        ordeal.cluster.tool("FeatureCommand", "upgrade", "--feature", "metadata.version=30")
        for node in ordeal.cluster.brokers:
            node.kill()
            node.start()
            ordeal.look()
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


class SmallDisks:
    """Small disks for some brokers, until they are enlarged."""

    def __init__(self, *node_ids):
        nightly_only()
        if os.geteuid() != 0:
            raise Skip("only root can mount a small disk")
        self.node_ids, self.places = node_ids, []

    def __enter__(self):
        return self

    def mount(self, cluster):
        for node_id in self.node_ids:
            place = cluster.broker(node_id).data
            place.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", place], check=True)
            self.places.append(place)

    def make_room(self):
        for place in self.places:
            subprocess.run(["mount", "-o", "remount,size=1g", place], check=True)

    def __exit__(self, *_):
        for place in self.places:
            subprocess.run(["umount", "--lazy", place], check=True)


@kinds("embedded", "apache-controllers")
def test_disk_that_fills_stops_no_client(kind):
    with SmallDisks(3) as disks, Ordeal(kind, "-disk", prepare=disks.mount) as ordeal:
        ordeal.writer.pause_s = HURRIED_S
        ordeal.cluster.wait("others that lead", lambda seen: 3 not in seen.brokers)
        say("the disk is full")
        ordeal.wait_for_progress()
        disks.make_room()
        ordeal.writer.pause_s = UNHURRIED_S
        ordeal.look()
        ordeal.judge()


def test_disks_that_fill_together_leave_no_partition_without_a_leader():
    with SmallDisks(2, 3) as disks, Ordeal("apache-controllers", "-disks", prepare=disks.mount) as ordeal:
        away, *others = ordeal.cluster.brokers
        away.stop()
        ordeal.writer.pause_s = HURRIED_S
        until(lambda: all("Disk is full" in node.log_text() for node in others), "both disks full", 120)
        ordeal.writer.pause_s = UNHURRIED_S
        say("both disks are full")
        # Longer than any decision of one based on the other's state.
        settled, deadline = 0, time.monotonic() + 60
        while settled < 5:
            assert time.monotonic() < deadline, told(ordeal.cluster.metadata())
            settled = settled + 1 if all_led(ordeal.cluster.metadata()) else 0
            time.sleep(1)
        for partition in range(PARTITIONS):
            assert read_all(ordeal.cluster.bootstrap, "librdkafka", partition), "what is there can be read"
        disks.make_room()
        ordeal.wait_for_progress()
        away.start()
        ordeal.look()
        ordeal.judge()


def all_led(seen):
    return seen and all(p.leader >= 0 for topic in seen.topics.values() for p in topic.partitions.values())


@kinds("embedded", "mixed")
def test_corrupted_segment_of_a_follower_is_repaired_from_the_leader(kind):
    nightly_only()
    with Ordeal(kind, "-corrupted") as ordeal:
        for node in [node for node in ordeal.cluster.brokers if node.make == "thalweg"][:2]:
            node.kill()
            for place in node.data.glob("librdkafka-*"):
                damage(place)
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


main(
    globals(), certificate_tests, consumer_protocol_tests, damage_tests, loss_tests, share_tests, streams_tests, transaction_tests, upgrade_tests, parallel=1
)
