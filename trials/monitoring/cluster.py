"""A cluster of three brokers under load, and a Prometheus that scrapes it, started once for the suite."""

import atexit
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from broker import thalweg_binary
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from ports import free_port, release
from suite import Skip, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
BROKERS = 3
SCRAPE = "1s"
TOPIC, UNREPLICATED, GROUP = "orders", "clicks", "billing"
_starting = threading.Lock()


def work():
    """A directory for the suite's files."""
    place = os.environ.get("WORK")
    return pathlib.Path(place) if place else pathlib.Path(tempfile.mkdtemp(prefix="monitoring-"))


def get(url, accept=None):
    """The answer of a server: its headers and its text."""
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers, answer.read().decode()


def stopped(process, by=signal.SIGTERM):
    """Ends a process that this suite started."""
    if process.poll() is None:
        process.send_signal(by)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def started(command, log, **options):
    """A process, stopped with the suite."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)
    atexit.register(stopped, process)
    return process


class Cluster:
    """`thalweg cluster up`, each node with its metrics at a free port."""

    def __init__(self, place, *settings):
        self.place, self.log = place, place.with_suffix(".log")
        command = [thalweg_binary(), "cluster", "up", "--brokers", str(BROKERS), "--port", "0", "--dir", str(place)]
        for setting in ("http.listener=127.0.0.1:0", "group.initial.rebalance.delay.ms=0", *settings):
            command += ["--set", setting]
        self.process = started(command, self.log)
        self.metrics = until(self._metrics, f"metrics of {BROKERS} nodes, see {self.log}", timeout=60)
        self.bootstrap = until(self._bootstrap, f"a bootstrap address in {self.log}", timeout=60)

    def _metrics(self):
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-2000:]
        logs = [path.read_text(errors="replace") for path in sorted(self.place.glob("*/broker.log"))]
        found = [re.search(r"Metrics are at http://(\S+)/metrics", log) for log in logs]
        return [match[1] for match in found] if len(found) == BROKERS and all(found) else None

    def _bootstrap(self):
        found = re.search(r"127\.0\.0\.1:\d+(?:,127\.0\.0\.1:\d+)+", self.log.read_text(errors="replace"))
        return found and found[0]


class Load:
    """Producers, a group that falls behind, a transaction now and then; until it is stopped."""

    def __init__(self, bootstrap):
        self.bootstrap, self.end, self.failure = bootstrap, threading.Event(), None
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [
            NewTopic(TOPIC, 6, 3),
            # Of one replica: the coordinator of a group most often has none of a partition.
            NewTopic(UNREPLICATED, 6, 1),
            NewTopic("state", 2, 3, config={"cleanup.policy": "compact", "flush.messages": "10"}),
        ]
        for created in admin.create_topics(topics).values():
            created.result(30)
        # Python waits for threads that are no daemons before it calls `stop`.
        works = (self._produce, self._consume)
        self.threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in self.threads:
            thread.start()
        atexit.register(self.stop)

    def stop(self):
        self.end.set()
        for thread in self.threads:
            thread.join()

    def _guarded(self, run):
        try:
            run()
        except Exception as failure:  # reported by the tests
            self.failure = failure

    def _produce(self):
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 5})
        transactional = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "monitoring"})
        transactional.init_transactions(30)
        number = 0
        while not self.end.is_set():
            for topic in (TOPIC, UNREPLICATED, "state"):
                for _ in range(20):
                    number += 1
                    producer.produce(topic, key=str(number % 50), value=b"x" * 100)
            producer.flush(20)
            transactional.begin_transaction()
            transactional.produce(TOPIC, b"in a transaction")
            transactional.commit_transaction(30)
            self.end.wait(0.1)

    def _consume(self):
        settings = {"bootstrap.servers": self.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe([TOPIC, UNREPLICATED])
        while not self.end.is_set():
            # Slower than the producer.
            for record in consumer.consume(10, timeout=0.5):
                assert not record.error(), record.error()
                consumer.commit(record, asynchronous=False)
        consumer.close()


class Prometheus:
    """A Prometheus that scrapes nodes, with the alerts of deploy/."""

    def __init__(self, place, targets):
        place.mkdir()
        port = free_port()
        names = ", ".join(f"'{target}'" for target in targets)
        config = place / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {SCRAPE}, evaluation_interval: 5s}}\n"
            f"rule_files: ['{RULES}']\n"
            f"scrape_configs: [{{job_name: thalweg, static_configs: [{{targets: [{names}]}}]}}]\n"
        )
        self.url = f"http://127.0.0.1:{port}"
        release(port)
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={place / 'data'}"]
        # Exemplars are scraped only with OpenMetrics.
        command += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"]
        self.process = started(command, place / "prometheus.log")
        until(self._is_ready, f"Prometheus, see {place}/prometheus.log", timeout=60)

    def _is_ready(self):
        try:
            return "Ready" in get(f"{self.url}/-/ready")[1]
        except OSError:
            return False

    def ask(self, path, **parameters):
        """The data of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{query}")[1])
        assert answer["status"] == "success", answer
        return answer["data"]

    def series(self, expression):
        """The series of an expression now."""
        try:
            return self.ask("query", query=expression)["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None


class Scene:
    """The cluster, its load, and its Prometheus."""

    def __init__(self):
        place = work()
        self.cluster = Cluster(place / "cluster")
        self.load = Load(self.cluster.bootstrap)
        self.prometheus = Prometheus(place / "prometheus", self.cluster.metrics)

    def page(self, node=0, accept=None):
        return get(f"http://{self.cluster.metrics[node]}/metrics", accept)

    def settled(self):
        """Waits until Prometheus has a minute's worth of rates of everything."""
        until(lambda: len(self.prometheus.series("sum by (instance) (rate(process_cpu_seconds_total[20s]))")) == BROKERS,
              "scrapes of all nodes", timeout=60)
        until(lambda: self.prometheus.series(f'thalweg_group_lag{{consumergroup="{GROUP}"}} > 0'), "a group with lag", timeout=60)
        time.sleep(10)
        assert not self.load.failure, self.load.failure


def scene():
    """The scene, started once."""
    with _starting:
        return _scene()


@functools.cache
def _scene():
    if os.environ.get("TARGET", "thalweg") != "thalweg":
        raise Skip("these metrics are Thalweg's")
    return Scene()
