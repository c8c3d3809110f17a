"""Keys, certificates and the authority of every node change under load: Apache Kafka's nodes are restarted for it, Thalweg's
are not."""

import os
import socket
import ssl

from certificates import Authority, replace
from faults import say
from network import CLIENTS
from ordeal import Ordeal
from suite import each, nightly_only


def renew(ordeal, what, change):
    """Changes a file of each node, one node after the other; then all connections are opened again."""
    for node in ordeal.cluster.nodes:
        change(node)
        if node.make == "apache":
            node.stop()
            node.start()
            ordeal.look()
    # Thalweg reads changed files within seconds; what fails until then is retried.
    ordeal.look()
    names = [node.name for node in ordeal.cluster.nodes] + [CLIENTS]
    ordeal.cluster.network.heal({(a, b) for a in names for b in names}, reset=True)
    ordeal.look()
    say(what)


@each(*([os.environ["KIND"]] if "KIND" in os.environ else ["embedded", "apache-controllers", "mixed"]))
def test_certificates_of_every_node_change_under_load(kind):
    nightly_only()
    with Ordeal(kind, "-certificates", secured=True, prepare=trust_both_as_client) as ordeal:
        old, new = ordeal.realm.authority, ordeal.realm.next_authority
        renew(ordeal, "new keys of the same authority", lambda node: old.sign("node", node.keystore))
        both = old.ca.read_bytes() + new.ca.read_bytes()
        renew(ordeal, "every node trusts a second authority", lambda node: replace(node.truststore, both))
        renew(ordeal, "new keys of the second authority", lambda node: new.sign("node", node.keystore))
        only_new = new.ca.read_bytes()
        renew(ordeal, "no node trusts the first authority", lambda node: replace(node.truststore, only_new))
        served = {certificate_of(node) for node in ordeal.cluster.brokers}
        assert served == {"next"}, f"certificates are signed by {served}"
        ordeal.judge()
        ordeal.assert_no_client_met_an_error()


def trust_both_as_client(cluster):
    """Clients trust both authorities from the start: they do not read their files again."""
    realm = cluster.realm
    realm.next_authority = Authority(realm.directory / "next", "next")
    realm.trusted = realm.directory / "trusted.pem"
    realm.trusted.write_bytes(realm.authority.ca.read_bytes() + realm.next_authority.ca.read_bytes())


def certificate_of(node):
    """The name of the authority that signed what a node shows to clients."""
    context = ssl.create_default_context(cafile=node.cluster.realm.trusted)
    with socket.create_connection(("127.0.0.1", node.listeners["CLIENTS"]), timeout=10) as connection:
        with context.wrap_socket(connection, server_hostname="127.0.0.1") as secure:
            issuer = dict(pair for names in secure.getpeercert()["issuer"] for pair in names)
            return issuer["commonName"]
