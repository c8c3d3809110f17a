"""Clusters of real processes: brokers of Thalweg or Apache Kafka, under the embedded controller, a dedicated one of Thalweg, or
three of Kafka's.

Owns the processes and their directories. All listeners are advertised through the proxies of `network`.
"""

import base64
import os
import shutil
import signal
import subprocess
import time

import login
from broker import answers, kafka_classpath, thalweg_binary, trusting
from certificates import replace
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from ports import free_port, release
from security import OF_A_CLUSTER

from java_log import log_to_stderr

# Like Kafka's defaults, adapted to one machine and a test of minutes.
SESSION_S = 4
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": str(SESSION_S * 1000),
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "leader.imbalance.check.interval.seconds": "10",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "4",
    "replica.lag.time.max.ms": "6000",
    "share.coordinator.state.topic.num.partitions": "4",
    # A coordinator that moves reads snapshots, too.
    "share.coordinator.snapshot.update.records.per.snapshot": "50",
}
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
JVM = ["java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
# The software of a kind's brokers, the roles of the first, and the software of dedicated controllers.
KINDS = {
    "single": (["thalweg"], "broker,controller", []),
    "embedded": (["thalweg"] * 3, "broker,controller", []),
    "own-controller": (["thalweg"] * 3, "broker", ["thalweg"]),
    "apache-controllers": (["thalweg"] * 3, "broker", ["apache"] * 3),
    "mixed": (["apache", "thalweg", "apache", "thalweg"], "broker", ["apache"] * 3),
    "apache-single": (["apache"], "broker,controller", []),
    "apache": (["apache"] * 3, "broker", ["apache"] * 3),
}
# The id of the first dedicated controller.
FIRST_CONTROLLER = 101


class Node:
    """One process with a directory."""

    def __init__(self, cluster, make, node_id, roles):
        self.cluster, self.make, self.id, self.roles = cluster, make, node_id, roles
        self.name = f"{'controller' if roles == 'controller' else 'broker'}-{node_id}"
        self.directory = cluster.directory / self.name
        self.data = self.directory / "data"
        self.directory.mkdir(parents=True)
        self.listeners = {"CLIENTS": None, "INTERNAL": None} if "broker" in roles else {}
        if "controller" in roles:
            self.listeners["CONTROLLER"] = None
        self.listeners = {name: free_port() for name in self.listeners}
        self.proxies = {name: cluster.network.listen(self.name, port) for name, port in self.listeners.items()}
        # Voters in the log are identified by their directory id.
        self.directory_id = base64.urlsafe_b64encode(b"\x01" + os.urandom(15)).decode().rstrip("=")
        self.keystore, self.truststore = self.directory / "keystore.pem", self.directory / "truststore.pem"
        if cluster.realm:
            cluster.realm.authority.sign("node", self.keystore)
            replace(self.truststore, cluster.realm.authority.ca.read_bytes())
        # What it runs, if it is Thalweg's and not the binary under test.
        self.binary = None
        self.process = None
        # Whether it may be down: it was killed on purpose.
        self.is_down = True

    def is_broker(self):
        return "broker" in self.roles

    def is_controller(self):
        return "controller" in self.roles

    def controller_address(self):
        return f"127.0.0.1:{self.proxies['CONTROLLER']}"

    def settings(self):
        """Its properties, the same for Thalweg and Kafka."""
        settings = {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "broker.rack": f"rack-{self.id % 2}",
            "log.dirs": str(self.data),
            "listeners": addresses(self.listeners),
            "controller.listener.names": "CONTROLLER",
            **self.cluster.quorum(),
            "advertised.listeners": addresses(self.proxies),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            **self.secured(),
            **self.cluster.settings,
        }
        if not self.is_broker():
            del settings["inter.broker.listener.name"], settings["broker.rack"]
        return settings

    def secured(self):
        """The settings of secured listeners, with certificates of the node's own."""
        realm = self.cluster.realm
        if not realm:
            return {}
        settings = realm.node_settings({"CLIENTS": ("SASL_SSL", {})}, OF_A_CLUSTER)
        return settings | {"ssl.keystore.location": str(self.keystore), "ssl.truststore.location": str(self.truststore)}

    def start(self):
        """Starts the process, without waiting until it serves."""
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()))
        with open(self.directory / "log", "ab") as log:
            if self.make == "thalweg":
                is_first = self.cluster.realm and self.is_controller() and not self.data.exists()
                users = self.cluster.realm.format_options() if is_first else []
                command = [self.binary or thalweg_binary(), "serve", str(properties), *users]
            else:
                temporary = f"-Djava.io.tmpdir={self.directory}"
                logging = log_to_stderr(self.directory / "log4j2.properties", "INFO")
                keys = self.cluster.realm.jvm_options() if self.cluster.realm else []
                command = [*JVM, *keys, temporary, logging, "-cp", kafka_classpath(), "kafka.Kafka", str(properties)]
                if not self.data.exists():
                    form = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config"]
                    form = [*command[:-2], *form, str(properties), *self.cluster.format_options(self)]
                    subprocess.run(form, check=True, stdout=log, stderr=log)
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.cluster.network.runs_as(self.name, self.process.pid)
        self.is_down = False

    def kill(self):
        """Kills it with SIGKILL."""
        self.is_down = True
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout=60):
        """Stops it cleanly, and returns the duration in seconds."""
        self.is_down = True
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(timeout)
        return time.monotonic() - began

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def empty(self):
        """Removes its data: the next start is a new machine with the same name."""
        shutil.rmtree(self.data)

    def empty_partition(self, topic, partition):
        """Removes one partition's directory; the data directory keeps its id."""
        shutil.rmtree(self.data / f"{topic}-{partition}")

    def has_failed(self):
        """Whether it exited unexpectedly."""
        return not self.is_down and self.process.poll() is not None

    def log_text(self):
        return (self.directory / "log").read_text(errors="replace")

    def log_tail(self, lines=15):
        return "\n".join(self.log_text().splitlines()[-lines:])


class Cluster:
    """All nodes of a kind of cluster: `single`, `embedded`, `own-controller`, `apache-controllers`, `mixed`, or Kafka's own,
    `apache-single` and `apache`.

    With a `realm` of `security` its listeners have TLS and logins, and an authorizer; clients log in by the environment.
    `release` is the Kafka release for which its controllers are formatted; with `dynamic` the voters are in the log
    (KIP-853), instead of the configuration.
    """

    def __init__(self, kind, directory, network, settings=None, release=None, dynamic=False, realm=None):
        self.kind, self.directory, self.network, self.release, self.dynamic = kind, directory, network, release, dynamic
        self.realm = realm
        self.directory.mkdir(parents=True)
        makes, first_role, controllers = KINDS[kind]
        roles = [first_role] + ["broker"] * (len(makes) - 1)
        self.replicas = min(3, len(makes))
        self.settings = {**SETTINGS, **replication(self.replicas), **(settings or {})}
        self.nodes = []
        self.nodes += [Node(self, make, FIRST_CONTROLLER + i, "controller") for i, make in enumerate(controllers)]
        self.nodes += [Node(self, make, 1 + i, role) for i, (make, role) in enumerate(zip(makes, roles))]
        self.brokers = [node for node in self.nodes if node.is_broker()]
        self.controllers = [node for node in self.nodes if node.is_controller()]
        self.bootstrap = ",".join(f"127.0.0.1:{node.proxies['CLIENTS']}" for node in self.brokers)
        self.admin = None

    def quorum(self):
        """The setting by which nodes find the controllers."""
        if self.dynamic:
            return {"controller.quorum.bootstrap.servers": ",".join(node.controller_address() for node in self.controllers)}
        return {"controller.quorum.voters": ",".join(f"{node.id}@{node.controller_address()}" for node in self.controllers)}

    def format_options(self, node):
        """The arguments for formatting a Kafka node's directory."""
        release = ["--release-version", self.release] if self.release else []
        if self.realm and node.is_controller():
            release += self.realm.format_options()
        if not self.dynamic:
            return release
        if not node.is_controller():
            return [*release, "--no-initial-controllers"]
        voters = ",".join(f"{node.id}@{node.controller_address()}:{node.directory_id}" for node in self.controllers)
        return [*release, "--initial-controllers", voters]

    def broker(self, node_id):
        return next(node for node in self.brokers if node.id == node_id)

    def start(self, timeout=120):
        for node in self.nodes:
            node.start()
        client = {"bootstrap.servers": self.bootstrap, **login.librdkafka()}
        self.admin = AdminClient({**client, "log_level": 0, "socket.timeout.ms": 10000})
        self.wait("all brokers", lambda seen: len(seen.brokers) == len(self.brokers), timeout)
        return self

    def in_flight(self):
        """The maximum requests in flight of a producer: after kill -9 Kafka remembers only a producer's last batch,
        and duplicates a second one in flight."""
        return 5 if all(node.make == "thalweg" for node in self.brokers) else 1

    def create_topics(self, partitions):
        """Creates topics with this many partitions, and the replication factor of the cluster's internal topics."""
        topics = [NewTopic(name, count, self.replicas) for name, count in partitions.items()]
        for created in self.admin.create_topics(topics, request_timeout=60).values():
            created.result(60)

    def metadata(self):
        """A broker's description of the cluster, or None if none answers."""
        try:
            return self.admin.list_topics(timeout=5)
        except KafkaException:
            return None

    def wait(self, what, condition, timeout=120):
        """Waits until a broker's description of the cluster meets a condition."""
        deadline, seen = time.monotonic() + timeout, None
        while True:
            seen = self.metadata() or seen
            if seen and condition(seen):
                return seen
            failed = [node for node in self.nodes if node.has_failed()]
            assert not failed, f"{failed[0].name} exited unexpectedly\n{failed[0].log_tail()}"
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}; last seen: {told(seen)}"
            time.sleep(0.2)

    def wait_until_whole(self, timeout=120):
        """Waits for all brokers, and for all replicas of every partition to be in sync."""
        # A restarted broker answers once it has registered again; until then its old registration may look healthy.
        ports = [node.listeners["CLIENTS"] for node in self.brokers]
        tls = trusting(self.realm.node) if self.realm else None
        self.wait("all brokers", lambda _: all(answers("127.0.0.1", port, tls=tls) for port in ports), timeout)

        def whole(seen):
            partitions = [p for topic in seen.topics.values() for p in topic.partitions.values()]
            in_sync = all(p.leader >= 0 and set(p.isrs) == set(p.replicas) for p in partitions)
            return in_sync and len(seen.brokers) == len(self.brokers)

        return self.wait("all replicas in sync", whole, timeout)

    def tool(self, name, *arguments):
        """The output of one of Kafka's tools."""
        command = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath()]
        command += [f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap]
        command += [*login.java_arguments(), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.directory)
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def end(self):
        """Kills running processes by id, and releases their ports."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()
            for port in node.listeners.values():
                release(port)


def replication(replicas):
    """The settings for this many replicas of every partition, tolerating the loss of one."""
    in_sync = str(max(1, replicas - 1))
    factors = ("default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    factors += ("share.coordinator.state.topic.replication.factor",)
    settings = {"min.insync.replicas": in_sync, "transaction.state.log.min.isr": in_sync}
    settings["share.coordinator.state.topic.min.isr"] = in_sync
    return settings | dict.fromkeys(factors, str(replicas))


def addresses(ports):
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def told(seen):
    """A one-line summary of a broker's description of the cluster."""
    if not seen:
        return "nobody answers"
    lacking = [
        f"{topic.topic}-{p.id} leader {p.leader} replicas {p.replicas} in sync {p.isrs}"
        for topic in seen.topics.values()
        for p in topic.partitions.values()
        if p.leader < 0 or set(p.isrs) != set(p.replicas)
    ]
    return f"brokers {sorted(seen.brokers)}; " + "; ".join(lacking)
