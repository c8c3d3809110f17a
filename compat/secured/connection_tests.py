"""Every client over every kind of connection, as a user with ACLs, and refused as one without."""

import re

from certificates import Authority
from cluster import OPEN, REAUTHENTICATION_S, secured
from login import NO_SCRAM_WITH_KAFKA
from probes import CLIENTS, IN_CI, probe
from suite import TARGET, Skip, each, nightly_only, unique, until

# How clients say that a topic is not theirs, a login failed, an authority is unknown.
DENIED = re.compile(r"topic.?authorization|not authorized to access (this )?topic", re.I)
WRONG_LOGIN = re.compile(r"authentication.?failed|authentication error|failed authentication", re.I)
UNKNOWN_AUTHORITY = re.compile(r"certificate|ssl|tls", re.I)
# Why some clients cannot connect in some way.
CANNOT = {
    ("OAUTHBEARER", "kcat"): "it makes only tokens without a signature, or asks an identity provider",
}
# Those that log in with delegation tokens.
WITH_TOKENS = ("java-client", "franz-go")


def every_client(test):
    """One test per client; those of the nightly form are skipped in the short one."""

    def run(client):
        if client not in IN_CI:
            nightly_only()
        test(client)

    return each(*CLIENTS)(run)


def connects(client, listener, protocol, mechanism="", user="client", seconds=0, **more):
    """Checks that a client can write and read."""
    skip_what_cannot(client, mechanism)
    cluster = secured()
    login = cluster.realm.client(protocol, mechanism, user, **more)
    found = probe(client, cluster.address(listener), login, unique(OPEN), seconds)
    assert found == "ok", found


def skip_what_cannot(client, mechanism):
    if (mechanism, client) in CANNOT:
        raise Skip(CANNOT[mechanism, client])
    if client == "kcat" and mechanism.startswith("SCRAM") and TARGET == "apache-kafka":
        raise Skip(NO_SCRAM_WITH_KAFKA)


def is_refused(client, expected, listener, protocol, mechanism, topic=None, **login):
    skip_what_cannot(client, mechanism)
    cluster = secured()
    login = cluster.realm.client(protocol, mechanism, **login)
    found = probe(client, cluster.address(listener), login, topic or unique(OPEN))
    assert found != "ok" and expected.search(found), found


@every_client
def test_certificate_names_the_user_by_a_rule(client):
    connects(client, "CERTIFICATE", "SSL")


@every_client
def test_sasl_ssl_plain(client):
    connects(client, "LOGIN", "SASL_SSL", "PLAIN")


@every_client
def test_sasl_ssl_scram_sha_256(client):
    connects(client, "LOGIN", "SASL_SSL", "SCRAM-SHA-256")


@every_client
def test_sasl_ssl_scram_sha_512(client):
    connects(client, "LOGIN", "SASL_SSL", "SCRAM-SHA-512", "guest")


@every_client
def test_sasl_ssl_oauthbearer(client):
    connects(client, "LOGIN", "SASL_SSL", "OAUTHBEARER")


@every_client
def test_sasl_plaintext_scram_sha_256(client):
    connects(client, "PLAINLOGIN", "SASL_PLAINTEXT", "SCRAM-SHA-256")


@every_client
def test_wrong_password_is_refused(client):
    mechanism = "SCRAM-SHA-256" if client in IN_CI[::2] else "PLAIN"
    is_refused(client, WRONG_LOGIN, "LOGIN", "SASL_SSL", mechanism, password="wrong")


@every_client
def test_unknown_authority_is_refused(client):
    other = Authority(secured().realm.directory / unique("other"))
    is_refused(client, UNKNOWN_AUTHORITY, "LOGIN", "SASL_SSL", "SCRAM-SHA-512", ca=other.ca)


@every_client
def test_denied_topic_is_the_clients_own_error(client):
    is_refused(client, DENIED, "LOGIN", "SASL_SSL", "SCRAM-SHA-512", secured().new_topic("closed"), user="guest")


@every_client
def test_sessions_that_end_are_renewed_or_reopened(client):
    if client == "kcat":
        raise Skip("confluent-kafka is the same library, and lasts longer")
    connects(client, "SHORT", "SASL_SSL", "SCRAM-SHA-512", seconds=3 * REAUTHENTICATION_S)


def new_token(cluster):
    """The id and secret of a delegation token of `client`."""
    config = cluster.realm.client("SASL_SSL", "SCRAM-SHA-512")["SECURITY_JAVA"]
    tokens = lambda *arguments: cluster.tool("DelegationTokenCommand", *arguments, config=config)
    made = tokens("--create", "--max-life-time-period", "-1")
    # TOKENID HMAC OWNER REQUESTER RENEWERS ISSUEDATE EXPIRYDATE MAXDATE
    token, secret, owner = made.splitlines()[-1].split()[:3]
    assert owner == "User:client", made
    # Apache Kafka answers before its broker knows the token.
    until(lambda: token in tokens("--describe", "--owner-principal", owner), "the token")
    return token, secret


@each(*WITH_TOKENS)
def test_delegation_token(client):
    token, secret = new_token(secured())
    connects(client, "LOGIN", "SASL_SSL", "SCRAM-SHA-256", token, password=secret, token_auth=True)


@each(*WITH_TOKENS)
def test_sessions_of_a_delegation_token_are_renewed(client):
    token, secret = new_token(secured())
    seconds = 3 * REAUTHENTICATION_S
    connects(client, "SHORT", "SASL_SSL", "SCRAM-SHA-512", token, seconds, password=secret, token_auth=True)
