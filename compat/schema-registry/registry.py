"""A schema registry under test, Apicurio's by the API of Confluent's, and the console and command line that decode by it."""

import atexit
import functools
import json
import os
import pathlib
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from broker import ROOT, thalweg_binary
from ports import free_port
from suite import BOOTSTRAP, until

WORK = pathlib.Path(os.environ["WORK"])
[JAR] = (ROOT / "target" / "compat").glob("apicurio-*/*-runner.jar")


@functools.cache
def url():
    """The registry's address for clients of Confluent's. It runs until the suite ends."""
    port = free_port()
    java = ["java", "-Xmx512m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-jar", str(JAR)]
    log = WORK / "registry.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(java, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=WORK)
    atexit.register(process.kill)

    def answers():
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            return get(f"{address}/schemas/types")
        except OSError:
            return None

    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    until(answers, "the registry starts", timeout=120)
    return address


@functools.cache
def console():
    """The address of a console that decodes by the registry."""
    command = [thalweg_binary(), "console", "--bootstrap-server", BOOTSTRAP, "--listen", "127.0.0.1:0"]
    log = WORK / "console.log"
    with open(log, "wb") as output:
        command += ["--schema-registry", url()]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    atexit.register(process.kill)
    found = until(lambda: re.search(r"console is at (http://[\w.:]+)", log.read_text(errors="replace")), "the console starts")
    return found[1]


def get(address):
    with urllib.request.urlopen(address, timeout=20) as answer:
        return json.load(answer)


def consumed(topic, *options):
    """What the command line prints of a topic: lines, and the text of errors."""
    command = [thalweg_binary(), "consume", topic, "--bootstrap-server", BOOTSTRAP, "--schema-registry", url()]
    command += ["--from-beginning", "--until-end", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, encoding="utf-8", errors="replace")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def searched(topic, **query):
    """The messages that the console finds."""
    query = urllib.parse.urlencode({"from": "earliest", **query})
    return get(f"{console()}/api/v1/topics/{topic}/messages?{query}")["messages"]
