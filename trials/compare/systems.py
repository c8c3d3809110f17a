"""The two compared systems: a broker's resource usage, and warm memory for both."""

import contextlib
import json
import mmap
import os
import pathlib
import resource
import socket
import subprocess
import time

from broker import ROOT, Broker, thalweg_binary
from wire import METADATA, Closed, Connection, array, batch, string

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SYSTEMS = ("thalweg", "apache-kafka")

# Everything else is at the defaults. One broker cannot replicate the offsets topic three times, and the data of a run
# must leave the disk before the next one.
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}


class System(Broker):
    """A broker with its defaults, but for `settings`, and its resource usage."""

    def __init__(self, target, directory, settings=None, **others):
        super().__init__(target, directory, SETTINGS | (settings or {}), **others)

    def cpu_s(self):
        """User and system time of the process so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_kib(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise RuntimeError(f"{self.target} reports no resident memory")

    @contextlib.contextmanager
    def topic(self, partitions):
        """A topic for one run, deleted from the disk at the end, so that no run writes back another's data."""
        with Connection(self.bootstrap) as connection:
            name = connection.new_topic("compare", partitions)
        yield name
        with Connection(self.bootstrap) as connection:
            connection.delete_topic(name)
        deadline = time.monotonic() + 30
        while any(path.name.startswith(f"{name}-") for path in self.data_dir.iterdir()):
            if time.monotonic() > deadline:
                print(f"  {self.target} still has files of {name}")
                return
            time.sleep(0.1)

    def first_acknowledged(self, timeout=120):
        """Starts the process on its data and returns the seconds from exec to the first acknowledged record."""
        command = self.command()
        began = time.monotonic()
        self.launch(command)
        while time.monotonic() - began < timeout:
            with contextlib.suppress(OSError, Closed):
                with Connection(self.bootstrap) as connection:
                    connection.ask(METADATA, 4, array([string("first")]) + b"\1")
                    if connection.produce("first", batch([b"hello"]))[0] == 0:
                        return time.monotonic() - began
            time.sleep(0.001)
        raise RuntimeError(f"{self.target} acknowledged nothing within {timeout} s\n{self.log_tail()}")


def warm(directory, written_bytes):
    """Writes and deletes twice the bytes of a run: pages new to a virtual machine are more expensive."""
    path, block = pathlib.Path(directory) / "warm", mmap.mmap(-1, 1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(2 * written_bytes >> 20):
            file.write(block)
    path.unlink()


def client(command):
    """Runs a client; returns its last line that is JSON, and its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def generator(verb, *arguments):
    """Runs a Thalweg perf tool against either system."""
    return client([thalweg_binary(), verb, "--json", *map(str, arguments)])


def librdkafka(*arguments):
    return client([str(ROOT / "target/compat/librdkafka-perf/perf"), *map(str, arguments)])


def bare_copy(directory, total, block=1 << 20):
    """Measures MB/s of a bare copy from a loopback socket to a file: the ceiling of any broker on this machine."""
    receiver = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        with socket.create_connection(receiver.getsockname()) as sender:
            data = memoryview(bytes(block))
            for sent in range(0, total, block):
                sender.sendall(data[: min(block, total - sent)])
        os._exit(0)
    buffer, path = memoryview(bytearray(block)), pathlib.Path(directory) / "copy"
    connection, _ = receiver.accept()
    began, got = time.monotonic(), 0
    with connection, open(path, "wb", buffering=0) as file:
        while got < total:
            length = connection.recv_into(buffer, block, socket.MSG_WAITALL)
            if not length:
                raise RuntimeError(f"the sender exited after {got} of {total} bytes")
            file.write(buffer[:length])
            got += length
    seconds = time.monotonic() - began
    os.waitpid(child, 0)
    receiver.close()
    path.unlink()
    return total / seconds / 2**20


def bare_echo(rounds, size=100):
    """Measures sorted latencies in microseconds of a bare echo over loopback between two processes: the floor of any broker's latency."""
    receiver = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        connection, _ = receiver.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(size):
            connection.sendall(data)
        os._exit(0)
    times, data = [], bytes(size)
    with socket.create_connection(receiver.getsockname()) as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(rounds):
            began = time.perf_counter()
            sender.sendall(data)
            sender.recv(size, socket.MSG_WAITALL)
            times.append((time.perf_counter() - began) * 1e6)
    os.waitpid(child, 0)
    receiver.close()
    return sorted(times)
