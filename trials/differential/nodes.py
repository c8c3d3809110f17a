"""The two nodes that are compared, each a broker and controller with the same server.properties: Apache Kafka, and one of the kind
under test, which is Thalweg but for a check of the tests themselves.
"""

import concurrent.futures
import os
import pathlib
import subprocess

from broker import SUITE_SETTINGS, Broker, thalweg_binary
from ports import free_port
from suite import TARGET

USERS = {"admin": "admin-secret", "alice": "alice-secret"}
LOGIN = "org.apache.kafka.common.security"

# Clients without a name may do everything, so that requests about ACLs, users and tokens are answered; LOGIN is a listener for
# those who log in. No group and no transaction times out while it is compared.
SETTINGS = {
    **SUITE_SETTINGS,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "a key of both nodes",
    "auto.create.topics.enable": "false",
    "num.partitions": "2",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "offsets.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}


class Node(Broker):
    """A node whose properties are in a file, for either target."""

    def __init__(self, target, directory):
        super().__init__(target, directory, SETTINGS, heap="512m")
        login, controller = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.login_port = int(login.rsplit(":", 1)[1])
        users = " ".join(f'user_{name}="{secret}"' for name, secret in USERS.items())
        scram = f"{LOGIN}.scram.ScramLoginModule required;"
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},LOGIN://{login},CONTROLLER://{controller}",
            "controller.quorum.bootstrap.servers": controller,
            "listener.name.login.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required {users};",
            "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
        }

    def _kafka_properties(self):
        """Without a list of voters, which the directory is formatted with."""
        lines = super()._kafka_properties().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("controller.quorum.voters="))

    def format(self):
        form = ["kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk", "--standalone"]
        with open(self.log_path, "ab") as log:
            subprocess.run([*self._java(), *form, "--config", str(self._write_properties())], check=True, stdout=log, stderr=log)
        self.is_formatted = True

    def command(self):
        if self.target == "thalweg":
            return [thalweg_binary(), "serve", str(self._write_properties())]
        return self._kafka_command()


class Nodes:
    """Both of them, while in use."""

    def __init__(self, name):
        place = pathlib.Path(os.environ["WORK"]) / name
        self.kafka, self.other = Node("apache-kafka", place / "kafka"), Node(TARGET, place / "other")

    def __enter__(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for started in [pool.submit(node.start) for node in self.both]:
                started.result()
        return self

    def __exit__(self, *_):
        for node in self.both:
            node.stop()

    @property
    def both(self):
        return self.kafka, self.other
