"""The network between nodes and clients: loopback proxies that can be cut between any two parties, also in one direction.

Every listener is advertised as a proxy. The connecting party is found by the process that owns the other end of the
connection, so that nodes need no separate addresses and no special rights.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading

# Any other party.
CLIENTS = "clients"

# Of linux/netlink.h and linux/inet_diag.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
# In an answer, after its header (16 bytes), four bytes of state, an address (48) and four counters (16).
INODE_AT = 16 + 4 + 48 + 16


class Network:
    """Proxies in a separate thread, and the current cuts between parties."""

    def __init__(self):
        self.cuts = set()
        self.delays = {}
        self.pids = {}
        self.pipes = set()
        self.loop = asyncio.new_event_loop()
        self.changed = asyncio.Event()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def listen(self, party, port):
        """Opens a proxy to `port` of a party, and returns the proxy's port."""
        listener = socket.create_server(("127.0.0.1", 0))
        serve = asyncio.start_server(lambda r, w: self._accept(party, port, r, w), sock=listener)
        asyncio.run_coroutine_threadsafe(serve, self.loop).result(10)
        return listener.getsockname()[1]

    def runs_as(self, party, pid):
        """Registers the process of a party."""
        self.pids[pid] = party

    def cut(self, pairs):
        """Blocks traffic from the first to the second of each pair. Connections stay open."""
        self._call(self.cuts.update, set(pairs))

    def heal(self, pairs, reset):
        """Unblocks it; `reset` closes the blocked connections, otherwise they continue."""
        self._call(self._heal, set(pairs), reset)

    def delay(self, pairs, seconds):
        """Delays traffic from the first to the second of each pair; 0 ends the delay."""
        self._call(self.delays.update, dict.fromkeys(pairs, seconds))

    def _call(self, function, *arguments):
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (function(*arguments), done.set()))
        done.wait(10)

    def _heal(self, pairs, reset):
        self.cuts -= pairs
        if reset:
            for pipe in [pipe for pipe in self.pipes if pipe.source_to in pairs]:
                pipe.task.cancel()
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def _passable(self, source_to):
        while source_to in self.cuts:
            await self.changed.wait()

    async def _accept(self, party, port, reader, writer):
        source = self._owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        there, back = (source, party), (party, source)
        ends = [writer]
        try:
            # A connection starts with a packet in each direction.
            await self._passable(there)
            await self._passable(back)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            ends.append(far_writer)
            pipes = [Pipe(self, there, reader, far_writer), Pipe(self, back, far_reader, writer)]
            await asyncio.wait([pipe.task for pipe in pipes], return_when=asyncio.FIRST_COMPLETED)
            for pipe in pipes:
                pipe.task.cancel()
            if not any(pipe.has_ended for pipe in pipes):
                reset(ends)
        except OSError:
            # A port that refuses connections must not look like one that accepts and closes them.
            reset(ends)
        finally:
            for end in ends:
                # What was written before the end still arrives.
                end.close()

    def _owner(self, port, proxy):
        """The party whose process owns the connection from a port to a proxy's."""
        inode = inode_of(port, proxy)
        for pid, party in list(self.pids.items()):
            with contextlib.suppress(OSError):
                for descriptor in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(descriptor.path) == f"socket:[{inode}]":
                            return party
        return CLIENTS


class Pipe:
    """One direction of a connection."""

    def __init__(self, network, source_to, reader, writer):
        self.network = network
        self.source_to = source_to
        # The source has closed the connection in order.
        self.has_ended = False
        self.task = asyncio.ensure_future(self._run(reader, writer))
        network.pipes.add(self)
        self.task.add_done_callback(lambda _: network.pipes.discard(self))

    async def _run(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 18):
                await asyncio.sleep(self.network.delays.get(self.source_to, 0))
                await self.network._passable(self.source_to)
                writer.write(data)
                await writer.drain()
            self.has_ended = True


def reset(ends):
    """Has connections end with a reset, not as if all had been said: some clients take that for a wrong protocol."""
    for end in ends:
        # It may be closed already.
        with contextlib.suppress(OSError):
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()


def inode_of(port, peer):
    """The inode of the socket on loopback with this port and its peer's, or None.

    Asked of the kernel by address (sock_diag(7)): the tables in /proc have every connection of the machine, and reading
    them for each new one would hold up all proxies while another test opens many.
    """
    loopback = socket.inet_aton("127.0.0.1").ljust(16, b"\0")
    address = struct.pack(">HH16s16sIII", port, peer, loopback, loopback, 0, 0xFFFFFFFF, 0xFFFFFFFF)
    request = struct.pack("BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + address
    header = struct.pack("IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as diag:
        diag.send(header + request)
        answer = diag.recv(4096)
    kind = struct.unpack_from("IH", answer)[1]
    return struct.unpack_from("I", answer, INODE_AT)[0] if kind == SOCK_DIAG_BY_FAMILY else None
