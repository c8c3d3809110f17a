"""A Java program at work while its broker is killed, and its own failures; then the audit that it prints (`Ledger.java`)."""

import os
import pathlib
import random
import subprocess
import time

from broker import ROOT, SUITE_SETTINGS, TARGETS, Broker
from java_log import log_to_stderr
from suite import TARGET, Skip, end_of, next_report

# Numbers that come through between two faults, so that each fault hits a system at work.
BETWEEN = 150
# The kill falls anywhere between two commits: the longest wait for it beyond these numbers.
CHANCE_S = 1.0
PROGRESS_TIMEOUT_S = 90
AUDIT_TIMEOUT_S = 180
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx768m"]


def survives_kills(suite, name, command, cycles, options=(), settings=None):
    """Runs a class with its arguments, kills the broker so many times, and returns the program's audit, which must pass.

    After each kill the program is told to fail, too."""
    if TARGET not in TARGETS:
        raise Skip("the driver did not start this broker")
    directory = pathlib.Path(os.environ["WORK"]) / name
    seed = int(os.environ.get("SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    print(f"{name}: SEED={seed}", flush=True)
    with Broker(TARGET, directory, {**SUITE_SETTINGS, **(settings or {})}) as broker:
        environment = {**os.environ, "BOOTSTRAP": broker.bootstrap, "WORK": str(directory)}
        place = ROOT / "target" / "compat" / suite
        logs = log_to_stderr(directory / "log4j.properties", "warn")
        java = [*JAVA, *options, logs, "-cp", f"{place}:{place}/jars/*", *command]
        with open(directory / "program.log", "ab") as log:
            program = subprocess.Popen(
                java, env=environment, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert next_report(program, "begun\n"), end_of(log.name)
            for _ in range(cycles):
                await_numbers(program, BETWEEN, log.name)
                time.sleep(chance.uniform(0, CHANCE_S))
                broker.kill()
                broker.start()
                await_numbers(program, BETWEEN, log.name)
                tell(program, "fail")
            await_numbers(program, BETWEEN, log.name)
            audit, _ = program.communicate(input="end\n", timeout=AUDIT_TIMEOUT_S)
        finally:
            program.kill()
            program.wait()
    audit = "\n".join(line for line in audit.splitlines() if not line.startswith("so far "))
    print(audit, flush=True)
    assert "audit passed" in audit, f"SEED={seed} {audit}"
    return audit


def await_numbers(program, count, log):
    """Waits until so many more numbers have come through."""
    began, first, last = time.monotonic(), None, 0
    while first is None or last - first < count:
        line = next_report(program, "so far ")
        assert line, end_of(log)
        assert time.monotonic() - began < PROGRESS_TIMEOUT_S, f"{last - (first or 0)} of {count} numbers within {PROGRESS_TIMEOUT_S} s"
        last = int(line.split()[2])
        first = last if first is None else first


def tell(program, order):
    program.stdin.write(f"{order}\n")
    program.stdin.flush()
