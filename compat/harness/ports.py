"""Loopback ports, reserved for servers that start later or restart.

A reserved port is a bound socket that never listens. Linux lets a server bind the same port, because both allow
address reuse, and assigns it to no other process. The ports lie below those of outgoing connections.
"""

import random
import socket

FIRST, LAST = 20_000, 31_999
TRIES = 100

# By port, for the process: a suite's brokers live about as long as the suite.
_held = {}


def free_port():
    """A port that no process uses or reserves; it stays reserved until `release` or the end of the process."""
    for _ in range(TRIES):
        port = random.randint(FIRST, LAST)
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        # Set it only now: otherwise the bind would succeed despite another reservation.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held[port] = held
        return port
    raise OSError(f"none of {TRIES} random ports from {FIRST} to {LAST} is free")


def release(port):
    """Releases a reserved port."""
    _held.pop(port).close()
