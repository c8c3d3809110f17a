"""Kafka's tools in one JVM: compat/java-tools/ToolServer.java."""

import subprocess
import threading

from broker import ROOT, kafka_classpath


class Tools:
    """Runs a tool at a time."""

    def __init__(self, jvm_options):
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm_options]
        path = f"{kafka_classpath()}:{ROOT / 'target' / 'compat' / 'java-tools'}"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*java, "-cp", path, "ToolServer"], **pipes)
        self.one = threading.Lock()

    def run(self, name, *arguments, good=True):
        """The output of a tool, which must end well, or badly."""
        with self.one:
            self.process.stdin.write(("\t".join([name, *arguments]) + "\n").encode())
            self.process.stdin.flush()
            status, length = self.process.stdout.readline().split()
            output = self.process.stdout.read(int(length)).decode()
        assert (int(status) == 0) == good, f"{name} {' '.join(arguments)}: {output}"
        return output

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)
