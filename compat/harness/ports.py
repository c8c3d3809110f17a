"""Loopback ports, held for servers that start later or come back after they were killed.

A held port is a socket that is bound and never listens. Linux lets a server bind the same port meanwhile, since both allow
reuse of the address, and gives it to no other process. The ports lie below those of outgoing connections.
"""

import random
import socket

FIRST, LAST = 20_000, 31_999
TRIES = 100

# Of a process, by port: a suite's brokers live about as long as the suite.
_held = {}


def free_port():
    """A port that no process listens on or holds; it stays held until `release` or the end of the process."""
    for _ in range(TRIES):
        port = random.randint(FIRST, LAST)
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        # Only now: with it, the bind would succeed beside another holder.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held[port] = held
        return port
    raise OSError(f"none of {TRIES} random ports from {FIRST} to {LAST} is free")


def release(port):
    """Gives a held port back."""
    _held.pop(port).close()
