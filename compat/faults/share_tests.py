"""Share groups (KIP-932) under faults: leaders, share coordinators and group coordinators are killed, paused and moved, also
between brokers of both makes. No record that was acknowledged as accepted may be delivered and settled again, and none
may be lost.
"""

import os
import pathlib
import random
import subprocess
import tempfile
import threading
import time

from broker import ROOT, kafka_classpath
from consumer_protocol_tests import FAULTS, SEED, kinds, of_ci
from faults import say, strike_once
from moves import reassign
from network import Network
from nodes import Cluster
from replicas import compare
from suite import NIGHTLY

TOPIC, STATES, OFFSETS = "ordeal", "__share_group_state", "__consumer_offsets"
PARTITIONS, MEMBERS = 3, 6
# The group drains within this time, and is audited.
AUDIT_S = 240


class Shared:
    """A cluster, and a share group of Java consumers under load."""

    def __init__(self, kind, name):
        work = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="faults-"))
        self.directory = work / f"{kind}{name}"
        self.cluster = Cluster(kind, self.directory, Network())
        self.topics = {TOPIC: PARTITIONS}
        self.group, self.accepted, self.audit = None, 0, []

    def __enter__(self):
        try:
            say(f"{self.cluster.kind}, in {self.directory}")
            self.cluster.start()
            classes = f"{ROOT / 'target' / 'compat' / 'share-groups'}:{kafka_classpath()}"
            command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "ShareOrdeal"]
            command += [self.cluster.bootstrap, str(PARTITIONS), str(MEMBERS), str(self.cluster.replicas)]
            with open(self.directory / "members.log", "ab") as log:
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
                self.group = subprocess.Popen(command, text=True, **pipes)
            threading.Thread(target=self.read, daemon=True).start()
            self.look()
        except BaseException:
            self.end()
            raise
        return self

    def read(self):
        for line in self.group.stdout:
            if line.startswith("so far "):
                self.accepted = int(line.split()[-1])
            else:
                self.audit.append(line)

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.group is not None:
            self.group.kill()
        self.cluster.end()

    def look(self):
        """Waits until the cluster is healthy, and more records are accepted than were in flight."""
        began, _ = time.monotonic(), self.cluster.wait_until_whole()
        wanted = self.accepted + 200
        self.cluster.wait(f"{wanted} accepted records", lambda _: self.accepted > wanted)
        assert self.group.poll() is None, f"the group exited unexpectedly: see {self.directory / 'members.log'}"
        say(f"healthy after {time.monotonic() - began:.1f} s, {self.accepted} accepted")

    def undergo(self, faults, source):
        done = 0
        while done < faults:
            done += strike_once(self.cluster, source)
            self.look()
        return done

    def move(self, topics, turn):
        """Every partition of these topics gets other replicas and another leader, each turn."""
        ids = [node.id for node in self.cluster.brokers]
        replicas = self.cluster.replicas
        reassign(self, lambda index: [ids[(turn + index + i) % len(ids)] for i in range(replicas)], topics=topics)

    def judge(self):
        self.group.stdin.close()
        self.group.wait(AUDIT_S)
        audit = "".join(self.audit)
        say(audit)
        assert "audit passed" in audit, audit
        compared = compare(self.cluster, self.cluster.wait_until_whole(), (TOPIC, STATES, OFFSETS))
        say(f"{compared} partitions have identical replicas")


@kinds("embedded", "apache-controllers", "mixed")
def test_share_groups_lose_and_repeat_nothing_under_faults(kind):
    of_ci(kind)
    source = random.Random(f"{SEED} {kind} share")
    with Shared(kind, "-share") as shared:
        say(f"{FAULTS} faults of seed {SEED}")
        done = shared.undergo(FAULTS, source)
        shared.judge()
        say(f"{kind}: {done} faults of seed {SEED}")


@kinds("embedded", "apache-controllers", "mixed")
def test_share_groups_go_on_when_leaders_and_coordinators_move(kind):
    of_ci(kind)
    with Shared(kind, "-share-moves") as shared:
        for turn in range(2 * len(shared.cluster.brokers) if NIGHTLY else 1):
            for topics in ([TOPIC], [STATES], [OFFSETS]):
                shared.move(topics, turn + 1)
                shared.look()
        shared.judge()
