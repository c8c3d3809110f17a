"""Groups of the consumer protocol (KIP-848) under faults: brokers and members are killed, and coordinators move between
brokers, also of both makes, while members come and go. No commit may be lost, no record read out of order, and a move
must not make a group rebalance.
"""

import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import login
from broker import ROOT
from faults import say
from moves import reassign
from ordeal import Ordeal
from suite import NIGHTLY, each, nightly_only, until

FAULTS = int(os.environ.get("FAULTS", "40" if NIGHTLY else "4"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))
# Another member of librdkafka's group.
MEMBER = ROOT / "compat" / "confluent-kafka" / "member.py"


def kinds(*own):
    return each(*([os.environ["KIND"]] if "KIND" in os.environ else own))


class Churn(threading.Thread):
    """Members that join a group and are killed with SIGKILL, as long as it runs."""

    def __init__(self, bootstrap, group, topic, source):
        super().__init__(daemon=True)
        self.bootstrap, self.group, self.topic, self.source = bootstrap, group, topic, source
        self.stopping, self.killed = threading.Event(), 0

    def run(self):
        environment = {**os.environ, **login_environment(), "BOOTSTRAP": self.bootstrap}
        while not self.stopping.is_set():
            command = [sys.executable, MEMBER, self.group, self.topic]
            member = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
            self.stopping.wait(self.source.uniform(2, 8))
            member.kill()
            member.wait()
            self.killed += 1

    def finish(self):
        self.stopping.set()
        self.join()


def login_environment():
    """What `member.py` needs to find the harness."""
    return {"PYTHONPATH": str(pathlib.Path(login.__file__).parent)}


@kinds("embedded", "apache-controllers", "mixed")
def test_consumer_protocol_groups_go_on_under_faults(kind):
    nightly_only()
    source = random.Random(f"{SEED} {kind} consumer")
    with Ordeal(kind, "-consumer-protocol", protocol="consumer") as ordeal:
        say(f"{FAULTS} faults of seed {SEED}")
        churn = Churn(ordeal.cluster.bootstrap, "readers", "librdkafka", source)
        churn.start()
        done = ordeal.undergo(FAULTS, source)
        churn.finish()
        ordeal.look()
        ordeal.judge()
        say(f"{kind}: {done} faults of seed {SEED}, {churn.killed} members killed")


@kinds("embedded", "mixed")
def test_consumer_protocol_coordinators_move_in_the_middle_of_rebalances(kind):
    if kind != "embedded":
        nightly_only()
    source = random.Random(f"{SEED} {kind} moves")
    with Ordeal(kind, "-consumer-moves", protocol="consumer") as ordeal:
        churn = Churn(ordeal.cluster.bootstrap, "readers", "librdkafka", source)
        churn.start()
        for turn in range(2 * len(ordeal.cluster.brokers) if NIGHTLY else 3):
            move_coordinators(ordeal, turn)
            time.sleep(source.uniform(0, 3))
            ordeal.look()
        churn.finish()
        ordeal.look()
        ordeal.judge()
        say(f"{kind}: {churn.killed} members killed")


@kinds("embedded", "mixed")
def test_consumer_protocol_groups_do_not_rebalance_when_their_coordinator_moves(kind):
    """Their epoch stays: the hash of the topics with their racks is the same by every make, and so are all records."""
    nightly_only()
    with Ordeal(kind, "-consumer-epochs", protocol="consumer") as ordeal:
        groups = ("readers", "java-readers")
        until(lambda: all(state(ordeal, group)[0] == "Stable" for group in groups), "stable groups", 60)
        before = {group: state(ordeal, group) for group in groups}
        for turn in range(len(ordeal.cluster.brokers)):
            move_coordinators(ordeal, turn)
            ordeal.look()
            # Every member has sent heartbeats to the new coordinator.
            time.sleep(2)
            after = {group: state(ordeal, group) for group in groups}
            assert after == before, f"{before} before the coordinator moved, {after} behind it"
        ordeal.judge()
        say(f"{kind}: {before}")


def state(ordeal, group):
    """The state, group epoch and target assignment epoch of a group."""
    said = ordeal.cluster.tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state", "--verbose")
    head, row = [line.split() for line in said.splitlines() if line.strip()][-2:]
    # "COORDINATOR (ID)" is one column with two words, in both lines.
    found = dict(zip(head, row, strict=True))
    return found["STATE"], found["GROUP-EPOCH"], found["TARGET-ASSIGNMENT-EPOCH"]


def move_coordinators(ordeal, turn):
    """Every partition of the offsets topic gets other replicas and another leader, each turn."""
    ids = [node.id for node in ordeal.cluster.brokers]
    replicas = ordeal.cluster.replicas
    wanted = lambda index: [ids[(turn + index + i) % len(ids)] for i in range(replicas)]
    reassign(ordeal, wanted, topics=["__consumer_offsets"])
