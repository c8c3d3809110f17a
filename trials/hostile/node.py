"""The node under attack: a broker and controller with listeners of every kind, an authorizer, and things that a stranger may
neither see nor change.

Starts the process, prepares topics, users and tokens as the administrator, and looks at the process from outside: its log, its
memory, its descriptors, and the files of its data.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import subprocess
import time

from pki import make_certificates, openssl
from broker import SUITE_SETTINGS, Broker, BrokerFailed, answers, thalweg_binary
from ports import free_port

# The administrator and the calm client are ADMIN. MALLORY may log in and has no right. NODE has CLUSTER_ACTION.
PASSWORDS = {"admin": "admin-long-secret", "mallory": "mallory-secret", "bob": "bob-secret", "node": "node-secret"}
# Known to a stranger, who may not touch them.
TOPIC, GROUP = "victim", "victim-group"
CALM = "calm"
ISSUER, AUDIENCE = "https://idp.example", "kafka"
LISTENERS = {
    "PLAIN": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "ADMIN": "SASL_PLAINTEXT",
    "CONTROLLER": "SASL_PLAINTEXT",
}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
# An idle broker has 15 MiB; the debug build has four times as much.
MEMORY_MAX_MIB = 256


class Node(Broker):
    """A broker with its own authority, whose files are beside its data."""

    def __init__(self, directory, random, failure_delay_ms=20):
        super().__init__("thalweg", directory)
        self.failure_delay_ms = failure_delay_ms
        # Names that a stranger does not know: they may be in none of its answers.
        self.hidden = f"hidden-{random.randbytes(8).hex()}"
        self.ports = {name: free_port() for name in LISTENERS}
        self.ports["HTTP"] = free_port()
        self.port = self.ports["ADMIN"]
        make_certificates(self.directory)
        self._make_tokens()
        self.properties = self.directory / "server.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        self.client = self.directory / "admin.properties"
        self.client.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.jaas.config={PLAIN_MODULE} required username=\"admin\" password=\"{PASSWORDS['admin']}\";\n"
        )

    def command(self):
        scram = [
            part
            for hashed in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for user, password in PASSWORDS.items()
            for part in ("--add-scram", f"{hashed}=[name={user},password={password},iterations=4096]")
        ]
        return [thalweg_binary(), "serve", str(self.properties), *scram]

    def _settings(self):
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        login = f"{PLAIN_MODULE} required username=\"admin\" password=\"{PASSWORDS['admin']}\" {users};"
        names = [name for name in LISTENERS]
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "log.dirs": str(self.data_dir),
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[name]}" for name in names),
            "advertised.listeners": ",".join(
                f"{name}://127.0.0.1:{self.ports[name]}" for name in names if name != "CONTROLLER"
            ),
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
            "listener.security.protocol.map": ",".join(f"{name}:{LISTENERS[name]}" for name in names),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "ADMIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.login.connections.max.reauth.ms": "3600000",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            **{f"listener.name.{name}.plain.sasl.jaas.config": login for name in ("login", "both", "admin", "controller")},
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{self.directory}/jwks.json",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "connection.failed.authentication.delay.ms": str(self.failure_delay_ms),
            "delegation.token.secret.key": "the secret of all tokens",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "ssl.truststore.location": str(self.directory / "ca.crt"),
            "listener.name.mutual.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "http.listener": f"127.0.0.1:{self.ports['HTTP']}",
            "http.security.protocol": "SSL",
            "http.authentication": "basic",
            **SUITE_SETTINGS,
            "transaction.state.log.num.partitions": "2",
        }

    # Tokens of an identity provider.

    def _make_tokens(self):
        openssl(self.directory, "genrsa", "-out", "idp.key", "2048")
        modulus = bytes.fromhex(openssl(self.directory, "rsa", "-in", "idp.key", "-noout", "-modulus").decode().strip().partition("=")[2])
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "n": url64(modulus), "e": "AQAB"}
        (self.directory / "jwks.json").write_text(json.dumps({"keys": [key]}))
        now = int(time.time())
        claims = {"sub": "mallory", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 86_400}
        self.token = self._signed({"alg": "RS256", "kid": "one"}, claims)
        admin = {**claims, "sub": "admin"}
        head, body = (url64(json.dumps(part).encode()) for part in ({"alg": "none"}, admin))
        # Signed by the provider, but not for here or now; and not signed by the provider.
        self.bad_tokens = [
            self._signed({"alg": "RS256", "kid": "one"}, {**admin, "iat": now - 7200, "exp": now - 3600}),
            self._signed({"alg": "RS256", "kid": "one"}, {**admin, "aud": "another"}),
            self._signed({"alg": "RS256", "kid": "one"}, {**admin, "iss": "https://another.example"}),
            self._signed({"alg": "RS256", "kid": "one"}, {**admin, "exp": None}),
            self._signed({"alg": "HS256", "kid": "one"}, admin, hmac_key=modulus),
            self._signed({"alg": "RS256", "kid": "../one"}, admin),
            self._signed({"alg": "RS256", "kid": "one"}, admin)[:-4] + "AAAA",
            f"{head}.{body}.",
            self.token.split(".")[0] + "." + body + "." + self.token.split(".")[2],
        ]
        # Tokens with an unknown key id are verified by no key, whatever signed them.

    def _signed(self, head, claims, hmac_key=None):
        content = ".".join(url64(json.dumps(part).encode()) for part in (head, claims))
        if hmac_key:
            return content + "." + url64(hmac.new(hmac_key, content.encode(), hashlib.sha256).digest())
        return content + "." + url64(openssl(self.directory, "dgst", "-sha256", "-sign", "idp.key", input=content.encode()))

    # What the administrator prepares.

    def prepare(self):
        """Starts the node, and makes what strangers must not see or change."""
        self.start()
        for topic in (TOPIC, self.hidden, CALM):
            self.run("topic", "create", topic, "--partitions", "1")
        for topic in (TOPIC, self.hidden):
            self.run("produce", topic, input=f"{self.hidden}\n".encode())
        self.run("consume", TOPIC, "--group", GROUP, "--from-beginning", "--max-messages", "1")
        self.run("security", "acl", "add", "User:node", "--cluster", "--allow", "cluster_action")
        return self

    def run(self, *words, **more):
        """A command of the administrator."""
        where = ["--bootstrap-server", self.bootstrap, "--command-config", str(self.client)]
        run = subprocess.run([thalweg_binary(), *words, *where], capture_output=True, timeout=60, **more)
        if run.returncode:
            raise BrokerFailed(f"thalweg {' '.join(words)}: {run.stderr.decode()}")
        return run.stdout.decode()

    # What is seen from outside.

    def descriptors(self):
        """What each open descriptor refers to."""
        open_now = {}
        for descriptor in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                open_now[descriptor.name] = os.readlink(descriptor)
        return open_now

    def memory_mib(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(status[status.index("VmRSS:") + 6 :].split()[0]) / 1024

    def files(self):
        """Name and content of each log, without the calm client's: what changes when anything is created, deleted, written
        or configured."""
        found = {}
        for path in self.data_dir.rglob("*"):
            name = str(path.relative_to(self.data_dir))
            if path.is_dir():
                found[name] = "a directory"
            elif path.suffix == ".log" and not name.startswith(f"{CALM}-"):
                found[name] = hashlib.sha256(path.read_bytes().rstrip(b"\0")).hexdigest()
        return found

    def is_alive(self):
        return self.process.poll() is None and answers(self.host, self.port, timeout=10)


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
