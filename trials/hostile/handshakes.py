"""Attacks on the handshake of TLS: hellos that are mutated, cut into pieces, endless, too old, on the wrong port; flights with
errors behind a good hello; alerts, early data, renegotiation, updates of keys; and connections that are left half open.

Each is a function of the node and a seeded source. It returns what it leaves open, or raises a Violation.
"""

import ssl
import struct
import subprocess
import warnings

from peer import PATIENCE, Closed, Peer, Violation, mutated

HANDSHAKE, ALERT, CHANGE_CIPHER, DATA = 22, 21, 20, 23
TLS_PORTS = ("TLS", "TLS", "MUTUAL", "BOTH", "HTTP")
PLAIN_PORTS = ("PLAIN", "LOGIN", "ADMIN", "CONTROLLER")
# More than a handshake may have (128 KiB), by far: what a peer may push before the broker has enough of it.
ENDLESS = 8 << 20


def record(kind, content, version=b"\3\3"):
    return bytes([kind]) + version + struct.pack(">H", len(content)) + content


BOTH_VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Client:
    """The client's side of a handshake, in memory."""

    def __init__(self, node, random, versions=BOTH_VERSIONS, certificate=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            # Versions that are too old are what is tried here.
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version, context.maximum_version = versions
        if certificate:
            context.load_cert_chain(node.directory / f"{certificate}.crt", node.directory / f"{certificate}.key")
        if random.random() < 0.3:
            context.set_alpn_protocols(random.choice((["http/1.1"], ["h2", "kafka"], ["x" * 255] * 20)))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = random.choice((None, "localhost", "x" * 60 + ".example", "127.0.0.1"))
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def advance(self):
        """Whether the handshake is done, and what is to send."""
        try:
            self.tls.do_handshake()
            return True, self.outgoing.read()
        except ssl.SSLWantReadError:
            return False, self.outgoing.read()


def hello(node, random, versions=BOTH_VERSIONS):
    """The record of a client's hello."""
    return Client(node, random, versions).advance()[1]


def shake(node, random, listener, tamper=lambda _, data: data, versions=BOTH_VERSIONS, certificate=None):
    """Makes a handshake whose flights pass through `tamper(number, bytes)`. Returns the connection, the client, and whether
    the client has ended it well."""
    peer, client, flight = Peer(node, listener), Client(node, random, versions, certificate), 0
    peer.socket.settimeout(1)
    try:
        while True:
            is_done, data = client.advance()
            if data:
                peer.send(tamper(flight, data))
                flight += 1
            if is_done:
                return peer, client, True
            received = peer.socket.recv(1 << 16)
            if not received:
                return peer, client, False
            client.incoming.write(received)
    except (Closed, OSError):
        # Errors of TLS are such, too; and a peer that waits for more than was sent.
        return peer, client, False
    finally:
        peer.socket.settimeout(PATIENCE)


def close_after(peer, data):
    """Sends, ends this side, and reads to the end."""
    with peer:
        peer.send(data)
        peer.end()


def mutated_hellos(node, random):
    close_after(Peer(node, random.choice(TLS_PORTS)), mutated(random, hello(node, random)))


def mutated_flights(node, random):
    """A good hello, and errors in what follows: certificates and keys of TLS 1.2 in plain sight, Finished, sealed records."""
    version = random.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
    at = random.randrange(1, 3)
    tamper = lambda flight, data: mutated(random, data) if flight == at else data
    certificate = random.choice(("stranger", "foreign", None))
    peer, _, _ = shake(node, random, random.choice(TLS_PORTS), tamper, versions=(version, version), certificate=certificate)
    peer.socket.close()


def foreign_certificates(node, random):
    """A self-signed certificate with the administrator's name, or no certificate: MUTUAL serves neither."""
    version = random.choice(BOTH_VERSIONS)
    certificate = random.choice(("foreign", None))
    peer, client, is_done = shake(node, random, "MUTUAL", versions=(version, version), certificate=certificate)
    with peer:
        if not is_done:
            return
        # In TLS 1.3 the client is done before the server has looked at its certificate.
        client.tls.write(struct.pack(">ihhih", 14, 18, 0, 1, 4) + b"peer")
        try:
            peer.send(client.outgoing.read())
            while True:
                client.incoming.write(peer.socket.recv(1 << 16) or _end(peer))
                try:
                    if client.tls.read(1):
                        raise Violation("a client without a trusted certificate is served")
                except ssl.SSLWantReadError:
                    pass
        except (Closed, OSError):
            return


def _end(peer):
    raise Closed


def fragments(node, random):
    """A hello in many small records, or in single bytes."""
    whole = hello(node, random)
    content, size = whole[5:], random.choice((1, 2, 7, 100))
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    if random.random() < 0.3:
        pieces.insert(random.randrange(len(pieces)), b"")
    data = b"".join(record(HANDSHAKE, piece, b"\3\1") for piece in pieces)
    with Peer(node, random.choice(TLS_PORTS)) as peer:
        if random.random() < 0.3:
            for at in range(min(len(data), 300)):
                peer.send(data[at : at + 1])
        else:
            peer.send(data)
        peer.end()


def endless_handshakes(node, random):
    """A message of 16 MiB, hellos without end, empty records without end: the broker ends it, and soon."""
    kind = random.randrange(4)
    if kind == 0:
        begin, more = record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(16_000)), record(HANDSHAKE, bytes(16_384))
    elif kind == 1:
        begin, more = b"", hello(node, random) * 20
    elif kind == 2:
        begin, more = b"", record(HANDSHAKE, b"") * 1000
    else:
        begin, more = hello(node, random), record(CHANGE_CIPHER, b"\1") * 1000
    with Peer(node, random.choice(TLS_PORTS)) as peer:
        sent = 0
        try:
            peer.send(begin)
            while sent < ENDLESS:
                peer.send(more)
                sent += len(more)
        except Closed:
            return
        raise Violation(f"the broker takes a handshake of {sent} bytes")


def wrong_records(node, random):
    """Records of every kind and length in place of a hello, or behind it."""
    with Peer(node, random.choice(TLS_PORTS)) as peer:
        begin = hello(node, random) if random.random() < 0.6 else b""
        kind = random.choice((HANDSHAKE, ALERT, CHANGE_CIPHER, DATA, 24, 0, 255, 0x80))
        content = random.randbytes(random.choice((0, 1, 2, 100, 16_384)))
        if kind == ALERT:
            content = bytes([random.choice((1, 2, 77)), random.choice((0, 10, 40, 90, 100, 255))]) * random.choice((1, 1, 50))
        data = record(kind, content, random.choice((b"\3\3", b"\3\1", b"\3\0", b"\2\0", b"\xff\xff")))
        if random.random() < 0.2:
            data = bytes([kind]) + b"\3\3" + struct.pack(">H", random.choice((16_641, 65_535, 20_000))) + content
        close_after(peer, begin + data * random.choice((1, 1, 3)))


def wrong_ports(node, random):
    """Plain text on ports of TLS, and TLS on plain ports."""
    if random.random() < 0.5:
        text = random.choice((
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            struct.pack(">ihhih", 14, 18, 0, 1, 4) + b"peer",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            random.randbytes(random.randrange(1, 400)),
        ))
        close_after(Peer(node, random.choice(TLS_PORTS)), text)
    else:
        close_after(Peer(node, random.choice(PLAIN_PORTS)), hello(node, random))


def downgrades(node, random):
    """Hellos that end at TLS 1.1, or claim older versions: no handshake ends well."""
    listener = random.choice(TLS_PORTS)
    if random.random() < 0.5:
        versions = (ssl.TLSVersion.TLSv1, random.choice((ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)))
        peer, _, is_done = shake(node, random, listener, versions=versions)
        peer.socket.close()
        if is_done:
            raise Violation(f"a handshake below TLS 1.2 ended well on {listener}")
        return
    # The same hello with another version in its place, and without the extension that says more.
    old = random.choice((b"\3\0", b"\3\1", b"\3\2", b"\0\2"))
    two = ssl.TLSVersion.TLSv1_2
    data = bytearray(hello(node, random, versions=(two, two)))
    data[1:3], data[9:11] = old, old
    with Peer(node, listener) as peer:
        peer.send(bytes(data))
        answer = b""
        try:
            while True:
                answer += peer.exactly(1)
        except Closed:
            pass
        if answer[:1] == bytes([HANDSHAKE]) and answer[9:11] <= b"\3\2":
            raise Violation(f"a hello of {old.hex()} is answered with {answer[9:11].hex()}")


def half_open(node, random):
    """A hello, or a part of it, and then nothing. Stays open."""
    peer = Peer(node, random.choice(TLS_PORTS))
    whole = hello(node, random)
    peer.send(whole[: random.choice((0, 1, 5, len(whole) // 2, len(whole)))])
    return peer


def good_handshake_then_noise(node, random):
    """An established connection, and then records that are not sealed, an end in the middle, or a flood of empty ones."""
    version = random.choice(BOTH_VERSIONS)
    listener = random.choice(("TLS", "MUTUAL"))
    peer, _, is_done = shake(node, random, listener, versions=(version, version), certificate="stranger")
    with peer:
        if not is_done:
            raise Violation("a good handshake does not end well")
        noise = record(random.choice((DATA, HANDSHAKE, ALERT, CHANGE_CIPHER)), random.randbytes(random.choice((1, 40, 16_384))))
        try:
            peer.send(random.choice((noise, hello(node, random), noise[: len(noise) // 2], record(DATA, b"") * 1000)))
        except Closed:
            pass


def by_openssl(node, random):
    """Renegotiation, updates of keys without end, and early data, which Python's module has no names for."""
    kind = random.choice(("renegotiate", "update keys", "early data"))
    where = ["-connect", f"127.0.0.1:{node.ports['TLS']}", "-CAfile", "ca.crt", "-quiet" if kind == "early data" else "-no_ign_eof"]
    words = {"renegotiate": ["-tls1_2"], "update keys": ["-tls1_3"], "early data": ["-tls1_3"]}[kind]
    typed = {"renegotiate": b"R\n" * random.choice((1, 30)), "update keys": random.choice((b"k\n", b"K\n")) * 200, "early data": b""}[kind]
    if kind == "early data":
        ticket, data = node.directory / "ticket", node.directory / "early"
        data.write_bytes(struct.pack(">ihhih", 14, 3, 0, 1, 4) + b"peer")
        words += ["-sess_in", str(ticket), "-early_data", str(data)] if ticket.exists() else ["-sess_out", str(ticket)]
    run = subprocess.Popen(
        ["openssl", "s_client", *where, *words],
        cwd=node.directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    try:
        output, _ = run.communicate(typed, timeout=3)
    except subprocess.TimeoutExpired:
        run.kill()
        output, _ = run.communicate()
    if b"Early data was accepted" in output:
        raise Violation("early data, which can be replayed, is accepted")
    if kind == "renegotiate" and b"RENEGOTIATING" in output and b"verify return" in output.partition(b"RENEGOTIATING")[2]:
        raise Violation("a renegotiation ended well")


ATTACKS = (
    mutated_hellos,
    mutated_hellos,
    mutated_hellos,
    mutated_flights,
    mutated_flights,
    foreign_certificates,
    fragments,
    endless_handshakes,
    wrong_records,
    wrong_records,
    wrong_ports,
    downgrades,
    half_open,
    good_handshake_then_noise,
)
# Each starts a process: less often.
SLOW_ATTACKS = (by_openssl,)
