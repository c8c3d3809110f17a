"""The rows of the table: each is a workload, run on one system at a time, with a goal for Thalweg."""

import dataclasses
import shutil
import subprocess
import threading
import time

from broker import thalweg_binary
from systems import System, bare_copy, bare_echo, generator, librdkafka, warm
from wire import API_VERSIONS, METADATA, Connection, array, batch, string

RECORD_OVERHEAD = 12
"""Approximate overhead of a record in a batch, in bytes."""


@dataclasses.dataclass
class Bar:
    """A goal for a figure: for the ratio of the medians, or, without `relative`, for Thalweg's median."""

    figure: str
    bound: float
    at_least: bool = False
    relative: bool = True

    def __str__(self):
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.bound:.3g}" + (" × Kafka's" if self.relative else "")

    def holds(self, thalweg, kafka):
        if not thalweg or (self.relative and not kafka):
            return False
        value = thalweg / kafka if self.relative else thalweg
        return value >= self.bound if self.at_least else value <= self.bound


class Row:
    """One workload. `run` measures one system once and returns figures by name; a name ends in its unit."""

    fresh = False
    """Whether each run starts a separate broker."""

    def __init__(self, name, bars, settings):
        self.name, self.bars, self.settings = name, bars, settings

    def prepare(self, system):
        """Preparation before the first run."""

    def warm_up(self, system):
        """The warm-up, for Kafka's JIT compiler."""
        self.run(system)

    def ceiling(self, directory):
        """A figure of the bare machine, measured in each round; none for most rows."""

    def verdicts(self, thalweg, kafka, ceiling):
        """For each goal: its figure, its text, and whether the medians reach it."""
        return [
            {"figure": bar.figure, "bar": str(bar), "reached": bar.holds(thalweg.get(bar.figure), kafka.get(bar.figure))}
            for bar in self.bars
        ]


def in_plain_text(system):
    """The settings of a client that takes the plain listener."""
    return [f"bootstrap.servers={system.bootstrap}"]


def spent(system, records, work):
    """The figures of a produce or consume run: the workload's, and the broker's CPU per record."""
    before = system.cpu_s()
    figures, client_cpu = work()
    figures["broker CPU µs/msg"] = (system.cpu_s() - before) / records * 1e6
    figures["client CPU µs/msg"] = client_cpu / records * 1e6
    return figures


class Librdkafka(Row):
    def __init__(self, scale):
        self.records = int(8_000_000 * scale)
        bars = [Bar("broker CPU µs/msg", 1 / 3)]
        super().__init__("librdkafka producer, 128 B, acks=1, 6 partitions", bars, f"{self.records} records, linger.ms=5")

    def run(self, system):
        with system.topic(6) as topic:
            warm(system.directory, self.records * (128 + RECORD_OVERHEAD))

            def work():
                result, cpu = librdkafka(system.bootstrap, topic, 6, self.records, 128, "linger.ms=5")
                return {"msg/s": result["records"] / result["seconds"]}, cpu

            return spent(system, self.records, work)


class Produce(Row):
    """Our generator at the maximum or a fixed rate. `client` gives its settings for a system."""

    client = staticmethod(in_plain_text)

    def __init__(self, name, bars, records, size, partitions, rate=-1, **settings):
        self.records, self.size, self.partitions, self.rate = records, size, partitions, rate
        self.properties = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        super().__init__(name, bars, f"{records} records, {' '.join(self.properties)}")

    def run(self, system):
        written = self.records * (self.size + RECORD_OVERHEAD)
        with system.topic(self.partitions) as topic:
            warm(system.directory, written)
            return spent(system, self.records, lambda: self.produce(system, topic))

    def produce(self, system, topic):
        sizes = ["--num-records", self.records, "--record-size", self.size, "--throughput", self.rate]
        properties = [*self.client(system), *self.properties]
        result, cpu = generator("producer-perf-test", "--topic", topic, *sizes, "--command-property", *properties)
        total = result["total"]
        figures = {"msg/s": total["records_per_second"], "MB/s": total["mb_per_second"]}
        if self.rate > 0:
            figures["p50 µs"] = total["latency_us"]["p50"]
            figures["p99 µs"] = total["latency_us"]["p99"]
        return figures, cpu


class Payload(Produce):
    """One partition, one producer: twice Kafka's rate, or close to the machine's copy rate."""

    def __init__(self, size, total):
        bars = [Bar("MB/s", 2, at_least=True)]
        super().__init__(f"produce {size:,} B, 1 partition, 1 producer", bars, total // size, size, 1, acks=1)
        self.total = total

    def ceiling(self, directory):
        warm(directory, self.total)
        return {"MB/s of a bare socket-to-file copy": bare_copy(directory, self.total)}

    def verdicts(self, thalweg, kafka, ceiling):
        (verdict,) = super().verdicts(thalweg, kafka, ceiling)
        near = thalweg["MB/s"] >= 0.8 * ceiling["MB/s of a bare socket-to-file copy"]
        bar = f"{verdict['bar']}, or 80 % of the bare copy"
        return [{**verdict, "bar": bar, "reached": verdict["reached"] or near}]


class Consume(Row):
    client = staticmethod(in_plain_text)

    def __init__(self, size, records):
        self.size, self.records, self.topics = size, records, {}
        bars = [Bar("msg/s", 1, at_least=True), Bar("broker CPU µs/msg", 1)]
        super().__init__(f"consume {size:,} B from the page cache", bars, f"{records} records, 6 partitions")

    def prepare(self, system):
        with Connection(system.bootstrap) as connection:
            self.topics[system.target] = connection.new_topic("consume", 6)
        sizes = ["--num-records", self.records, "--record-size", self.size, "--throughput", -1]
        properties = [f"bootstrap.servers={system.bootstrap}", "acks=1", "batch.size=65536"]
        topic = self.topics[system.target]
        generator("producer-perf-test", "--topic", topic, *sizes, "--command-property", *properties)

    def run(self, system):
        def work():
            place = ["--topic", self.topics[system.target], "--num-records", self.records]
            result, cpu = generator("consumer-perf-test", *place, "--command-property", *self.client(system))
            return {"msg/s": result["fetch_records_per_second"], "MB/s": result["fetch_mb_per_second"]}, cpu

        return spent(system, self.records, work)


class Share(Consume):
    """A share group of twelve members, which accept each record alone."""

    MEMBERS = 12

    def __init__(self, size, records):
        super().__init__(size, records)
        self.name = f"share group, {size:,} B, 6 partitions, {self.MEMBERS} members, each record accepted"
        self.bars = [Bar("msg/s", 3, at_least=True), Bar("broker CPU µs/msg", 1 / 4)]
        self.settings = f"{records} records, max.poll.records=500"
        self.groups = 0

    def run(self, system):
        group = self.group(system, "earliest")

        def work():
            result, cpu = self.consume(system, group, self.topics[system.target])
            assert result["redelivered"] == 0 and result["not_acknowledged"] == 0, result
            return {"msg/s": result["fetch_records_per_second"], "MB/s": result["fetch_mb_per_second"]}, cpu

        return spent(system, self.records, work)

    def group(self, system, reset):
        """The name of a new group."""
        self.groups += 1
        name = f"group-{self.groups}"
        command = [thalweg_binary(), "config", "set", f"group:{name}", f"share.auto.offset.reset={reset}"]
        subprocess.run([*command, "--bootstrap-server", system.bootstrap], check=True, capture_output=True)
        return name

    def consume(self, system, group, topic):
        place = ["--topic", topic, "--group", group, "--threads", self.MEMBERS, "--num-records", self.records]
        properties = [*self.client(system), "share.acknowledgement.mode=explicit", "max.poll.records=500"]
        return generator("share-consumer-perf-test", *place, "--timeout", 30_000, "--command-property", *properties)


class ShareDelivery(Share):
    """The same members, while records are produced at a fixed rate: how long they take to be delivered."""

    def __init__(self, size, records, rate):
        super().__init__(size, records)
        self.name = f"share group, {size:,} B, {rate:,} msg/s, {self.MEMBERS} members: delivery"
        self.bars = [Bar("p99 ms", 1 / 3)]
        self.settings = f"{records} records, acks=1, linger.ms=0; from the producer's timestamp, in whole milliseconds, at least 1"
        self.rate = rate

    def prepare(self, system):
        """Each run has its own topic."""

    def run(self, system):
        group = self.group(system, "earliest")
        with system.topic(6) as topic:
            produced = threading.Thread(target=self.produce, args=(system, topic))
            # The members have joined by then.
            begin = threading.Timer(8, produced.start)
            begin.start()
            result, _ = self.consume(system, group, topic)
            begin.join()
            produced.join()
            return {f"{p} ms": max(1, result["delivery_ms"][p]) for p in ("p50", "p99")}

    def produce(self, system, topic):
        sizes = ["--num-records", self.records, "--record-size", self.size, "--throughput", self.rate]
        properties = [*self.client(system), "acks=1", "linger.ms=0"]
        generator("producer-perf-test", "--topic", topic, *sizes, "--command-property", *properties)


class EndToEnd(Row):
    def __init__(self, records):
        self.records = records
        bars = [Bar("p50 µs", 1 / 4), Bar("p99 µs", 1 / 4)]
        super().__init__("end-to-end latency, one message in flight", bars, f"{records} records of 100 B, acks=1")

    def run(self, system):
        with system.topic(1) as topic:
            place = ["--bootstrap-server", system.bootstrap, "--topic", topic]
            sizes = ["--num-records", self.records, "--producer-acks", 1, "--record-size", 100]
            result, _ = generator("e2e-latency", *place, *sizes)
            return {"p50 µs": result["latency_us"]["p50"], "p99 µs": result["latency_us"]["p99"]}

    def ceiling(self, directory):
        times = bare_echo(self.records)
        echo = "µs of a bare echo between two processes"
        return {f"p50 {echo}": times[len(times) // 2], f"p99 {echo}": times[len(times) * 99 // 100]}


class Fresh(Row):
    """A row whose runs each start a separate broker."""

    fresh = True

    def run(self, system):
        own = System(system.target, system.directory / "fresh")
        try:
            return self.measure(own)
        finally:
            own.stop()
            shutil.rmtree(own.directory)

    def warm_up(self, system):
        """No warm-up: a cold start is measured."""


class Start(Fresh):
    def __init__(self):
        bars = [Bar("start ms", 150, relative=False), Bar("idle MiB", 24, relative=False)]
        super().__init__("exec to first acknowledged record; idle memory", bars, "a new data directory; idle for 5 s")

    def measure(self, own):
        seconds = own.first_acknowledged()
        time.sleep(5)
        return {"start ms": seconds * 1e3, "idle MiB": own.resident_kib() / 1024}


class Partitions(Fresh):
    def __init__(self, partitions):
        self.partitions = partitions
        bars = [Bar("start ms", 500, relative=False), Bar("idle MiB", 64, relative=False)]
        settings = "one record in each; stopped in order; exec to an acknowledged record in the last"
        super().__init__(f"{partitions:,} partitions: start, idle memory", bars, settings)

    def measure(self, own):
        own.start()
        with Connection(own.bootstrap) as connection:
            topic = connection.new_topic("wide", self.partitions)
            for partition in range(self.partitions):
                connection.produce(topic, batch([b"x"]), partition=partition)
        own.stop()
        seconds = own.first_acknowledged()
        began = time.monotonic()
        with Connection(own.bootstrap) as connection:
            while any(connection.produce(topic, batch([b"x"]), partition=p)[0] for p in (0, self.partitions - 1)):
                time.sleep(0.001)
        seconds += time.monotonic() - began
        time.sleep(5)
        return {"start ms": seconds * 1e3, "idle MiB": own.resident_kib() / 1024}


class Connections(Fresh):
    def __init__(self, count):
        self.count = count
        bars = [Bar("KiB each", 32, relative=False)]
        super().__init__(f"{count:,} idle connections", bars, "each sent ApiVersions and Metadata once")

    def measure(self, own):
        own.start()
        # The first connections include shared costs.
        self.crowd(own, 50)
        before = own.resident_kib()
        self.crowd(own, self.count, hold_s=3)
        return {"KiB each": (self.resident - before) / self.count}

    def crowd(self, own, count, hold_s=0):
        connections = [Connection(own.bootstrap) for _ in range(count)]
        for connection in connections:
            connection.ask(API_VERSIONS, 0)
            connection.ask(METADATA, 1, array([string("first")]))
        time.sleep(hold_s)
        self.resident = own.resident_kib()
        for connection in connections:
            connection.socket.close()


def all_rows(scale):
    """Every row; `scale` shortens trial runs."""
    large, total = int(10_000_000 * scale), int(1_000_000_000 * scale)
    rate = 50_000
    paced = [Bar("p50 µs", 1 / 2), Bar("p99 µs", 1 / 3), Bar("broker CPU µs/msg", 1 / 5)]

    def unpaced(cpu):
        return [Bar("msg/s", 3, at_least=True), Bar("broker CPU µs/msg", cpu)]

    requests = "our generator, 128 B, acks=1, 6 partitions, "
    return [
        Librdkafka(scale),
        Produce(requests + "256 KB requests", unpaced(1 / 4), large, 128, 6, acks=1, batch_size=262144, linger_ms=5),
        Produce(requests + "16 KB batch.size", unpaced(1 / 5), large, 128, 6, acks=1, batch_size=16384),
        Produce("50,000 msg/s in small batches", paced, int(500_000 * scale), 128, 6, rate, acks=1, linger_ms=0),
        *(Payload(size, total) for size in (1_024, 10_240, 25_600, 51_200, 102_400, 204_800, 512_000)),
        Consume(128, large),
        Consume(1_024, large // 8),
        Share(1_024, large // 10),
        ShareDelivery(1_024, int(200_000 * scale), 10_000),
        EndToEnd(int(10_000 * scale)),
        Start(),
        Partitions(1_000),
        Connections(1_000),
    ]
