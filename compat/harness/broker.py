"""Brokers under test: starts Thalweg or Apache Kafka on free loopback ports in a separate directory.

Owns the processes it starts and stops each by its process id. Independent of the suites.
"""

import os
import pathlib
import signal
import socket
import ssl
import struct
import subprocess
import time

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ("thalweg", "apache-kafka")

# Settings of both targets: no initial rebalance delay, short sessions of the consumer protocol, few partitions for
# groups, and no retention, which would remove records with old timestamps half a minute after the start.
SUITE_SETTINGS = {
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "1000",
}


class BrokerFailed(Exception):
    """The broker process exited or did not answer in time; contains the path of its log."""


def kafka_classpath():
    """The class path of the pinned Kafka release, fetched once into target/."""
    fetch = ROOT / "compat" / "kafka-jars" / "fetch"
    return subprocess.run([fetch], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def thalweg_binary():
    """The release binary, or the one in THALWEG_BIN."""
    return os.environ.get("THALWEG_BIN", str(ROOT / "target" / "release" / "thalweg"))


def trusting(certificate):
    """The TLS context of a check that a node is up: it trusts every node, and shows a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate)
    return context


def answers(host, port, timeout=1.0, tls=None):
    """Whether a broker answers an ApiVersions v0 request there."""
    client = b"await"
    request = struct.pack(">hhih", 18, 0, 1, len(client)) + client
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.settimeout(timeout)
            with tls.wrap_socket(connection) if tls else connection as stream:
                stream.sendall(struct.pack(">i", len(request)) + request)
                return len(stream.recv(4)) > 0
    except OSError:
        return False


class Broker:
    """One single-node broker whose data outlives its process until the directory is removed.

    With a `realm` of `security` its listeners are secured, {name: (protocol, {setting: value})}, the first at `port`, and
    both targets read the same server.properties.
    """

    def __init__(self, target, directory, settings=None, heap="1g", realm=None, listeners=None):
        self.target = target
        self.directory = pathlib.Path(directory)
        self.settings = dict(settings or {})
        self.heap = heap
        self.host = "127.0.0.1"
        self.realm, self.listeners = realm, listeners or {}
        self.ports = {name: free_port() for name in self.listeners or ["PLAINTEXT"]}
        self.port = next(iter(self.ports.values()))
        # Of a secured node, whose clients' listeners may trust others than its own authority.
        self.internal = free_port() if realm else None
        self.data_dir = self.directory / "data"
        self.is_formatted = (self.directory / "server.properties").exists()
        self.log_path = self.directory / "broker.log"
        self.process = None
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self):
        return f"{self.host}:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    def command(self):
        """The command line of the server; for Kafka it also formats a new directory."""
        if self.target == "thalweg":
            if not pathlib.Path(thalweg_binary()).exists():
                raise BrokerFailed(f"{thalweg_binary()} is missing: run cargo build --release -p thalweg")
            if self.realm:
                users = [] if self.is_formatted else self.realm.format_options()
                self.is_formatted = True
                return [thalweg_binary(), "serve", str(self._write_properties()), *users]
            pairs = [part for pair in self.settings.items() for part in ("--set", "=".join(pair))]
            place = ["--data-dir", str(self.data_dir), "--listen", self.bootstrap]
            return [thalweg_binary(), "serve", *place, *pairs]
        return self._kafka_command()

    def start(self, timeout=60.0):
        """Starts the process and returns when it answers requests."""
        self.launch(self.command())
        deadline = time.monotonic() + timeout
        tls = trusting(self.realm.node) if self.realm else None
        while not answers(self.host, self.internal if self.realm else self.port, tls=tls):
            if self.process.poll() is not None:
                raise BrokerFailed(f"{self.target} exited with {self.process.returncode}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"{self.target} did not answer within {timeout} s\n{self.log_tail()}")
            time.sleep(0.02)
        return self

    def launch(self, command):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )

    def stop(self, timeout=30.0):
        """Stops the process cleanly; kills it if it does not exit."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self):
        """Kills the process with SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def log_tail(self, lines=20):
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def format(self):
        """Formats the directory with Kafka's storage tool, for either target."""
        form = ["kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk"]
        form += ["--config", str(self._write_properties()), *(self.realm.format_options() if self.realm else [])]
        with open(self.log_path, "ab") as log:
            subprocess.run([*self._java(), *form], check=True, stdout=log, stderr=log)
        self.is_formatted = True

    def _write_properties(self):
        properties = self.directory / "server.properties"
        if not properties.exists():
            properties.write_text(self._kafka_properties())
        return properties

    def _java(self):
        # The options of Kafka's own start script. Without a logging configuration Kafka logs errors only.
        java = ["java", "-server", f"-Xms{self.heap}", f"-Xmx{self.heap}", "-XX:+UseG1GC"]
        java += ["-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
        java += ["-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"]
        return [*java, *(self.realm.jvm_options() if self.realm else []), "-cp", kafka_classpath()]

    def _kafka_command(self):
        if not self.is_formatted:
            self.format()
        return [*self._java(), "kafka.Kafka", str(self._write_properties())]

    def _kafka_properties(self):
        listeners = dict(self.ports)
        if self.realm:
            listeners["INTERNAL"] = self.internal
        controller = f"127.0.0.1:{free_port()}"
        addresses = [f"{name}://{self.host}:{port}" for name, port in listeners.items()]
        secured = self.realm.node_settings(self.listeners) if self.realm else {}
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*addresses, f"CONTROLLER://{controller}"]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            **secured,
            **self.settings,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())
