"""A cluster under load: its clients, and their record of what must be present."""

import os
import pathlib
import tempfile
import time

import strict
from writer import Writer, read_all

from faults import say, strike_once
from history import JavaReader, JavaWriter, Ledger, Member, own_reader, own_writer
from network import Network
from nodes import Cluster
from replicas import compare
from security import Realm

PARTITIONS = 3
TOPICS = {"librdkafka": PARTITIONS, "java": PARTITIONS, "own": PARTITIONS}
# How clients of a secured cluster connect.
LOGIN = ("SASL_SSL", "SCRAM-SHA-512")
# The number of faults between two full checks.
STAGE = 12


class Ordeal:
    """A cluster with writers of several clients, and a group of readers for each."""

    def __init__(
        self, kind, name="", settings=None, release=None, dynamic=False, prepare=None, with_strict=False,
        metadata_age_ms=300_000, secured=False, protocol="classic",
    ):
        work = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="faults-"))
        self.directory = work / f"{kind}{name}"
        self.realm = Realm(work / f"{kind}{name}-realm") if secured else None
        self.cluster = Cluster(kind, self.directory, Network(), settings, release, dynamic, self.realm)
        # Preparation of the cluster before its start.
        self.prepare = prepare
        # Strict clients run only if no fault may cause errors.
        self.with_strict, self.strict = with_strict, {}
        self.topics = TOPICS | (strict.TOPICS if with_strict else {})
        # The writers' maximum metadata age.
        self.metadata_age_ms = metadata_age_ms
        # Where no client may see an error, the sessions of members outlast the pauses of a busy machine.
        self.session_ms = 30_000 if with_strict else 6000
        # The protocol of the groups of librdkafka and Java.
        self.protocol = protocol
        # How clients log in, in the environment.
        self.environment = {}
        self.processes = []

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def begin(self):
        say(f"{self.cluster.kind}, in {self.directory}")
        if self.prepare:
            self.prepare(self.cluster)
        if self.realm:
            self.log_in("admin")
        self.cluster.start()
        if self.realm:
            self.realm.allow_everything(self.cluster.bootstrap, "client", *LOGIN)
        self.cluster.create_topics(self.topics)
        if self.realm:
            self.log_in("client")
        bootstrap = self.cluster.bootstrap
        age = {"topic.metadata.refresh.interval.ms": self.metadata_age_ms}
        # With more than one in flight, librdkafka raises its epoch when a batch is refused as out of order, which happens
        # whenever an earlier one was refused, and resends in that epoch what other partitions may have stored: duplicates.
        self.writer = Writer(bootstrap, "librdkafka", PARTITIONS, **{"max.in.flight": 1, **age})
        # Kafka's producer sends to a new leader while answers of the old one are missing. Batches that both have are
        # then resent, and the oldest is refused as out of order once five later ones are stored, repeatedly until
        # delivery.timeout.ms, also by Apache Kafka. With one in flight, nothing later is stored.
        java = {"max.in.flight.requests.per.connection": 1, "metadata.max.age.ms": self.metadata_age_ms}
        self.java = JavaWriter(bootstrap, "java", PARTITIONS, self.directory / "java-writer", **java)
        self.java_reader = JavaReader(
            bootstrap, "java-readers", "java", self.directory / "java-reader", self.protocol, self.session_ms
        )
        self.own = own_writer(bootstrap, "own", self.directory / "own-writer", self.metadata_age_ms)
        self.own_reader = own_reader(bootstrap, "own-readers", "own", self.directory / "own-reader", self.session_ms)
        self.processes = [self.java, self.java_reader, self.own, self.own_reader]
        if self.with_strict:
            self.strict = strict.clients(bootstrap, self.directory)
            self.processes += self.strict.values()
        self.ledger = Ledger()
        self.members = [
            Member(bootstrap, "readers", "librdkafka", self.ledger, self.protocol, self.session_ms) for _ in range(2)
        ]
        self.clients = [self.writer, *self.members, *self.processes]
        for client in self.clients:
            client.start()
        self.progress = {
            "records of librdkafka in every partition": self.writer,
            "commits of librdkafka": self.ledger,
            "records of Java in every partition": self.java,
            "commits of Java": self.java_reader,
            "records of our own that were read again": self.own_reader,
            **{f"steps of {name}": client for name, client in self.strict.items()},
        }
        self.look()

    def log_in(self, user):
        """Clients that are made from now on are a user's."""
        self.environment = self.realm.client(*LOGIN, user)
        os.environ.update(self.environment)

    def __exit__(self, *_):
        self.end()

    def end(self):
        for client in self.processes:
            client.kill()
        self.cluster.end()
        for variable in self.environment:
            os.environ.pop(variable, None)

    def undergo(self, faults, source):
        """Applies faults in stages; after each, the cluster must recover by itself, and its clients must continue."""
        done = 0
        while done < faults:
            before, done = done, done + strike_once(self.cluster, source)
            if done // STAGE > before // STAGE:
                self.look()
        return done

    def look(self):
        """Waits until the cluster is healthy, and records are acknowledged and read again."""
        began = time.monotonic()
        self.cluster.wait_until_whole()
        self.wait_for_progress()
        self.assert_content()
        waited = time.monotonic() - began
        say(f"healthy after {waited:.1f} s, {self.writer.count()} and {self.java.count()} acknowledged in every partition")

    def wait_for_progress(self):
        """Waits until every client makes progress."""
        before = {name: client.count() for name, client in self.progress.items()}
        for name, client in self.progress.items():
            self.cluster.wait(f"more {name} than {before[name]}", lambda _: client.count() > before[name])

    def assert_content(self):
        assert not self.ledger.errors, self.ledger.errors[:5]
        assert not self.writer.failures, self.writer.failures[:5]

    def judge(self):
        """Stops the clients and compares their records with the cluster's."""
        for client in self.clients:
            client.finish()
        seen = self.cluster.wait_until_whole()
        bootstrap = self.cluster.bootstrap
        for partition in range(PARTITIONS):
            self.writer.check(read_all(bootstrap, "librdkafka", partition), partition)
        self.java.check([read_all(bootstrap, "java", partition) for partition in range(PARTITIONS)])
        self.own.check(read_all(bootstrap, "own", 0))
        self.own_reader.check()
        self.assert_content()
        compared = compare(self.cluster, seen, (*self.topics, "__consumer_offsets"))
        say(f"{compared} partitions have identical replicas; {self.ledger.count()} commits")

    def assert_no_client_met_an_error(self):
        """Checks that there was no error that a client does not retry itself."""
        assert not self.ledger.refused, self.ledger.refused[:5]
        assert not self.java_reader.failures(), self.java_reader.failures()[:5]
