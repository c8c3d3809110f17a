"""Kafka's own tools, with files and arguments as its documentation has them."""

import os
import pathlib
import socket
import ssl
import subprocess

from broker import SUITE_SETTINGS, Broker
from certificates import HOSTS
from cluster import secured
from probes import probe
from security import USERS, Realm, jaas
from suite import each, unique, until

STORE_PASSWORD = "store-secret"


def keytool(*arguments):
    done = subprocess.run(["keytool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"keytool {arguments[0]}: {done.stdout}{done.stderr}"


def attempt(cluster, topic, user, password=None, mechanism="SCRAM-SHA-512"):
    """What a client prints that starts quickly: `ok`, or why it cannot write and read."""
    login = cluster.realm.client("SASL_SSL", mechanism, user, password=password)
    return probe("confluent-kafka", cluster.address("LOGIN"), login, topic)


def test_kafka_acls_add_list_remove():
    cluster, topic = secured(), secured().new_topic("listed")
    assert "TOPIC_AUTHORIZATION_FAILED" in attempt(cluster, topic, "guest")
    grant = ("--allow-principal", "User:guest", "--topic", topic)
    cluster.acls("--add", *grant, "--producer")
    cluster.acls("--add", *grant, "--consumer", "--group", "*")
    listed = cluster.acls("--list", "--topic", topic)
    for operation in ("WRITE", "DESCRIBE", "CREATE", "READ"):
        assert f"(principal=User:guest, host=*, operation={operation}, permissionType=ALLOW)" in listed, listed
    assert attempt(cluster, topic, "guest") == "ok"
    cluster.acls("--add", "--deny-principal", "User:guest", "--deny-host", "127.0.0.1", "--operation", "Write", "--topic", topic)
    assert "TOPIC_AUTHORIZATION_FAILED" in attempt(cluster, topic, "guest")
    cluster.acls("--remove", "--force", "--topic", topic)
    assert "permissionType" not in cluster.acls("--list", "--topic", topic)
    assert "patternType=PREFIXED" in cluster.acls("--list", "--principal", "User:guest")


def test_kafka_acls_is_refused_without_the_right():
    cluster = secured()
    config = cluster.realm.client("SASL_SSL", "SCRAM-SHA-512", "guest")["SECURITY_JAVA"]
    said = cluster.tool("AclCommand", "--list", config=config, good=False)
    assert "ClusterAuthorizationException" in said, said


def test_kafka_configs_gives_a_user_a_password():
    cluster, user = secured(), unique("user")
    entity = ("--entity-type", "users", "--entity-name", user)
    cluster.acls("--add", "--allow-principal", f"User:{user}", "--operation", "All", "--topic", "*", "--group", "*")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        cluster.configs(*entity, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password=first]")
    topic = cluster.new_topic("password")
    assert attempt(cluster, topic, user, "first", "SCRAM-SHA-256") == "ok"
    cluster.configs(*entity, "--alter", "--add-config", "SCRAM-SHA-512=[password=second]")
    assert attempt(cluster, topic, user, "second") == "ok"
    refused = attempt(cluster, topic, user, "first")
    assert "Authentication failed" in refused, refused


def served_certificate(port, ca):
    """The serial number of the certificate that a listener shows."""
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with context.wrap_socket(connection, server_hostname="127.0.0.1") as secure:
            return secure.getpeercert()["serialNumber"]


def test_kafka_configs_changes_the_certificate_of_a_listener():
    cluster = secured()
    port, ca = cluster.broker.ports["SHORT"], cluster.realm.authority.ca
    before = served_certificate(port, ca)
    fresh = cluster.realm.authority.sign("node", cluster.realm.directory / "node-2.pem")
    setting = "listener.name.short.ssl.keystore.location"
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    said = cluster.configs(*entity, "--alter", "--add-config", f"{setting}=/no/such/file", good=False)
    assert "InvalidRequestException" in said or "InvalidConfigurationException" in said, said
    cluster.configs(*entity, "--alter", "--add-config", f"{setting}={fresh}")
    until(lambda: served_certificate(port, ca) != before, "the new certificate")
    cluster.configs(*entity, "--alter", "--delete-config", setting)
    until(lambda: served_certificate(port, ca) == before, "the one of the file")


def test_kafka_delegation_tokens_create_describe_renew_expire():
    cluster = secured()
    config = cluster.realm.client("SASL_SSL", "SCRAM-SHA-512")["SECURITY_JAVA"]
    tokens = lambda *arguments, good=True: cluster.tool("DelegationTokenCommand", *arguments, config=config, good=good)
    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:guest")
    token, secret = made.splitlines()[-1].split()[:2]
    assert token in tokens("--describe", "--owner-principal", "User:client")
    assert "Completed renew operation" in tokens("--renew", "--renew-time-period", "-1", "--hmac", secret)
    assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", secret)
    until(lambda: token not in tokens("--describe", "--owner-principal", "User:client"), "the token gone")


def another(name, listeners, settings=None):
    """Another broker of the suite's kind, to be started."""
    directory = pathlib.Path(os.environ["WORK"]) / name
    realm, settings = Realm(directory / "realm"), SUITE_SETTINGS | (settings or {})
    return Broker(secured().broker.target, directory, settings, heap="512m", realm=realm, listeners=listeners)


@each("JKS", "PKCS12")
def test_keystores_of_keytool(kind):
    """A self-signed certificate in a keystore, trusted by a truststore, both in one format, and the same for the client."""
    directory = pathlib.Path(os.environ["WORK"]) / f"keytool-{kind}"
    directory.mkdir()
    stores = {}
    for name in ("server", "client"):
        store, exported = directory / f"{name}.{kind}", directory / f"{name}.der"
        secret = ("-storetype", kind, "-storepass", STORE_PASSWORD)
        names = ("-ext", "SAN=" + HOSTS.strip().split("=")[1])
        algorithm = ("-keyalg", "RSA", "-keysize", "2048", "-validity", "30")
        keytool("-genkeypair", "-keystore", store, *secret, "-alias", name, "-dname", f"CN={name},O=Example", *algorithm, *names)
        keytool("-exportcert", "-keystore", store, *secret, "-alias", name, "-file", exported)
        trust = directory / f"trust-{name}.{kind}"
        keytool("-importcert", "-noprompt", "-keystore", trust, *secret, "-alias", name, "-file", exported)
        stores[name] = (store, trust)

    def settings(store, trust):
        return {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(trust),
            "ssl.truststore.password": STORE_PASSWORD,
        }

    own, theirs = stores["server"], stores["client"]
    with another(f"store-{kind}", {"STORES": ("SSL", settings(own[0], theirs[1]))}) as broker:
        java = {"security.protocol": "SSL", **settings(theirs[0], own[1])}
        login = {"SECURITY_JAVA": broker.realm.write("java.properties", java), "SECURITY_JVM": ""}
        found = probe("java-client", broker.bootstrap, login, "denied")
        # The principal is `client`, by the rule, and has no ACL yet.
        assert "TopicAuthorizationException" in found, found


def test_directory_of_kafka_storage_with_users_is_served():
    """kafka-storage format --add-scram, then the broker of the target on that directory and file."""
    broker = another("formatted", {"LOGIN": ("SASL_SSL", {})})
    broker.format()
    with broker:
        login = broker.realm.client("SASL_SSL", "SCRAM-SHA-256", "admin")
        found = probe("confluent-kafka", broker.bootstrap, login, unique("formatted"))
        assert found == "ok", found


def test_jaas_line_of_a_listener_has_the_users_and_the_login_of_brokers():
    """As in Kafka's documentation: one listener, PLAIN for clients and between brokers."""
    own = f'username="admin" password="{USERS["admin"]}"'
    listener = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": jaas("PLAIN", own)}
    between = {"inter.broker.listener.name": "LOGIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    with another("jaas", {"LOGIN": ("SASL_PLAINTEXT", listener)}, between) as broker:
        login = broker.realm.client("SASL_PLAINTEXT", "PLAIN", "admin")
        found = probe("kcat", broker.bootstrap, login, unique("jaas"))
        assert found == "ok", found
