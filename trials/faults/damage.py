"""Damage to the files of a stopped broker, from a seed: segments, indexes, snapshots and checkpoints that are cut, flipped,
zeroed, emptied or gone, and older copies of partitions and of whole directories.

Only one replica of a partition is damaged, and only after all were in sync: whatever is done to it, another has everything.
"""

import shutil

# A page, as a disk loses it.
PAGE = 4096
# What is in the directory of a partition.
OF_PARTITIONS = ("*.log", "*.log", "*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint")
# What is in a data directory.
OF_DIRECTORIES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
WAYS = ("cut", "flip", "zero", "empty", "remove")


class Damage:
    """Damage to one broker's files, chosen by a source of random numbers."""

    def __init__(self, source, topics):
        self.source, self.topics = source, topics

    def files(self, node):
        """Damages some files of a broker that is down; returns what was done."""
        done = []
        for _ in range(self.source.choice((1, 1, 2, 3))):
            file = self.choose(node)
            if file:
                way = self.source.choice(WAYS)
                done.append(f"{way} {getattr(self, way)(file)}{file.relative_to(node.data)}")
        return f"{node.name}: {', '.join(done) or 'nothing to damage'}"

    def choose(self, node):
        if self.source.random() < 0.15:
            found = [node.data / name for name in OF_DIRECTORIES]
        else:
            place = self.source.choice(self.partitions(node))
            found = sorted(place.glob(self.source.choice(OF_PARTITIONS)))
        found = [file for file in found if file.exists()]
        return self.source.choice(found) if found else None

    def partitions(self, node):
        places = [place for topic in self.topics for place in sorted(node.data.glob(f"{topic}-[0-9]*"))]
        # Not what was put aside, or waits to be deleted.
        return [place for place in places if "." not in place.name]

    def cut(self, file):
        size = file.stat().st_size
        left = self.source.choice((size // 2, max(0, size - self.source.randrange(1, 200))))
        with open(file, "r+b") as opened:
            opened.truncate(left)
        return f"to {left} of {size} bytes "

    def flip(self, file):
        size = file.stat().st_size
        if not size:
            return "nothing of "
        at = self.source.randrange(size)
        with open(file, "r+b") as opened:
            opened.seek(at)
            byte = opened.read(1)[0]
            opened.seek(at)
            opened.write(bytes([byte ^ (1 << self.source.randrange(8))]))
        return f"a bit at {at} of {size} bytes of "

    def zero(self, file):
        size = file.stat().st_size
        at = self.source.randrange(size // PAGE + 1) * PAGE
        count = min(PAGE * self.source.choice((1, 1, 16)), size - at)
        with open(file, "r+b") as opened:
            opened.seek(at)
            opened.write(bytes(count))
        return f"{count} bytes at {at} of "

    def empty(self, file):
        with open(file, "r+b") as opened:
            opened.truncate(0)
        return ""

    def remove(self, file):
        file.unlink()
        return ""


def keep_copy(node, to):
    """Copies the data of a broker that is down."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(node.data, to)


def restore_all(node, copy):
    """Puts an older copy of a whole data directory in place."""
    shutil.rmtree(node.data)
    shutil.copytree(copy, node.data)
    return f"{node.name}: an older copy of everything"


def restore_partitions(node, copy, places):
    """Puts older copies of some partitions in place, below the checkpoints of today."""
    for place in places:
        shutil.rmtree(node.data / place)
        shutil.copytree(copy / place, node.data / place)
    return f"{node.name}: older copies of {', '.join(places)}"
