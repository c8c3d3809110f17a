"""The probe of each client: a program that writes to a topic, reads it as a group, and prints `ok` or why not."""

import os
import subprocess

from broker import ROOT, kafka_classpath

COMPAT = ROOT / "compat"
BUILT = ROOT / "target" / "compat"
# Longer than any probe's own patience.
TIMEOUT_S = 90
IN_CI = ("kcat", "confluent-kafka", "java-client", "franz-go", "kafkajs")
CLIENTS = (*IN_CI, "sarama", "kafka-python", "aiokafka")


def probe(client, bootstrap, login, topic, seconds=0):
    """What a client prints, connecting as `login`: an environment of `security`."""
    env = {**os.environ, **login, "BOOTSTRAP": bootstrap, "PROBE": f"{topic} {seconds}"}
    if client == "kcat":
        return kcat(env, topic)
    if client in ("franz-go", "sarama"):
        output = run([BUILT / client / "suite", "-test.run", "TestProbesAConnection"], env)
        # Go's test runner adds its verdict.
        return output.removesuffix("PASS").strip()
    if client == "java-client":
        java = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *login["SECURITY_JVM"].split()]
        program = [*java, "-cp", f"{kafka_classpath()}:{BUILT / client}", "Probe"]
    elif client == "kafkajs":
        program = ["node", BUILT / client / "probe.js"]
    else:
        program = [BUILT / client / "bin" / "python", COMPAT / client / "probe.py"]
    return run([*program, topic, str(seconds)], env)


def kcat(env, topic):
    """kcat has no duration: it writes once and reads to the end."""
    base = ["kcat", "-F", env["SECURITY_LIBRDKAFKA"], "-b", env["BOOTSTRAP"]]
    written = run([*base, "-P", "-t", topic, "-X", "message.timeout.ms=8000"], env, "one\n", good=True)
    if written:
        return written
    reader = [*base, "-G", f"{topic}-group", "-e", "-q", "-c", "1", "-X", "auto.offset.reset=earliest", topic]
    found = run(reader, env, good=True)
    return "ok" if found == "one" else found


def run(command, env, stdin="", good=False):
    """The output of a program; with `good`, that of errors only if it fails."""
    try:
        done = subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        return f"not within {TIMEOUT_S} s: {late.stdout} {late.stderr}"
    if good and done.returncode == 0:
        return done.stdout.strip()
    return (done.stdout + (done.stderr if not done.stdout.strip() or done.returncode else "")).strip()
