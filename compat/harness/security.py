"""Secured brokers: certificates, users and tokens, and the settings of listeners and clients that use them.

Suites learn how to connect by variables of their environment: SECURITY_PROTOCOL, SECURITY_MECHANISM, SECURITY_USER,
SECURITY_PASSWORD, SECURITY_CA, SECURITY_CERTIFICATE (a PEM file with the key), SECURITY_TOKEN, and SECURITY_JAVA and
SECURITY_LIBRDKAFKA, files of the same as settings of either. Without them, they connect in plain text.
"""

import base64
import json
import pathlib
import subprocess
import time

from broker import kafka_classpath
from certificates import Authority, openssl

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# The nodes, the administrator, a user with ACLs for everything, one with few.
USERS = {"node": "node-secret", "admin": "admin-secret", "client": "client-secret", "guest": "guest-secret"}
AUDIENCE = "kafka"
MODULES = "org.apache.kafka.common.security"
LOGIN = {
    "PLAIN": f"{MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{MODULES}.oauthbearer.OAuthBearerLoginModule",
}
# Internal listeners of a single node, which its certificate opens, and those of a cluster. Controllers log in to each other
# before they can read credentials.
OF_A_NODE = {"INTERNAL": "SSL", "CONTROLLER": "SSL"}
OF_A_CLUSTER = {"INTERNAL": "SASL_SSL:SCRAM-SHA-512", "CONTROLLER": "SASL_SSL:PLAIN"}


def parse(text):
    """The protocol and mechanism of SASL_SSL:SCRAM-SHA-512."""
    protocol, _, mechanism = text.partition(":")
    if protocol not in PROTOCOLS or mechanism not in ("", *MECHANISMS):
        raise ValueError(f"{text}: expected one of {', '.join(PROTOCOLS)}, for SASL with :{' or :'.join(MECHANISMS)}")
    return protocol, (mechanism or "SCRAM-SHA-512") if protocol.startswith("SASL") else ""


class Realm:
    """The secrets of a cluster, in a directory."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.authority = Authority(self.directory)
        # What clients trust.
        self.trusted = self.authority.ca
        self.users = {name: self.authority.sign(name) for name in USERS}
        self.node = self.users["node"]
        self.signing_key = self.directory / "tokens.key"
        openssl("genrsa", "-out", self.signing_key, "2048")
        modulus = openssl("rsa", "-in", self.signing_key, "-noout", "-modulus").decode().strip().split("=")[1]
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "compat", "e": "AQAB", "n": url64(bytes.fromhex(modulus))}
        self.jwks = self.directory / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def token(self, user, lifetime_s=3600):
        """A token of a user, signed."""
        now = int(time.time())
        claims = {"sub": user, "aud": AUDIENCE, "iss": "compat", "iat": now, "exp": now + lifetime_s, "scope": "kafka"}
        parts = [url64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "compat", "typ": "JWT"}, claims)]
        signature = openssl("dgst", "-sha256", "-sign", self.signing_key, data=".".join(parts).encode())
        return ".".join([*parts, url64(signature)])

    def node_settings(self, listeners, internal=None):
        """Settings of a node with these client listeners: {name: (protocol, {setting: value})}, and internal ones."""
        internal = {name: parse(security) for name, security in (internal or OF_A_NODE).items()}
        protocols = {name: protocol for name, (protocol, _) in (listeners | internal).items()}
        settings = {
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:admin",
            "delegation.token.secret.key": "compat",
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": "100",
        }
        for name, (_, mechanism) in internal.items():
            prefix = f"listener.name.{name.lower()}."
            settings[prefix + "ssl.client.auth"] = "required"
            if mechanism:
                settings[prefix + "sasl.enabled.mechanisms"] = mechanism
                own = f'username="node" password="{USERS["node"]}"'
                settings[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = jaas(mechanism, own)
                role = "controller" if name == "CONTROLLER" else "inter.broker"
                settings[f"sasl.mechanism.{role}.protocol"] = mechanism
        for name, (protocol, more) in listeners.items():
            prefix = f"listener.name.{name.lower()}."
            if protocol == "SSL":
                settings[prefix + "ssl.client.auth"] = "required"
            if protocol.startswith("SASL"):
                settings[prefix + "sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
                for mechanism in MECHANISMS:
                    settings[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = jaas(mechanism)
                handler = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
                settings[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = handler
            settings.update({prefix + key: value for key, value in more.items()})
        return settings

    def format_options(self):
        """The arguments that create the users of SCRAM with the cluster: of `thalweg serve` and Kafka's storage tool."""
        scram = [mechanism for mechanism in MECHANISMS if mechanism.startswith("SCRAM")]
        pairs = [(mechanism, *user) for mechanism in scram for user in USERS.items()]
        return [part for m, name, secret in pairs for part in ("--add-scram", f"{m}=[name={name},password={secret}]")]

    def jvm_options(self):
        """The system properties that a JVM needs to read token and keys from files."""
        files = [self.jwks, *(self.directory / f"{user}.token" for user in USERS)]
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(file.as_uri() for file in files)}"]

    def client(self, protocol, mechanism="", user="client", password=None, ca=None, token_auth=False):
        """The environment of a client."""
        name = f"{protocol}-{mechanism}-{user}-{time.monotonic_ns()}"
        password = USERS.get(user, "") if password is None else password
        told = {"SECURITY_PROTOCOL": protocol, "SECURITY_USER": user, "SECURITY_PASSWORD": password}
        java, librdkafka = {"security.protocol": protocol}, {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            told["SECURITY_CA"] = str(ca or self.trusted)
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": told["SECURITY_CA"]}
            librdkafka["ssl.ca.location"] = told["SECURITY_CA"]
        if protocol == "SSL" and user in self.users:
            told["SECURITY_CERTIFICATE"] = str(self.users[user])
            java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.users[user])}
            librdkafka |= {"ssl.certificate.location": str(self.users[user]), "ssl.key.location": str(self.users[user])}
        if mechanism:
            told["SECURITY_MECHANISM"] = java["sasl.mechanism"] = librdkafka["sasl.mechanisms"] = mechanism
        if mechanism == "OAUTHBEARER":
            told["SECURITY_TOKEN"] = self.token(user)
            place = self.directory / f"{user}.token"
            place.write_text(told["SECURITY_TOKEN"])
            java["sasl.oauthbearer.token.endpoint.url"] = place.as_uri()
            java["sasl.login.callback.handler.class"] = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
            java["sasl.jaas.config"] = f"{LOGIN[mechanism]} required;"
        elif mechanism:
            told["SECURITY_TOKEN_AUTH"] = "1" if token_auth else ""
            by_token = ' tokenauth="true"' if token_auth else ""
            java["sasl.jaas.config"] = f'{LOGIN[mechanism]} required username="{user}" password="{password}"{by_token};'
            librdkafka |= {"sasl.username": user, "sasl.password": password}
        told["SECURITY_JAVA"] = self.write(f"{name}.properties", java)
        told["SECURITY_LIBRDKAFKA"] = self.write(f"{name}.librdkafka", librdkafka)
        told["SECURITY_JVM"] = " ".join(self.jvm_options())
        return told

    def write(self, name, settings):
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def allow_everything(self, bootstrap, user, protocol, mechanism):
        """Gives a user every right by ACLs, with Kafka's tool as the administrator."""
        config = self.client(protocol, mechanism, "admin")["SECURITY_JAVA"]
        everything = ("--topic", "*", "--group", "*", "--transactional-id", "*", "--cluster")
        grant = ("--add", "--allow-principal", f"User:{user}", "--operation", "All", *everything)
        kafka_tool(self, "AclCommand", "--bootstrap-server", bootstrap, "--command-config", config, *grant)


def jaas(mechanism, own=""):
    """The line of a listener: the login of its node, and with PLAIN its users."""
    users = [f'user_{user}="{password}"' for user, password in USERS.items()] if mechanism == "PLAIN" else []
    return f"{' '.join([LOGIN[mechanism], 'required', *([own] if own else []), *users])};"


def kafka_tool(realm, name, *arguments, good=True):
    """What one of Kafka's tools prints; it must end well, or badly."""
    java = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *realm.jvm_options(), "-cp", kafka_classpath()]
    name = name if "." in name else f"org.apache.kafka.tools.{name}"
    done = subprocess.run([*java, name, *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == good, f"{name} {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def url64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
