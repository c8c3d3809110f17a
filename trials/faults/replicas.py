"""Compares the bytes of replicas on their disks."""

import hashlib
import struct
import time


def batches(directory, *segments):
    """The batches of a partition's segments, one after the other: (base offset, bytes)."""
    for segment in segments or sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        at = 0
        while at + 12 <= len(data):
            base, length = struct.unpack_from(">qi", data, at)
            # Preallocated blocks are zeros.
            if length <= 0 or at + 12 + length > len(data):
                break
            yield base, data[at : at + 12 + length]
            at += 12 + length


def digest(directory, start):
    """The number of batches from an offset on, the end of the last, and a digest of them all."""
    total, end, sum_of_all = 0, start, hashlib.sha256()
    for base, data in batches(directory):
        if base >= start:
            total, end = total + 1, base + struct.unpack_from(">i", data, 23)[0] + 1
            sum_of_all.update(data)
    return total, end, sum_of_all.hexdigest()


def first(directory):
    """The offset of the first batch."""
    return next((base for base, _ in batches(directory)), 0)


def compare(cluster, seen, topics, purged=(), timeout=60):
    """Waits until all replicas of the topics are identical; returns the number of partitions. The beginning of topics that
    are purged is compared only as far as every replica has it: a new replica begins where the leader does at that time.
    """
    deadline, compared = time.monotonic() + timeout, 0
    for topic in topics:
        for index, partition in seen.topics[topic].partitions.items():
            place = f"{topic}-{index}"
            while True:
                places = {node: cluster.broker(node).data / place for node in partition.replicas}
                start = max(map(first, places.values())) if topic in purged else 0
                found = {node: digest(directory, start) for node, directory in places.items()}
                if len(set(found.values())) == 1:
                    break
                assert time.monotonic() < deadline, f"replicas of {place} differ: {found}"
                time.sleep(0.2)
            compared += 1
    return compared
