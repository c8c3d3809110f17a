"""The rows over TLS and with logins: one broker of each system with a listener for each way in, and an authorizer.

The administrator's requests take the listener in plain text, whose users may do everything; loads take the others.
"""

import pathlib
import subprocess

from broker import thalweg_binary
from rows import Bar, Consume, Produce, Row, in_plain_text
from security import Realm, kafka_tool
from systems import System

LISTENERS = {
    "PLAIN": ("PLAINTEXT", {}),
    "TLS": ("SSL", {"ssl.client.auth": "none"}),
    "LOGIN": ("SASL_PLAINTEXT", {}),
}
ACLS = 1_000
PER_PRINCIPAL = 20
LIMITED = "limited"
"""The client id that has a quota."""


class Secured(System):
    """A broker with the listeners, ACLs and quotas of these rows."""

    def __init__(self, target, directory):
        realm = Realm(directory / "realm")
        super().__init__(target, directory, realm=realm, listeners=LISTENERS)
        self.settings["super.users"] = "User:node;User:admin;User:ANONYMOUS"
        self.clients = {
            "TLS": self.properties("TLS", realm.client("SSL", user="")),
            "LOGIN": self.properties("LOGIN", realm.client("SASL_PLAINTEXT", "SCRAM-SHA-512")),
        }

    def properties(self, listener, client):
        """The settings of a client of this listener, in the form of the perf tools."""
        lines = pathlib.Path(client["SECURITY_JAVA"]).read_text().splitlines()
        return [f"bootstrap.servers={self.host}:{self.ports[listener]}", *lines]

    def start(self):
        super().start()
        for number in range(ACLS // PER_PRINCIPAL):
            topics = [part for topic in range(PER_PRINCIPAL) for part in ("--topic", f"other-{topic}")]
            grant = ["security", "acl", "add", f"User:other-{number}", *topics, "--allow", "read"]
            place = ["--bootstrap-server", self.bootstrap]
            subprocess.run([thalweg_binary(), *grant, *place], check=True, stdout=subprocess.DEVNULL)
        self.realm.allow_everything(f"{self.host}:{self.ports['LOGIN']}", "client", "SASL_PLAINTEXT", "SCRAM-SHA-512")
        limits = "producer_byte_rate=1000000000000,consumer_byte_rate=1000000000000,request_percentage=100000"
        quota = ("--alter", "--entity-type", "clients", "--entity-name", LIMITED, "--add-config", limits)
        kafka_tool(self.realm, "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, *quota)
        return self


def over_tls(system):
    return system.clients["TLS"]


def by_login(system, client_id="free"):
    return [*system.clients["LOGIN"], f"client.id={client_id}"]


class ConsumeOverTls(Consume):
    client = staticmethod(over_tls)

    def __init__(self, size, records):
        super().__init__(size, records)
        self.name += " over TLS 1.3"
        self.bars = [Bar("msg/s", 2, at_least=True), Bar("broker CPU µs/msg", 1 / 2)]


class Overhead(Row):
    """The same load in turns, without and with a burden: what that adds to the broker's processor time."""

    PAIRS = 2

    def __init__(self, name, bound, records, without, with_it):
        """`without` and `with_it` give the client's settings for a system."""
        settings = f"{records} records of 128 B, acks=1, batch.size=16384; {self.PAIRS} pairs a run"
        super().__init__(name, [Bar("extra %", bound, relative=False)], settings)
        self.load = Produce("", [], records, 128, 6, acks=1, batch_size=16384)
        self.clients = {"without": without, "with": with_it}

    def run(self, system):
        total = dict.fromkeys(self.clients, 0.0)
        for pair in range(self.PAIRS):
            # Both orders, so that neither always comes second.
            for case in list(self.clients)[:: 1 if pair % 2 == 0 else -1]:
                self.load.client = self.clients[case]
                total[case] += self.load.run(system)["broker CPU µs/msg"]
        figures = {f"broker CPU µs/msg {case}": cost / self.PAIRS for case, cost in total.items()}
        return {**figures, "extra %": (total["with"] / total["without"] - 1) * 100}


def secured_rows(scale):
    """Every row; `scale` shortens trial runs."""
    records = int(10_000_000 * scale)
    name = "our generator over TLS 1.3, 128 B, acks=1, 6 partitions, 256 KB requests"
    bars = [Bar("msg/s", 3, at_least=True), Bar("broker CPU µs/msg", 1 / 3)]
    produce = Produce(name, bars, records, 128, 6, acks=1, batch_size=262144, linger_ms=5)
    produce.client = over_tls
    quotas = "cost of quotas that are not exceeded"
    return [
        produce,
        ConsumeOverTls(1_024, records // 4),
        Overhead(f"cost of SCRAM and {ACLS:,} ACLs", 2, records, in_plain_text, by_login),
        Overhead(quotas, 1, records, by_login, lambda system: by_login(system, LIMITED)),
    ]
