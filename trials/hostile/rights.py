"""Attacks of peers that have a name and no rights: every API at every version with random and mutated bodies, envelopes that
claim another principal, envelopes within envelopes, and envelopes of a peer that may forward, for one that may nothing.

Each is a function of the node and a seeded source. Whether anything changed is seen by the node's files.
"""

import struct

from node import GROUP, PASSWORDS, TOPIC
from peer import Peer, mutated
from requests import Writer, apis, unsigned

APIS = apis()
ENVELOPE, CREATE_TOKEN = 58, 38
# What every user may do: log in again, and make a token in the own name.
SASL = (17, 36)
# The controller's APIs that change nothing themselves: Fetch, SaslHandshake, ApiVersions, SaslAuthenticate,
# ListPartitionReassignments, DescribeQuorum, Envelope, FetchSnapshot, DescribeCluster.
READING = (1, 17, 18, 36, 46, 55, ENVELOPE, 59, 60)
WORDS = "consumer range classic retention.ms cleanup.policy segment.bytes 1 0 -1 __consumer_offsets admin mallory User".split()


def without_a_name(node, random, listener="PLAIN"):
    return Peer(node, listener)


def over_tls(node, random):
    return Peer(node, "TLS", tls=True)


def by_certificate(node, random):
    return Peer(node, "MUTUAL", tls=True, certificate="stranger")


def with_a_login(node, random, listener="LOGIN", user="mallory"):
    peer = Peer(node, listener)
    code, _ = peer.log_in(user, PASSWORDS[user], "PLAIN")
    assert code == 0, f"{user} cannot log in: {code}"
    return peer


def writer(random):
    return Writer(random, [TOPIC.encode(), GROUP.encode(), *(word.encode() for word in WORDS)])


def converse(peer, frames):
    """Sends frames, and reads an answer to each; ends where the broker closes the connection."""
    for frame in frames:
        peer.send(frame)
        peer.frame()


def any_request(random, write, excluded, correlation=7, versions_beyond=0):
    key = random.choice([key for key in APIS if key not in excluded])
    api = APIS[key]
    version = random.randrange(api.low, api.high + 1 + versions_beyond)
    return write.frame(api, version, correlation)


def every_api(node, random):
    """Well formed requests of all APIs, in random order, on one connection after the other."""
    opener = random.choice((without_a_name, without_a_name, over_tls, by_certificate, with_a_login, with_a_login))
    excluded = (*SASL, CREATE_TOKEN) if opener in (with_a_login, by_certificate) else SASL
    write = writer(random)
    with opener(node, random) as peer:
        converse(peer, (any_request(random, write, excluded) for _ in range(20)))


def mutated_requests(node, random):
    """Requests with errors; a length may be wrong, so the peer ends its side and reads to the end."""
    opener = random.choice((without_a_name, without_a_name, over_tls, with_a_login))
    excluded = (*SASL, CREATE_TOKEN) if opener == with_a_login else ()
    write = writer(random)
    with opener(node, random) as peer:
        if random.random() < 0.7:
            # The frame is whole, its content is not.
            for _ in range(10):
                content = mutated(random, any_request(random, write, excluded, versions_beyond=1)[4:])
                if opener == with_a_login and content[:2] in (b"\0\x26", b"\0\x11", b"\0\x24"):
                    continue
                peer.send_frame(content)
        else:
            peer.send(mutated(random, any_request(random, write, excluded)))
        peer.end()


def controllers_apis(node, random):
    """The controller's own listener."""
    write = writer(random)
    with with_a_login(node, random, "CONTROLLER") as peer:
        converse(peer, (any_request(random, write, (*SASL, CREATE_TOKEN)) for _ in range(20)))


def principal(name, kind="User", is_by_token=False):
    """DefaultPrincipalData, behind its version."""
    text = lambda word: unsigned(len(word) + 1) + word
    return b"\0\0" + text(kind.encode()) + text(name.encode()) + bytes([is_by_token]) + b"\0"


def envelope(content, claimed, address=b"\x7f\0\0\1", correlation=9):
    blob = lambda data: unsigned(0) if data is None else unsigned(len(data) + 1) + data
    head = struct.pack(">hhih", ENVELOPE, 0, correlation, 4) + b"peer\0"
    body = head + blob(content) + blob(claimed) + blob(address) + b"\0"
    return struct.pack(">i", len(body)) + body


def changing_request(node, random, write, excluded=()):
    """A request that would change the cluster: of any API that the controller serves, but for those that only read."""
    keys = [key for key in node.controllers_apis if key not in READING and key not in excluded]
    api = APIS[random.choice(keys)]
    return write.frame(api, random.randrange(api.low, api.high + 1), 5)[4:]


def forged_envelopes(node, random):
    """Forwarded requests in the administrator's name from peers without CLUSTER_ACTION, on both listeners."""
    opener = random.choice((
        without_a_name,
        with_a_login,
        lambda node, random: with_a_login(node, random, "CONTROLLER"),
        lambda node, random: with_a_login(node, random, "CONTROLLER"),
    ))
    write = writer(random)
    with opener(node, random) as peer:
        frames = []
        for _ in range(5):
            content = changing_request(node, random, write)
            for _ in range(random.choice((0, 0, 0, 1, 2, 50))):
                content = envelope(content, principal("admin"))[4:]
            frames.append(envelope(content, principal(random.choice(("admin", "node")))))
        converse(peer, frames)


def envelopes_for_nobody(node, random):
    """From a peer with CLUSTER_ACTION: requests of a principal without rights, nested envelopes, and broken ones."""
    write = writer(random)
    with with_a_login(node, random, "CONTROLLER", "node") as peer:
        for _ in range(5):
            # A principal that logged in without a token may make one, which a broken principal may turn into.
            content, claimed = changing_request(node, random, write, (CREATE_TOKEN,)), principal("mallory", is_by_token=True)
            kind = random.randrange(5)
            if kind == 0:
                for _ in range(random.choice((1, 2, 50))):
                    content = envelope(content, principal("mallory", is_by_token=True))[4:]
            elif kind == 1:
                content = mutated(random, content)
            elif kind == 2:
                claimed = mutated(random, claimed)
            elif kind == 3:
                claimed = random.choice((None, b"", claimed[: random.randrange(len(claimed))]))
            address = random.choice((b"\x7f\0\0\1", b"\x7f\0\0\1", b"", b"\1", bytes(16), bytes(200)))
            peer.send(envelope(content, claimed, address))
            peer.frame()


ATTACKS = (
    every_api,
    every_api,
    every_api,
    mutated_requests,
    mutated_requests,
    controllers_apis,
    forged_envelopes,
    envelopes_for_nobody,
)
