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


def compare(cluster, seen, topics, timeout=60):
    """Waits until all replicas of the topics are identical; returns the number of partitions."""
    deadline, compared = time.monotonic() + timeout, 0
    for topic in topics:
        for index, partition in seen.topics[topic].partitions.items():
            place = f"{topic}-{index}"
            while True:
                found = {node: digest(cluster.broker(node).data / place, 0) for node in partition.replicas}
                if len(set(found.values())) == 1:
                    break
                assert time.monotonic() < deadline, f"replicas of {place} differ: {found}"
                time.sleep(0.2)
            compared += 1
    return compared
