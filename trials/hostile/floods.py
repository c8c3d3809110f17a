#!/usr/bin/env python3
"""Floods of TLS handshakes and of logins, and what connections cost: Thalweg and Apache Kafka, one after the other.

    PYTHONPATH=compat/harness trials/hostile/floods.py [--seconds 20] [--idle 10000] [thalweg] [apache-kafka]

For each target:

- the latency of a calm producer over TLS: alone, during a flood of its broker, and during the same flood of another broker, which
  shows what the flood's clients take from the machine,
- processor seconds of the broker for a new TLS 1.3 connection with a client certificate, and for a SCRAM-SHA-512 login,
- memory for idle TLS connections.

The floods come from processes of low priority, so that they do not keep the calm producer from the processors that the broker
leaves. A line of JSON for each target at the end.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "compat" / "harness"), str(HERE.parent / "raw")]

from broker import TARGETS, Broker, kafka_classpath, thalweg_binary  # noqa: E402
from pki import make_certificates  # noqa: E402
from peer import Peer, Scram  # noqa: E402
from ports import free_port  # noqa: E402
from wire import Connection  # noqa: E402

PROCESSES, THREADS = 3, 16
USER, PASSWORD = "mallory", "mallory-secret"
MECHANISM = "SCRAM-SHA-512"
WARM_UP, MEASURED = 4000, 4000
API_VERSIONS = struct.pack(">ihhih", 14, 18, 0, 1, 4) + b"peer"


class Target(Broker):
    """A broker with a listener for TLS with client certificates and one for logins."""

    def __init__(self, target, directory):
        super().__init__(target, directory, heap="2g")
        self.ports = {"TLS": free_port(), "LOGIN": free_port()}
        self.hidden = "no name is hidden here"
        make_certificates(self.directory)
        self.scram = f"{MECHANISM}=[name={USER},password={PASSWORD}]"

    def _settings(self):
        listeners = {"PLAINTEXT": self.port, "TLS": self.ports["TLS"], "LOGIN": self.ports["LOGIN"]}
        controller = free_port()
        place = lambda names: ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items())
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": place({**listeners, "CONTROLLER": controller}),
            "advertised.listeners": place(listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.crt"),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.login.scram-sha-512.sasl.jaas.config":
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "offsets.topic.replication.factor": "1",
            "connections.max.idle.ms": "3600000",
        }

    def command(self):
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if self.target == "thalweg":
            return [thalweg_binary(), "serve", str(properties), "--add-scram", self.scram]
        java = ["java", "-server", "-Xms1g", "-Xmx4g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        java += ["-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true", "-cp", kafka_classpath()]
        words = ["format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk", "--config", str(properties), "--add-scram", self.scram]
        with open(self.log_path, "ab") as log:
            subprocess.run([*java, "kafka.tools.StorageTool", *words], check=True, stdout=log, stderr=log)
        return [*java, "kafka.Kafka", str(properties)]

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        if self.target == "apache-kafka":
            # What a full collection leaves: the heap would grow for other reasons, too.
            subprocess.run(["jcmd", str(self.pid), "GC.run"], check=True, capture_output=True)
            info = subprocess.run(["jcmd", str(self.pid), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
            used = int(info.partition(" used ")[2].partition("K")[0])
            return used / 1024
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(status[status.index("VmRSS:") + 6 :].split()[0]) / 1024


class Handshakes:
    """New TLS connections with a client certificate, each with one request."""

    def __init__(self, target):
        self.address = ("127.0.0.1", target.ports["TLS"])
        self.context = ssl.create_default_context(cafile=str(target.directory / "ca.crt"))
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.load_cert_chain(target.directory / "stranger.pem")

    def once(self):
        with self.open():
            pass

    def open(self):
        stream = self.context.wrap_socket(socket.create_connection(self.address, 60), server_hostname="127.0.0.1")
        stream.sendall(API_VERSIONS)
        size = struct.unpack(">i", exactly(stream, 4))[0]
        exactly(stream, size)
        return stream


class Logins:
    """New connections with a SCRAM-SHA-512 login, whose client has derived its key before."""

    def __init__(self, target):
        self.target, self.salted = target, {}

    def once(self):
        scram = Scram(MECHANISM, USER, PASSWORD, salted=self.salted)
        with Peer(self.target, "LOGIN") as peer:
            assert peer.handshake(MECHANISM) == 0
            code, challenge = peer.authenticate(scram.first())
            assert code == 0
            code, _ = peer.authenticate(scram.final(challenge))
            assert code == 0, f"the login is refused: {code}"


def exactly(stream, length):
    parts = b""
    while len(parts) < length:
        part = stream.recv(length - len(parts))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return parts


def flood(kind, target, limit, done, stopping):
    """One process of a flood: until `limit` connections were made by all, or the end."""
    os.nice(19)
    connections = kind(target)

    def work():
        while not stopping.is_set():
            with done.get_lock():
                if done.value >= limit:
                    return
                done.value += 1
            try:
                connections.once()
            except OSError:
                # Turned away, as a flood should be.
                time.sleep(0.01)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Flood:
    """A flood that goes on beside something else."""

    def __init__(self, kind, target, limit=1 << 40):
        self.done, self.stopping = multiprocessing.Value("q", 0), multiprocessing.Event()
        place = (kind, Place(target), limit, self.done, self.stopping)
        self.processes = [multiprocessing.Process(target=flood, args=place) for _ in range(PROCESSES)]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.join()

    def join(self):
        for process in self.processes:
            process.join()


class Place:
    """What a flood needs to know of a target."""

    def __init__(self, target):
        self.ports, self.directory, self.hidden = target.ports, target.directory, target.hidden


def per_second(kind, target):
    """Connections for each processor second of the broker, and for each second."""
    Flood(kind, target, WARM_UP).__enter__().join()
    cpu, began = target.cpu_seconds(), time.monotonic()
    Flood(kind, target, MEASURED).__enter__().join()
    return MEASURED / (target.cpu_seconds() - cpu), MEASURED / (time.monotonic() - began)


def calm(target, seconds):
    """Latencies of a producer of 500 records a second over TLS, in microseconds."""
    settings = target.directory / "calm.properties"
    settings.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\nacks=1\nlinger.ms=0\n"
        f"ssl.truststore.location={target.directory}/ca.crt\nssl.keystore.location={target.directory}/stranger.pem\n"
    )
    count = 500 * seconds
    words = ["--topic", "calm", "--num-records", str(count), "--record-size", "100", "--throughput", "500", "--json"]
    words += ["--warmup-records", str(count // 5), "--bootstrap-server", f"127.0.0.1:{target.ports['TLS']}"]
    run = subprocess.run(
        [thalweg_binary(), "producer-perf-test", *words, "--command-config", str(settings)], capture_output=True, text=True
    )
    if run.returncode:
        raise AssertionError(f"the calm producer failed: {run.stderr}")
    latency = json.loads(run.stdout)["steady_state"]["latency_us"]
    return {part: latency[part] for part in ("p50", "p99", "max")}


def hold(target, count, ready, release):
    """One process that keeps connections open."""
    handshakes = Handshakes(target)
    held = []
    with_threads = [threading.Thread(target=lambda: held.extend(handshakes.open() for _ in range(count // 8))) for _ in range(8)]
    for thread in with_threads:
        thread.start()
    for thread in with_threads:
        thread.join()
    ready.put(len(held))
    release.wait()


def idle_memory(target, count):
    """MiB that so many idle TLS connections take, and how many there were."""
    before = target.memory_mib()
    ready, release = multiprocessing.Queue(), multiprocessing.Event()
    place, each = Place(target), count // 5
    holders = [multiprocessing.Process(target=hold, args=(place, each, ready, release)) for _ in range(5)]
    for holder in holders:
        holder.start()
    open_count = sum(ready.get(timeout=600) for _ in holders)
    time.sleep(3)
    taken = target.memory_mib() - before
    release.set()
    for holder in holders:
        holder.join()
    return taken, open_count


def measure(name, work, options):
    """Measures a target. Another broker of the same kind takes the same floods, for what they do to the machine alone."""
    target, other = (Target(name, pathlib.Path(work) / f"{name}-{at}") for at in range(2))
    found = {"target": name}
    with target, other:
        for broker in (target, other):
            Connection(broker.bootstrap).new_topic("warm")
        calm(target, 5)
        found["calm_us"] = calm(target, options.seconds)
        for title, kind in (("handshakes", Handshakes), ("logins", Logins)):
            cpu, wall = per_second(kind, target)
            per_second(kind, other)
            found[title] = {"per_cpu_second": round(cpu), "per_second": round(wall)}
            for where, flooded in (("here", target), ("elsewhere", other)):
                with Flood(kind, flooded) as running:
                    began, before = time.monotonic(), running.done.value
                    found[title][f"calm_us, flood {where}"] = calm(target, options.seconds)
                    rate = (running.done.value - before) / (time.monotonic() - began)
                    found[title][f"per_second, flood {where}"] = round(rate)
            print(json.dumps(found, indent=1), flush=True)
    # On a broker without a past.
    with Target(name, pathlib.Path(work) / f"{name}-idle") as target:
        Flood(Handshakes, target, 500).__enter__().join()
        taken, count = idle_memory(target, options.idle)
        found["idle"] = {"connections": count, "MiB": round(taken, 1), "KiB_each": round(taken * 1024 / max(count, 1), 1)}
    print(json.dumps(found), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="floods-") as work:
        for name in options.targets:
            measure(name, work, options)


if __name__ == "__main__":
    main()
