"""Kafka Streams counts words exactly once while its broker is killed, again and again, and an instance is restarted."""

import os
import pathlib
import subprocess
import time

from broker import SUITE_SETTINGS, TARGETS, Broker, kafka_classpath
from suite import NIGHTLY, TARGET, Skip, end_of, main, next_report

CYCLES = 30 if NIGHTLY else 3
CLASSES = pathlib.Path(__file__).resolve().parents[2] / "target" / "compat" / "kafka-streams"


def test_words_are_counted_once_through_kill_9():
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    directory = pathlib.Path(os.environ["WORK"]) / "streams-ordeal"
    with Broker(TARGET, directory, SUITE_SETTINGS) as broker:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SECURITY")}
        environment |= {"BOOTSTRAP": broker.bootstrap, "WORK": str(directory)}
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", f"{kafka_classpath()}:{CLASSES}:{CLASSES}/jars/*"]
        with open(directory / "instances.log", "ab") as log:
            words = subprocess.Popen(
                [*java, "StreamsOrdeal"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert next_report(words, "begun\n"), end_of(log.name)
            for _ in range(CYCLES):
                await_lines(words, 150, log.name)
                broker.kill()
                broker.start()
            await_lines(words, 150, log.name)
            audit, _ = words.communicate(input="end\n", timeout=180)
        finally:
            words.kill()
    print(audit.splitlines()[-1])
    assert "audit passed" in audit, audit


def await_lines(words, count, log):
    """Six seconds or longer, until so many more lines are written."""
    began, first, last = time.monotonic(), None, 0
    while first is None or last - first < count or time.monotonic() - began < 6:
        report = next_report(words, "lines ")
        assert report, end_of(log)
        last = int(report.split()[1])
        first = last if first is None else first


if __name__ == "__main__":
    main(globals(), parallel=1)
