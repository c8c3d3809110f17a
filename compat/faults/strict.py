"""Clients that take no error which they do not try again by themselves, each with the settings that its make has for users.

Each writes to a topic of its own and reads it again as a group, while nodes are restarted and moved.
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

# By itself, or by the signal to end: so Java tells that a signal came.
ENDED_WELL = (0, 128 + signal.SIGINT)
COMPAT = ROOT / "target" / "compat"
SMALL_JVM = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]

# What tools say that is no error: what librdkafka logs and kcat repeats of connections that end and are made again, what the
# console consumer recommends and what it has counted.
HARMLESS = re.compile(
    r"%\d\|.*|% ERROR: Local: (Broker transport failure|Broker handle destroyed|All broker connections are down).*"
    r"|The consumer rebalance protocol .*|Processed a total of \d+ messages"
)

# Their topics, each with its partitions. Lines keep their order in one. kafkajs forgets what one partition has taken when
# another of the same request fails, and then loses records or meets OUT_OF_ORDER_SEQUENCE_NUMBER, on Apache Kafka too.
TOPICS = {"franz-go": 3, "sarama": 3, "kafkajs": 1, "kcat": 1, "console": 1}


def clients(bootstrap, directory):
    """One of each make, by its topic."""
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
    """The commands of kcat that write and read a topic. -E: it keeps connections to the brokers alone that it uses, and would
    end when these are closed and others were before, though it tries them all again."""
    base = ["kcat", "-E", "-b", bootstrap]
    writer = [*base, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true"]
    reader = [*base, "-G", f"{topic}-readers", "-u", "-q", "-X", "auto.offset.reset=earliest"]
    return writer, [*reader, "-X", "session.timeout.ms=6000", topic]


def console(bootstrap, topic, directory):
    """Those of Kafka's console tools. Errors of their clients are logged, so the log is theirs to be empty."""
    java = [*SMALL_JVM, kafka_classpath()]
    java[1:1] = [log_to_stderr(directory / "console.properties", "ERROR")]
    base = ["--bootstrap-server", bootstrap, "--topic", topic]
    writer = [*java, "org.apache.kafka.tools.ConsoleProducer", *base]
    reader = [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *base, "--from-beginning"]
    return writer, [*reader, "--group", f"{topic}-readers"]


class Program(threading.Thread):
    """A program that writes to $TOPIC and reads it until its input ends, prints `committed` whenever it has got on, and
    anything else when it has met an error or not read what it has written."""

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
    """Two command line tools: one that makes records of lines, and one that prints them. Whatever they say is an error,
    unless it is known to be none."""

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
            how = f"{tool.process.args[0]} ended with {tool.process.returncode} and said: {said[:10]}"
            assert tool.process.returncode in ENDED_WELL and not said, how
        assert not self.reader.skipped, self.reader.skipped[:5]
