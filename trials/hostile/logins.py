"""Attacks on the login: SaslHandshake and SaslAuthenticate of all versions, raw tokens, and the messages of each mechanism,
mutated, replayed, out of order, too long, too short, and for another user.

Each is a function of the node and a seeded source; it returns, or raises a Violation. A peer without a credential is never served.
"""

import base64
import json
import struct

from node import PASSWORDS, TOPIC, url64
from peer import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Closed, Peer, Scram, Violation, mutated
from requests import Writer, apis

APIS = apis()
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SCRAMS = MECHANISMS[1:3]
BEFORE_LOGIN = (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)


def door(node, random):
    """A connection to a listener that wants a login."""
    listener = random.choice(("LOGIN", "LOGIN", "LOGIN", "CONTROLLER", "BOTH"))
    return Peer(node, listener, tls=listener == "BOTH")


def expect_no_service(peer, why):
    if peer.is_served():
        raise Violation(f"the peer was served {why}")


def message(node, random, mechanism, user="mallory", password=None):
    """A first message of the mechanism."""
    password = password or PASSWORDS[user]
    if mechanism == "PLAIN":
        return f"\0{user}\0{password}".encode()
    if mechanism == "OAUTHBEARER":
        return bearer(node.token)
    return Scram(mechanism, user, password).first()


def bearer(token, header="n,,"):
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def mutated_messages(node, random):
    """A login of Mallory's own, with an error in a message: she is let in as herself, or not at all."""
    mechanism = random.choice(MECHANISMS)
    at = random.randrange(2)
    change = lambda step, text: mutated(random, text) if step == at else text
    with Peer(node, "LOGIN") as peer:
        if mechanism == "OAUTHBEARER":
            peer.handshake(mechanism)
            peer.authenticate(change(at, bearer(node.token)), random.randrange(3))
        else:
            peer.log_in("mallory", PASSWORDS["mallory"], mechanism, change)
        # What she is shown then must not have what is hidden.
        peer.is_served()


def mutated_messages_of_another(node, random):
    """As before, in the administrator's name with a wrong password: no login succeeds."""
    mechanism = random.choice(MECHANISMS[:3])
    change = lambda _, text: mutated(random, text) if random.random() < 0.7 else text
    with Peer(node, "LOGIN") as peer:
        code, _ = peer.log_in("admin", "a guess", mechanism, change)
        if code == 0:
            expect_no_service(peer, "after a wrong password")


def mutated_frames(node, random):
    """A whole request of the login with errors anywhere: in its length, its header, its body."""
    with door(node, random) as peer:
        body = struct.pack(">hhi", SASL_HANDSHAKE, random.randrange(3), 1) + b"\0\4peer\0\5PLAIN"
        if random.random() < 0.7:
            peer.handshake(random.choice(MECHANISMS), random.choice((1, 1, 2, 0)))
            text = message(node, random, random.choice(MECHANISMS), password="a guess")
            body = struct.pack(">hhi", SASL_AUTHENTICATE, random.randrange(3), 2) + b"\0\4peer"
            body += random.choice((struct.pack(">i", len(text)) + text, b"\0" + bytes([len(text) % 128 + 1]) + text + b"\0"))
        frame = struct.pack(">i", len(body)) + body
        peer.send(mutated(random, frame))
        peer.end()


def raw_tokens(node, random):
    """Version 0 of SaslHandshake: messages follow as frames without a header, here short, long and wrong ones."""
    with door(node, random) as peer:
        mechanism = random.choice(MECHANISMS)
        if peer.handshake(mechanism, 0):
            return
        whole = message(node, random, mechanism, password="a guess")
        if mechanism == "OAUTHBEARER":
            whole = bearer(random.choice(node.bad_tokens))
        for _ in range(random.choice((1, 2, 3))):
            short = random.randbytes(random.randrange(6)) if random.random() < 0.5 else whole[: random.randrange(len(whole))]
            peer.send_frame(random.choice((b"", short, mutated(random, whole), whole)))
        expect_no_service(peer, "after raw tokens that prove nothing")


def oversized_frames(node, random):
    """A length beyond sasl.server.max.receive.size (524288): the connection ends, and the bytes are not kept."""
    with door(node, random) as peer:
        if random.random() < 0.5:
            peer.handshake("PLAIN", random.choice((0, 1)))
        length = random.choice((524_289, 1 << 20, 1 << 27, (1 << 31) - 1, -1, -(1 << 31)))
        peer.send(struct.pack(">i", length))
        try:
            for _ in range(64):
                peer.send(bytes(1 << 16))
            if length > 1 << 23:
                raise Violation(f"4 MiB of a frame of {length} bytes were taken before authentication")
        except Closed:
            return
        expect_no_service(peer, f"after a frame of {length} bytes")


def slow_frames(node, random):
    """Part of a frame, and then nothing: dropped at the end of the case, and meanwhile nothing is served."""
    peer = door(node, random)
    peer.send(struct.pack(">i", random.choice((10, 1000, 524_288)))[: random.randrange(1, 5)])
    return peer


def requests_before_login(node, random):
    """Any API before the login, well formed: none is answered but those of the login."""
    with door(node, random) as peer:
        api = APIS[random.choice([key for key in APIS if key not in BEFORE_LOGIN])]
        writer = Writer(random, [b"victim", b"victim-group", b"1"])
        if random.random() < 0.5:
            peer.handshake(random.choice(MECHANISMS[:1]), 1)
        peer.send(writer.frame(api, random.randrange(api.low, api.high + 1), 77))
        try:
            answer = peer.frame()
        except Closed:
            return
        raise Violation(f"{api.name} is answered before authentication: {answer[:40].hex()}")


def wrong_order(node, random):
    """Requests of the login in any order, pipelined or not, that prove nothing."""
    with door(node, random) as peer:
        count = random.randrange(1, 8)
        for _ in range(count):
            kind = random.randrange(5)
            mechanism = random.choice((*MECHANISMS, "GSSAPI", "", "x" * 300))
            if kind == 0:
                peer.request(API_VERSIONS, random.choice((0, 1, 2, 99)), b"")
            elif kind == 1:
                peer.request(SASL_HANDSHAKE, random.choice((0, 1, 1, 2, -1)), struct.pack(">h", len(mechanism)) + mechanism.encode())
            elif kind == 2:
                text = message(node, random, random.choice(MECHANISMS[:3]), password="a guess")
                peer.request(SASL_AUTHENTICATE, random.randrange(2), struct.pack(">i", len(text)) + text)
            elif kind == 3:
                peer.request(3, 1, struct.pack(">i", -1))
            else:
                peer.send_frame(random.randbytes(random.randrange(20)))
        expect_no_service(peer, "after requests in the wrong order")


def pipelined_behind_a_failure(node, random):
    """Requests in the same packet as a login that fails, and behind a login that is not complete."""
    with Peer(node, random.choice(("LOGIN", "CONTROLLER"))) as peer:
        text = message(node, random, "PLAIN", "admin", "a guess")
        handshake = struct.pack(">hhi", SASL_HANDSHAKE, 1, 1) + b"\0\4peer\0\5PLAIN"
        login = struct.pack(">hhi", SASL_AUTHENTICATE, 1, 2) + b"\0\4peer" + struct.pack(">i", len(text)) + text
        metadata = struct.pack(">hhi", 3, 1, 3) + b"\0\4peer" + struct.pack(">i", -1)
        peer.send(b"".join(struct.pack(">i", len(part)) + part for part in (handshake, login, metadata, metadata)))
        try:
            while True:
                if struct.unpack_from(">i", peer.frame())[0] == 3:
                    raise Violation("a request behind a failed login is answered")
        except Closed:
            return


def replayed_proofs(node, random):
    """The messages of a login that succeeded, word by word on another connection."""
    mechanism = random.choice(SCRAMS)
    with Peer(node, "LOGIN") as peer:
        code, sent = peer.log_in("bob", PASSWORDS["bob"], mechanism)
        if code or not peer.is_served():
            raise Violation(f"bob cannot log in: {code}")
    with Peer(node, "LOGIN") as peer:
        peer.handshake(mechanism)
        for text in sent:
            code, _ = peer.authenticate(text)
            if code:
                return
        expect_no_service(peer, "after a replayed proof")


def another_identity(node, random):
    """Mallory's own credential, and a claim to another user's name by authorization ids."""
    mechanism = random.choice(MECHANISMS)
    with Peer(node, "LOGIN") as peer:
        peer.handshake(mechanism)
        if mechanism == "PLAIN":
            code, _ = peer.authenticate(f"admin\0mallory\0{PASSWORDS['mallory']}".encode())
        elif mechanism == "OAUTHBEARER":
            code, _ = peer.authenticate(bearer(node.token, "n,a=admin,"))
            if code == 0:
                code, _ = peer.authenticate(b"\x01")
        else:
            header = random.choice(("n,a=admin,", "y,a=admin,", "p=tls-server-end-point,,", "n,a=mallory,"))
            scram = Scram(mechanism, "mallory", PASSWORDS["mallory"], header=header)
            code, challenge = peer.authenticate(scram.first())
            if code == 0:
                code, _ = peer.authenticate(scram.final(challenge))
                if header == "n,a=mallory,":
                    return
        if code == 0:
            expect_no_service(peer, f"as another user by {mechanism}")


def bad_tokens(node, random):
    """Tokens that the provider did not sign, or not for this cluster and time."""
    token = random.choice(node.bad_tokens)
    if random.random() < 0.4:
        # The header or the claims of a good one, changed.
        parts = node.token.split(".")
        at = random.randrange(2)
        edit = {"sub": "admin"} if at else {"alg": random.choice(("none", "HS256", "ES256", "RS512", ""))}
        text = json.loads(_decoded(parts[at])) | edit
        parts[at] = url64(json.dumps(text).encode())
        token = ".".join(parts)
    with Peer(node, "LOGIN") as peer:
        peer.handshake("OAUTHBEARER")
        code, _ = peer.authenticate(bearer(token), random.randrange(3))
        if code == 0:
            code, _ = peer.authenticate(random.choice((b"\x01", b"", b"\x01\x01")))
            if code == 0:
                expect_no_service(peer, f"with a bad token: {token}")


def _decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def expired_delegation_tokens(node, random):
    """Delegation tokens that have expired or never were, as user names and with the extension that names them."""
    user, secret = random.choice((*node.expired_tokens, ("no-such-token", "secret"), ("admin", PASSWORDS["admin"])))
    with Peer(node, "LOGIN") as peer:
        code, _ = peer.log_in(user, secret, random.choice(SCRAMS), extension=",tokenauth=true")
        if code == 0:
            expect_no_service(peer, "with an expired delegation token")


def changes_at_reauthentication(node, random):
    """A second login on the connection, as another user or by another mechanism: refused, and the connection ends."""
    mechanism = random.choice(MECHANISMS[:3])
    with Peer(node, "LOGIN") as peer:
        code, _ = peer.log_in("mallory", PASSWORDS["mallory"], mechanism)
        if code:
            raise Violation(f"mallory cannot log in by {mechanism}: {code}")
        user, second = random.choice((("bob", mechanism), ("mallory", random.choice([m for m in MECHANISMS[:3] if m != mechanism]))))
        if random.random() < 0.3:
            # The same again is allowed: and then not at once once more.
            user, second = "mallory", mechanism
        code, _ = peer.log_in(user, PASSWORDS[user], second)
        if (user, second) != ("mallory", mechanism):
            if code == 0:
                raise Violation(f"mallory became {user} by {second} after {mechanism}")
            expect_no_service(peer, f"as {user} by {second} after {mechanism}")


def requests_within_reauthentication(node, random):
    """Requests between the messages of a second login are not served."""
    with Peer(node, "LOGIN") as peer:
        peer.log_in("mallory", PASSWORDS["mallory"], "PLAIN")
        peer.handshake("PLAIN")
        expect_no_service(peer, "in the middle of a second login")


def http_requests(node, random):
    """The HTTP listener without a login, with wrong ones, with one that may do nothing, and with errors anywhere: never a 200, but
    for the console's pages, which are as empty as the cluster is for a user without rights."""
    user = random.choice(("admin:a guess", f"mallory:{PASSWORDS['mallory']}", "eve:x", "", ":", "admin"))
    login = random.choice((f"Basic {base64.b64encode(user.encode()).decode()}", "Basic ?", "Bearer x", "Basic " + "A" * 5000))
    lines = [
        random.choice(("GET /metrics HTTP/1.1", "POST /metrics HTTP/1.1", "GET / HTTP/1.0", "GET /../metrics HTTP/1.1")),
        "Host: x",
        *([f"Authorization: {login}"] * random.choice((0, 1, 1, 2))),
        *(["Transfer-Encoding: chunked", "Content-Length: 5"] if random.random() < 0.2 else []),
    ]
    text = "\r\n".join(lines).encode() + b"\r\n\r\n"
    with Peer(node, "HTTP", tls=True) as peer:
        peer.send(mutated(random, text) if random.random() < 0.6 else text)
        # Half a request may have no answer.
        peer.socket.settimeout(0.5)
        answer = b""
        try:
            answer = peer.socket.recv(64)
            while answer[9:12] == b"200" and (more := peer.socket.recv(65536)):
                answer += more
        except OSError:
            pass
        if answer[9:12] != b"200":
            return
        is_page = user.startswith("mallory:") and b"text/html" in answer
        if not is_page or TOPIC.encode() in answer or b"\nkafka_" in answer:
            raise Violation(f"{text!r} is answered with {answer!r}")


ATTACKS = (
    http_requests,
    mutated_messages,
    mutated_messages,
    mutated_messages_of_another,
    mutated_messages_of_another,
    mutated_frames,
    mutated_frames,
    raw_tokens,
    raw_tokens,
    oversized_frames,
    slow_frames,
    requests_before_login,
    requests_before_login,
    wrong_order,
    pipelined_behind_a_failure,
    replayed_proofs,
    another_identity,
    bad_tokens,
    expired_delegation_tokens,
    changes_at_reauthentication,
    requests_within_reauthentication,
)
