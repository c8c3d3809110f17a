"""A cluster, and a Java program under load that says how far it is, and audits itself at the end."""

import os
import pathlib
import subprocess
import tempfile
import threading
import time

from broker import ROOT, kafka_classpath
from faults import say, strike_once
from moves import reassign
from network import Network
from nodes import Cluster
from replicas import compare

# The program drains what was begun within this time, and prints its audit.
AUDIT_S = 240


def java(classes, program, *arguments):
    """The command of a program in the classes of a suite."""
    folder = ROOT / "target" / "compat" / classes
    classpath = f"{kafka_classpath()}:{folder}:{folder}/jars/*"
    return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, program, *map(str, arguments)]


class Audited:
    """The program prints `so far NUMBER` as it goes. A subclass says what it is, and in `compared` which topics must have
    identical replicas at the end."""

    compared = ()
    # Those of them that are purged.
    purged = ()
    # The progress of a healthy program.
    step = 200

    def __init__(self, kind, name, settings=None):
        work = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="faults-"))
        self.directory = work / f"{kind}{name}"
        self.cluster = Cluster(kind, self.directory, Network(), settings)
        # The topics that `reassign` moves by default.
        self.topics = {}
        self.program, self.so_far, self.audit = None, 0, []

    def command(self):
        raise NotImplementedError

    def __enter__(self):
        try:
            say(f"{self.cluster.kind}, in {self.directory}")
            self.cluster.start()
            self.begin()
            self.look()
        except BaseException:
            self.end()
            raise
        return self

    def begin(self):
        self.program = self.spawn("program.log", self.command(), stdout=subprocess.PIPE)
        threading.Thread(target=self.read, daemon=True).start()

    def spawn(self, log, command, **pipes):
        """Starts a process whose errors go to a log."""
        environment = {**os.environ, "BOOTSTRAP": self.cluster.bootstrap, "WORK": str(self.directory)}
        with open(self.directory / log, "ab") as errors:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, env=environment, text=True, **pipes)

    def read(self):
        for line in self.program.stdout:
            if line.startswith("so far "):
                self.so_far = int(line.split()[-1])
            else:
                self.audit.append(line)

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.program is not None:
            self.program.kill()
        self.cluster.end()

    def look(self):
        """Waits until the cluster is healthy, and the program has made progress."""
        began, _ = time.monotonic(), self.cluster.wait_until_whole()
        wanted = self.so_far + self.step
        self.cluster.wait(f"{wanted} {self.compared[0]}", lambda _: self.so_far > wanted)
        assert self.program.poll() is None, f"the program exited unexpectedly: see {self.directory / 'program.log'}"
        say(f"healthy after {time.monotonic() - began:.1f} s, so far {self.so_far}")

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

    def move_each(self, *lists):
        """Moves these lists of topics one after the other, until every broker has led each partition twice."""
        for turn in range(2 * len(self.cluster.brokers)):
            for topics in lists:
                self.move(topics, turn + 1)
                self.look()

    def judge(self):
        self.program.stdin.write("end\n")
        self.program.stdin.close()
        self.program.wait(AUDIT_S)
        audit = "".join(self.audit)
        say(audit)
        assert "audit passed" in audit, audit
        count = compare(self.cluster, self.cluster.wait_until_whole(), self.compared, self.purged)
        say(f"{count} partitions have identical replicas")
