"""Brokers that come back with damaged or older files, or after a kill or a pause: no acknowledged record is lost, and none
that was aborted is shown, whichever replica leads.

DAMAGES is the number of rounds per kind of cluster, SEED their seed; a failure names the seed of its cluster.
"""

import os
import pathlib
import random
import tempfile
import time

from damages import undergo
from faults import say
from suite import NIGHTLY, Skip, each

DAMAGES = int(os.environ.get("DAMAGES", "40" if NIGHTLY else "0"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000)))


@each(*([os.environ["KIND"]] if "KIND" in os.environ else ["embedded", "own-controller"]))
def test_damaged_and_older_files_lose_nothing(kind):
    if not DAMAGES:
        raise Skip("in the nightly form")
    began, work = time.monotonic(), pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="damages-"))
    kept = undergo(kind, work, DAMAGES, SEED)
    seconds = time.monotonic() - began
    say(f"{kind}: {DAMAGES} rounds of seed {SEED} in {seconds:.0f} s, {kept} acknowledged records read on every replica")
