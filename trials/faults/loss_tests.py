"""Brokers that return empty after all were killed, or while controllers are paused: no acknowledged record is lost.

LOSSES is the number of rounds per kind of cluster; a round kills all brokers once, or pauses the controllers once.
"""

import os
import pathlib
import random
import tempfile
import time

from faults import say
from losses import undergo
from suite import NIGHTLY, Skip, each

LOSSES = int(os.environ.get("LOSSES", "10" if NIGHTLY else "0"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))
WITHOUT = "-without-elr"
# Apache Kafka's controllers of 4.3.1 are excluded. With eligible leader replicas they elect the last leader if no
# replica is eligible any more, as after killing all brokers, whatever its directory contains
# (PartitionChangeBuilder.canElectLastKnownLeader); without them the broker that was fenced last stays in sync, and leads from a
# new directory once that is reported. KIND=apache-controllers shows it.
KINDS = [kind + elr for kind in ("embedded", "own-controller") for elr in ("", WITHOUT)]


@each(*([os.environ["KIND"] + elr for elr in ("", WITHOUT)] if "KIND" in os.environ else KINDS))
def test_emptied_brokers_lose_nothing(kind):
    if not LOSSES:
        raise Skip("in the nightly form")
    began, work = time.monotonic(), pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="losses-"))
    kept = undergo(kind.removesuffix(WITHOUT), not kind.endswith(WITHOUT), work, LOSSES, SEED)
    seconds = time.monotonic() - began
    say(f"{kind}: {LOSSES} rounds of seed {SEED} in {seconds:.0f} s, {kept} acknowledged records present")
