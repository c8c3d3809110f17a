"""Clients that fail on any error that they do not retry themselves, with default settings.

Each writes to its own topic and reads it as a group, while nodes are restarted and moved.
"""

import os
import re
import signal
import subprocess
import threading

from broker import ROOT, kafka_classpath
from history import LineReader, LineWriter
from java_log import log_to_stderr
from suite import until
from writer import ENDING_S

# Normal exit, or Java's exit code after the signal.
ENDED_WELL = (0, 128 + signal.SIGINT)
COMPAT = ROOT / "target" / "compat"
SMALL_JVM = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]

# Harmless output of tools: messages of librdkafka and kcat about closed and reopened connections, the
# console consumer's recommendation, its count, and that the coordinator had moved when it left, which it says once.
HARMLESS = re.compile(
    r"%\d\|.*|% ERROR: Local: (Broker transport failure|Broker handle destroyed|All broker connections are down).*"
    r"|The consumer rebalance protocol .*|Processed a total of \d+ messages"
    r"|.* ERROR .* LeaveGroup request .* failed with error: This is not the correct coordinator\..*"
)

# Their topics with partitions. Lines keep their order in one partition. kafkajs forgets what one partition has stored when
# another of the same request fails, and then loses records or gets OUT_OF_ORDER_SEQUENCE_NUMBER, also with Apache Kafka.
TOPICS = {"franz-go": 3, "sarama": 3, "kafkajs": 1, "kcat": 1, "console": 1}


def clients(bootstrap, directory):
    """One of each client, by topic."""
    go = ["-test.run", "TestMeetsNoErrorUntilItsInputEnds", "-test.timeout", "30m"]
    commands = {
        "franz-go": [COMPAT / "franz-go" / "suite", *go],
        "sarama": [COMPAT / "sarama" / "suite", *go],
        "kafkajs": ["node", COMPAT / "kafkajs" / "restarts.js"],
    }
    makes = {topic: Program(bootstrap, topic, command) for topic, command in commands.items()}
    makes["kcat"] = Tools(directory / "kcat", *kcat(bootstrap, "kcat"))
    makes["console"] = Tools(directory / "console", *console(bootstrap, "console", directory))
    return makes


def kcat(bootstrap, topic):
    """The commands of kcat that write and read a topic. -E: it only keeps connections to brokers that it uses, and would
    exit when these and earlier ones are closed, although it reconnects."""
    base = ["kcat", "-E", "-b", bootstrap]
    writer = [*base, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true"]
    reader = [*base, "-G", f"{topic}-readers", "-u", "-q", "-X", "auto.offset.reset=earliest"]
    return writer, [*reader, "-X", "session.timeout.ms=30000", topic]


def console(bootstrap, topic, directory):
    """The commands of Kafka's console tools. Their clients log errors, so the log must be empty."""
    java = [*SMALL_JVM, kafka_classpath()]
    java[1:1] = [log_to_stderr(directory / "console.properties", "ERROR")]
    base = ["--bootstrap-server", bootstrap, "--topic", topic]
    writer = [*java, "org.apache.kafka.tools.ConsoleProducer", *base]
    reader = [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *base, "--from-beginning"]
    return writer, [*reader, "--group", f"{topic}-readers"]


class Program(threading.Thread):
    """A program that writes to $TOPIC and reads it until its input ends, prints `committed` after each commit, and
    anything else after an error, or if it has not read what it wrote."""

    def __init__(self, bootstrap, topic, command):
        super().__init__(daemon=True)
        environment = {**os.environ, "BOOTSTRAP": bootstrap, "TOPIC": topic}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.commits, self.said = 0, []

    def run(self):
        for line in self.process.stdout:
            if line == b"committed\n":
                self.commits += 1
            else:
                self.said.append(line.decode())

    def count(self):
        assert self.process.poll() is None, "".join(self.said[:10])
        return self.commits

    def kill(self):
        self.process.kill()

    def finish(self):
        self.process.stdin.close()
        self.process.wait(ENDING_S)
        self.join()
        assert self.process.returncode == 0, "".join(self.said[:10])


class Tools:
    """Two command line tools: one sends lines as records, the other prints them. Any other output is an error,
    unless it is known to be harmless."""

    def __init__(self, directory, write, read):
        self.writer, self.reader = LineWriter(directory / "writer", write), LineReader(directory / "reader", read)

    def start(self):
        self.writer.start()
        self.reader.start()

    def count(self):
        return self.reader.count()

    def kill(self):
        self.writer.kill()
        self.reader.kill()

    def finish(self):
        self.writer.finish()
        until(lambda: self.reader.count() >= self.writer.sent, f"all {self.writer.sent} lines read", ENDING_S)
        self.reader.finish()
        for tool in (self.writer, self.reader):
            lines = tool.errors.read_text().splitlines()
            said = [line for line in lines if not HARMLESS.fullmatch(line)]
            how = f"{tool.process.args[0]} exited with {tool.process.returncode} and printed: {said[:10]}"
            assert tool.process.returncode in ENDED_WELL and not said, how
        assert not self.reader.skipped, self.reader.skipped[:5]
