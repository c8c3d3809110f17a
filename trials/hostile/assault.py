"""Runs attacks on a node from a seed, several at a time, and watches the node from outside.

Case N of seed S is always the same attack with the same choices: SEED and CASE repeat it. After a batch of cases, when all their
connections are closed:

- the process runs and answers, and its log has no panic,
- a calm client on another connection was answered in time throughout,
- no file of the data has changed but the calm client's own,
- memory is within its bound, and the descriptors are returned.
"""

import base64
import os
import pathlib
import random
import struct
import sys
import tempfile
import threading
import time
import traceback

from node import CALM, MEMORY_MAX_MIB, PASSWORDS, Node
from peer import API_VERSIONS, Closed, Peer, Violation
from wire import PRODUCE, batch, produce

THREADS = 4
BATCH = 200
# The longest that a calm client may wait, on a machine that the attacks keep busy.
CALM_MAX = 4.0
# The console keeps a program's login, with its connection, for a minute and a quarter.
RETURNED_WITHIN = 100.0


class Calm(threading.Thread):
    """A client that produces small batches and notes the longest wait."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.longest, self.count, self.failed, self.stopping = node, 0.0, 0, None, False
        self.peer = Peer(node, "ADMIN")
        code, _ = self.peer.log_in("admin", PASSWORDS["admin"], "PLAIN")
        assert code == 0, f"the calm client cannot log in: {code}"

    def run(self):
        try:
            while not self.stopping:
                began = time.monotonic()
                self.peer.request(PRODUCE, 7, produce(CALM, batch([b"calm"])))
                answer = self.peer.frame()
                code = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(CALM) + 4 + 4)[0]
                assert code == 0, f"the calm client's record is refused: {code}"
                self.longest, self.count = max(self.longest, time.monotonic() - began), self.count + 1
                time.sleep(0.01)
        except Exception as failure:  # whatever ends it is a finding
            self.failed = failure


class Assault:
    """Attacks on one node."""

    def __init__(self, name, attacks, seed, directory):
        self.name, self.attacks, self.seed = name, attacks, seed
        self.node = Node(directory, random.Random(f"{seed}/node"))
        self.next, self.until, self.left_open, self.found = 0, 0, [], []
        self.lock = threading.Lock()

    def run(self, cases=None, seconds=None, only=None):
        """Runs so many cases, or for so long, or only one. Raises with what was found."""
        self.node.prepare()
        self.node.expired_tokens = expired_tokens(self.node)
        self.node.controllers_apis = served(self.node, "CONTROLLER")
        try:
            self.calm = Calm(self.node)
            self.calm.start()
            before, descriptors = self.node.files(), self.node.descriptors()
            ends_at = time.monotonic() + (seconds or 1e9)
            self.next = only or 0
            last = only + 1 if only is not None else cases or 1 << 62
            while self.next < last and time.monotonic() < ends_at and not self.found:
                self.until = min(self.next + BATCH, last)
                workers = [threading.Thread(target=self._work) for _ in range(THREADS)]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                self._judge(before, descriptors)
            self.calm.stopping = True
            if self.found:
                raise AssertionError("; ".join(self.found))
            return self.summary()
        finally:
            self.node.stop()

    def summary(self):
        return (
            f"{self.next} cases of {self.name} from seed {self.seed}, {self.calm.count} calm requests, the longest "
            f"{self.calm.longest * 1000:.0f} ms, {self.node.memory_mib() if self.node.process.poll() is None else 0:.0f} MiB"
        )

    def _work(self):
        while not self.found:
            with self.lock:
                case = self.next
                if case >= self.until:
                    return
                self.next += 1
            self._case(case)

    def _case(self, case):
        chance = random.Random(f"{self.seed}/{self.name}/{case}")
        attack = chance.choice(self.attacks)
        try:
            left_open = attack(self.node, chance)
            if left_open is not None:
                with self.lock:
                    self.left_open.append(left_open)
        except Closed:
            pass
        except Exception as failure:  # a violation, or an attack that is wrong itself
            if not isinstance(failure, Violation):
                traceback.print_exc()
            self._find(f"case {case}, {attack.__name__}: {type(failure).__name__}: {failure}")

    def _find(self, what):
        self.found.append(f"SEED={self.seed} {self.name}: {what}")

    def _judge(self, files, descriptors):
        """Looks at the node after a batch of cases, with every connection closed."""
        for peer in self.left_open:
            peer.socket.close()
        self.left_open.clear()
        node, batch = self.node, f"a case before {self.next}"
        log = node.log_path.read_text(errors="replace")
        for sign in ("panicked", "Failed to encode an answer"):
            if sign in log:
                at = log.index(sign)
                self._find(f"{batch}: {log[max(at - 200, 0) : at + 400]}")
        if not node.is_alive():
            return self._find(f"{batch}: the broker does not answer; its process ended with {node.process.poll()}")
        if self.calm.failed or self.calm.longest > CALM_MAX:
            self._find(f"{batch}: the calm client waited {self.calm.longest:.1f} s, {self.calm.failed!r}")
        if node.memory_mib() > MEMORY_MAX_MIB:
            self._find(f"{batch}: {node.memory_mib():.0f} MiB of memory, at most {MEMORY_MAX_MIB}")
        now = node.files()
        changed = sorted(name for name in files.keys() | now.keys() if files.get(name) != now.get(name))
        if changed:
            self._find(f"{batch}: changed by peers without rights: {', '.join(changed)}")
        ends_at = time.monotonic() + RETURNED_WITHIN
        while len(node.descriptors()) > len(descriptors):
            if time.monotonic() > ends_at:
                now = node.descriptors()
                fresh = [named(target) for target in sorted(set(now.values()) - set(descriptors.values()))]
                return self._find(f"{batch}: {len(now)} descriptors are open, {len(descriptors)} before; new: {fresh}")
            time.sleep(0.05)


def expired_tokens(node):
    """Delegation tokens of the administrator that have just expired: their ids and secrets."""
    found = []
    with Peer(node, "ADMIN") as peer:
        peer.log_in("admin", PASSWORDS["admin"], "PLAIN")
        for _ in range(2):
            peer.request(38, 1, struct.pack(">iq", 0, 86_400_000))
            answer = peer.frame()
            assert answer[4:6] == b"\0\0", f"no delegation token: {answer.hex()}"
            at = 6
            for _ in range(2):
                at += 2 + struct.unpack_from(">h", answer, at)[0]
            at += 24
            size = struct.unpack_from(">h", answer, at)[0]
            token = answer[at + 2 : at + 2 + size].decode()
            at += 2 + size
            size = struct.unpack_from(">i", answer, at)[0]
            secret = answer[at + 4 : at + 4 + size]
            # ExpireDelegationToken, at once.
            peer.request(40, 1, struct.pack(">i", len(secret)) + secret + struct.pack(">q", -1))
            assert peer.frame()[4:6] == b"\0\0", "the token does not expire"
            found.append((token, base64.b64encode(secret).decode()))
    return found


def served(node, listener):
    """The keys of the APIs that a listener serves, from ApiVersions at version 0."""
    with Peer(node, listener) as peer:
        peer.request(API_VERSIONS, 0, b"")
        answer = peer.frame()
    code, count = struct.unpack_from(">hi", answer, 4)
    assert code == 0, f"no versions of APIs: {answer.hex()}"
    return [struct.unpack_from(">h", answer, 10 + 6 * at)[0] for at in range(count)]


def place(name):
    """A scratch directory for a node."""
    work = os.environ.get("WORK") or tempfile.mkdtemp(prefix="hostile-")
    return pathlib.Path(work) / name


def chosen_seed():
    return int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))


def announce(text):
    print(text, file=sys.stderr, flush=True)


def named(target):
    """What a descriptor refers to; a socket of TCP by its addresses and state, as /proc/net/tcp writes them."""
    inode = target.removeprefix("socket:[").removesuffix("]")
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] == inode:
            local, peer = (int(address.split(":")[1], 16) for address in fields[1:3])
            return f"TCP port {local}, peer {peer}, state {fields[3]}"
    return target
