"""Empty brokers after a death of all, and beside controllers that stand still: nothing acknowledged is lost.

LOSSES says how many rounds each kind of cluster undergoes; a round is one death of all or one stall.
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
# Apache Kafka's controllers of 4.3.1 are not among them. With eligible leader replicas they elect the last leader when no
# replica is eligible any more, which a death of all leads to, whatever its directory holds
# (PartitionChangeBuilder.canElectLastKnownLeader); without them the broker that is fenced last stays in sync, and leads from a
# new directory once that is reported. KIND=apache-controllers shows it.
KINDS = [kind + elr for kind in ("embedded", "own-controller") for elr in ("", WITHOUT)]


@each(*([os.environ["KIND"] + elr for elr in ("", WITHOUT)] if "KIND" in os.environ else KINDS))
def test_emptied_brokers_lose_nothing(kind):
    if not LOSSES:
        raise Skip("in the nightly form")
    began, work = time.monotonic(), pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="losses-"))
    kept = undergo(kind.removesuffix(WITHOUT), not kind.endswith(WITHOUT), work, LOSSES, SEED)
    seconds = time.monotonic() - began
    say(f"{kind}: {LOSSES} rounds of seed {SEED} in {seconds:.0f} s, {kept} records acknowledged and there")
