"""A hostile peer's side of a connection: sends any bytes, reads what comes back, and never waits for long.

Everything that it reads is searched for the names that a stranger must not learn.
"""

import base64
import hashlib
import hmac
import socket
import ssl
import struct

from requests import unsigned
from wire import string

SASL_HANDSHAKE, API_VERSIONS, METADATA, SASL_AUTHENTICATE = 17, 18, 3, 36
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Longer than the broker takes for anything that it answers, also on a busy machine.
PATIENCE = 20.0


class Closed(Exception):
    """The broker closed the connection."""


class Violation(Exception):
    """The broker did what it must not do."""


def mutated(random, data):
    """The same bytes with one to three errors of the kinds that break parsers."""
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(data) + 1)
        kind = random.randrange(8)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at : at + random.choice((1, 2, 4, 16))]
        elif kind == 2:
            data[at:at] = random.randbytes(random.choice((1, 2, 4, 16, 300)))
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        elif kind == 4:
            edge = random.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4), b"\xff\xff", b"\x7f\xff", b"\0"))
            data[at : at + len(edge)] = edge
        elif kind == 5:
            data[at:at] = data[at : at + random.choice((1, 8, 64))]
        elif kind == 6:
            data += random.randbytes(random.choice((1, 4, 1000)))
        else:
            data[at : at + 1] = random.choice((b",", b"=", b"\0", b"\x01", b"n,,", "ß\u202e".encode(), b"%s", b"\xc0\xaf"))
    return bytes(data)


class Peer:
    """A connection to a listener of the node."""

    def __init__(self, node, listener, tls=False, certificate=None):
        self.node = node
        self.socket = socket.create_connection(("127.0.0.1", node.ports[listener]), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0
        if tls:
            context = ssl.create_default_context(cafile=str(node.directory / "ca.crt"))
            if certificate:
                context.load_cert_chain(node.directory / f"{certificate}.pem")
            try:
                self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
            except (OSError, ssl.SSLError) as error:
                self.socket.close()
                raise Closed(str(error)) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise Violation("the broker reads no more, and leaves the connection open") from None
        except OSError as error:
            raise Closed(str(error)) from None

    def send_frame(self, content):
        self.send(struct.pack(">i", len(content)) + content)

    def request(self, key, version, body, flexible=False, client="peer"):
        self.correlation += 1
        head = struct.pack(">hhi", key, version, self.correlation) + string(client) + (b"\0" if flexible else b"")
        self.send_frame(head + body)

    def exactly(self, length):
        parts = bytearray()
        while len(parts) < length:
            try:
                part = self.socket.recv(min(length - len(parts), 1 << 16))
            except TimeoutError:
                raise Violation(f"neither an answer nor the end within {PATIENCE:.0f} s") from None
            except OSError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed
            parts += part
        return bytes(parts)

    def frame(self):
        """The next frame of the broker."""
        length = struct.unpack(">i", self.exactly(4))[0]
        if not 0 <= length <= 1 << 27:
            raise Violation(f"a frame of {length} bytes")
        data = self.exactly(length)
        if self.node.hidden.encode() in data:
            raise Violation("the answer has a name that the peer must not learn")
        return data

    def end(self):
        """Ends this side of the connection, and reads what comes until the broker closes it."""
        try:
            # The end of the stream below TLS.
            socket.socket.shutdown(self.socket, socket.SHUT_WR)
        except OSError:
            # It is closed already.
            return
        try:
            while True:
                self.exactly(1)
        except Closed:
            return

    def is_served(self):
        """Whether the broker serves a request that needs a login: Metadata of all topics."""
        try:
            self.request(METADATA, 1, struct.pack(">i", -1))
            while True:
                if self.frame()[:4] == struct.pack(">i", self.correlation):
                    return True
        except Closed:
            return False

    # The messages of SASL.

    def handshake(self, mechanism, version=1):
        self.request(SASL_HANDSHAKE, version, string(mechanism))
        return struct.unpack_from(">h", self.frame(), 4)[0]

    def authenticate(self, message, version=1):
        """The error code and the bytes of the answer. Version 2 is flexible."""
        if version < 2:
            self.request(SASL_AUTHENTICATE, version, struct.pack(">i", len(message)) + message)
        else:
            self.request(SASL_AUTHENTICATE, version, unsigned(len(message) + 1) + message + b"\0", flexible=True)
        answer = self.frame()
        if version == 2:
            return struct.unpack_from(">h", answer, 5)[0], answer[7:]
        code, length = struct.unpack_from(">hh", answer, 4)
        at = 8 + max(length, 0)
        size = struct.unpack_from(">i", answer, at)[0]
        return code, answer[at + 4 : at + 4 + max(size, 0)]

    def log_in(self, user, password, mechanism="SCRAM-SHA-256", tamper=lambda step, message: message, extension=""):
        """Logs in; `tamper` may change each message. Returns the last error code and the messages that were sent."""
        self.handshake(mechanism)
        if mechanism == "PLAIN":
            sent = [tamper(0, f"\0{user}\0{password}".encode())]
            return self.authenticate(sent[0])[0], sent
        scram = Scram(mechanism, user, password, extension=extension)
        sent = [tamper(0, scram.first())]
        code, challenge = self.authenticate(sent[0])
        if code == 0:
            sent.append(tamper(1, scram.final(challenge)))
            code, _ = self.authenticate(sent[1])
        return code, sent


class Scram:
    """The client's side of SCRAM."""

    def __init__(self, mechanism, user, password, nonce="fyko-d2lbbFgONRv9qkxdawL", header="n,,", extension="", salted=None):
        self.hash, self.password, self.header = HASHES[mechanism], password, header
        # Derived keys by salt, for those who log in often.
        self.salted = {} if salted is None else salted
        self.bare = f"n={user},r={nonce}{extension}"

    def first(self):
        return (self.header + self.bare).encode()

    def final(self, challenge):
        challenge = challenge.decode(errors="replace")
        parts = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
        try:
            salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
        except (KeyError, ValueError):
            raise Violation(f"a challenge that no client understands: {challenge!r}") from None
        if salt not in self.salted:
            self.salted[salt] = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, iterations)
        salted = self.salted[salt]
        key = hmac.new(salted, b"Client Key", self.hash).digest()
        stored = hashlib.new(self.hash, key).digest()
        bare = f"c={base64.b64encode(self.header.encode()).decode()},r={parts.get('r', '')}"
        signature = hmac.new(stored, f"{self.bare},{challenge},{bare}".encode(), self.hash).digest()
        proof = bytes(one ^ other for one, other in zip(key, signature))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()
