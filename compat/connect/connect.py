"""Workers of Kafka Connect in distributed mode, MirrorMaker in its dedicated mode, and connectors by the REST interface."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from broker import kafka_classpath
from java_log import log_to_stderr
from ports import free_port
from suite import until

WORK = pathlib.Path(os.environ.get("WORK", "."))
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
# While workers rebalance, or read their topics, they refuse.
BUSY = (409, 500, 503)

# Short times, so that tests need not wait.
WORKER_SETTINGS = {
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "3",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "2",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "rest.advertised.host.name": "127.0.0.1",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "rebalance.timeout.ms": "10000",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
    "task.shutdown.graceful.timeout.ms": "2000",
    "plugin.discovery": "service_load",
    "consumer.metadata.max.age.ms": "2000",
}


class Refused(Exception):
    """The REST interface answered with an error: its status and text."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


class Java:
    """A program of Kafka that runs until it is stopped, with its settings and its log in files."""

    def __init__(self, name, main_class, settings):
        self.name, self.main_class = name, main_class
        self.log = WORK / f"{name}.log"
        self.properties = WORK / f"{name}.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.process = None

    def start(self):
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", kafka_classpath()]
        java += [log_to_stderr(WORK / f"{self.name}.log4j.properties", "info")]
        with open(self.log, "ab") as log:
            command = [*java, self.main_class, str(self.properties)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=WORK)
        return self

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def check_alive(self):
        assert self.is_alive(), f"{self.name} exited with {self.process.returncode}: see {self.log}"

    def kill(self):
        """Kills the process with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @contextlib.contextmanager
    def paused(self):
        """Stops the process by SIGSTOP for the time of a block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, timeout=20):
        """Stops the process cleanly; kills it if it does not exit."""
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()


class Worker(Java):
    """A worker in distributed mode; workers of one group have its topics in common."""

    def __init__(self, group, bootstrap, number=1, more=None):
        self.group, self.port = group, free_port()
        topics = {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")}
        place = {"group.id": group, "bootstrap.servers": bootstrap, "listeners": f"http://127.0.0.1:{self.port}"}
        own = WORKER_SETTINGS | topics | place | (more or {})
        super().__init__(f"{group}-{number}", "org.apache.kafka.connect.cli.ConnectDistributed", own)

    @property
    def address(self):
        """The name of this worker in the state of connectors and tasks."""
        return f"127.0.0.1:{self.port}"

    def wait_until_ready(self, timeout=60):
        """Waits until the worker has read its topics and joined its group."""

        def ready():
            self.check_alive()
            try:
                return self.request("GET", "/health")["status"] == "healthy"
            except (Refused, OSError):
                return False

        until(ready, f"{self.name} is healthy, see {self.log}", timeout=timeout)
        return self

    def request(self, method, path, body=None):
        """One request; its answer, or `Refused`."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as refusal:
            raise Refused(refusal.code, refusal.read().decode(errors="replace")) from refusal

    def ask(self, method, path, body=None, timeout=20):
        """The answer of a request that is repeated while the workers are busy."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.request(method, path, body)
            except Refused as refusal:
                if refusal.status not in BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def connector(self, name, config):
        """Creates a connector with one task, and waits until both run."""
        connector = Connector(self, name)
        connector.ask("PUT", "/config", {"tasks.max": "1", **config})
        connector.wait_for("RUNNING", tasks=1)
        return connector

    def source(self, name, file, topic, **more):
        """A connector that reads the lines of a file; more settings have underscores for dots, or are given by name."""
        return self.connector(name, {"connector.class": FILE_SOURCE, "file": str(file), "topic": topic, **settings(more)})

    def sink(self, name, file, topic, **more):
        """A connector that appends values to a file."""
        config = {"connector.class": FILE_SINK, "file": str(file), "topics": topic, **settings(more)}
        return self.connector(name, config)


def settings(named):
    """Settings from keyword arguments."""
    return {key.replace("_", "."): value for key, value in named.items()}


class Connector:
    """A connector, by way of one worker."""

    def __init__(self, worker, name):
        self.worker, self.name = worker, name

    def via(self, worker):
        """The same connector by way of another worker."""
        return Connector(worker, self.name)

    def ask(self, method, path="", body=None):
        return self.worker.ask(method, f"/connectors/{urllib.parse.quote(self.name)}{path}", body)

    def status(self):
        """The connector's state and the tasks', with their workers; None while none is known."""
        try:
            return self.worker.request("GET", f"/connectors/{self.name}/status")
        except Refused as refusal:
            if refusal.status in (404, *BUSY):
                return None
            raise

    def wait_for(self, state, tasks, timeout=20, worker=None):
        """Waits until the connector and as many tasks are in a state, at one worker if that is given."""
        seen = None

        def there():
            nonlocal seen
            seen = self.status()
            parts = [seen["connector"], *seen["tasks"]] if seen else []
            return len(parts) == 1 + tasks and all(
                part["state"] == state and worker in (None, part["worker_id"]) for part in parts
            )

        try:
            until(there, f"{self.name} is {state} with {tasks} tasks", timeout=timeout)
        except AssertionError as late:
            raise AssertionError(f"{late}: {seen}") from late
        return seen

    def offsets(self):
        """Pairs of partition and offset, as Connect shows them.

        Connect lists the partitions before it reads its topic to the end: a partition whose offset has just been
        reset is listed without one."""
        entries = self.ask("GET", "/offsets")["offsets"]
        return [(entry["partition"], entry["offset"]) for entry in entries if entry["offset"] is not None]

    def stop(self):
        self.ask("PUT", "/stop")
        self.wait_for("STOPPED", tasks=0)

    def resume(self):
        self.ask("PUT", "/resume")
        self.wait_for("RUNNING", tasks=1)

    def delete(self):
        self.ask("DELETE")
