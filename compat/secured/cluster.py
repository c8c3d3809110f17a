"""The broker of the suite, with a listener for each kind of connection, and its users."""

import atexit
import functools
import os
import pathlib
import tempfile
import threading

from broker import SUITE_SETTINGS, Broker
from security import Realm
from suite import Skip, unique
from tools import Tools

REAUTHENTICATION_S = 2
LISTENERS = {
    "LOGIN": ("SASL_SSL", {}),
    "CERTIFICATE": ("SSL", {}),
    "PLAINLOGIN": ("SASL_PLAINTEXT", {}),
    "SHORT": ("SASL_SSL", {"connections.max.reauth.ms": str(REAUTHENTICATION_S * 1000)}),
}
_starting = threading.Lock()
# Topics that the user `guest` may use begin with this.
OPEN = "open"


class Secured:
    """A broker with an authorizer. `client` may do everything by ACLs; `guest` may use topics named `open...`."""

    def __init__(self, target, directory):
        self.realm = Realm(directory / "realm")
        self.broker = Broker(target, directory / "broker", SUITE_SETTINGS, heap="512m", realm=self.realm, listeners=LISTENERS)
        self.broker.start()
        atexit.register(self.broker.stop)
        self.tools = Tools(self.realm.jvm_options())
        atexit.register(self.tools.stop)
        self.admin = self.realm.client("SASL_SSL", "SCRAM-SHA-512", "admin")["SECURITY_JAVA"]
        everything = ("--topic", "*", "--group", "*", "--transactional-id", "*", "--cluster")
        self.acls("--add", "--allow-principal", "User:client", "--operation", "All", *everything)
        guest = ("--add", "--allow-principal", "User:guest", "--operation", "All")
        self.acls(*guest, "--topic", OPEN, "--resource-pattern-type", "prefixed")
        self.acls(*guest, "--group", "*")

    def address(self, listener):
        return f"127.0.0.1:{self.broker.ports[listener]}"

    def tool(self, name, *arguments, config=None, good=True):
        """The output of one of Kafka's tools, as the administrator."""
        connection = ("--bootstrap-server", self.address("LOGIN"), "--command-config", config or self.admin)
        return self.tools.run(name, *connection, *arguments, good=good)

    def acls(self, *arguments, good=True):
        return self.tool("AclCommand", *arguments, good=good)

    def configs(self, *arguments, good=True):
        return self.tool("kafka.admin.ConfigCommand", *arguments, good=good)

    def new_topic(self, stem):
        topic = unique(stem)
        self.tool("TopicCommand", "--create", "--topic", topic)
        return topic


def secured():
    """The suite's broker, started once."""
    with _starting:
        return _start()


@functools.cache
def _start():
    target = os.environ.get("TARGET", "")
    if not target:
        raise Skip("starts brokers of its own: not with an address as target")
    work = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="secured-"))
    return Secured(target, work / "secured")
