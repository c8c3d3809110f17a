"""Share groups (KIP-932) under faults: leaders, share coordinators and group coordinators are killed, paused and moved, also
between brokers of both makes. No record that was acknowledged as accepted may be delivered and settled again, and none
may be lost.
"""

import random

from audited import Audited, java
from consumer_protocol_tests import FAULTS, SEED, kinds
from faults import say
from suite import nightly_only

TOPIC, STATES, OFFSETS = "ordeal", "__share_group_state", "__consumer_offsets"
PARTITIONS, MEMBERS = 3, 6


class Shared(Audited):
    """A share group of Java consumers. It counts records that are accepted."""

    compared = (TOPIC, STATES, OFFSETS)
    purged = (STATES,)

    def command(self):
        return java("share-groups", "ShareOrdeal", self.cluster.bootstrap, PARTITIONS, MEMBERS, self.cluster.replicas)


@kinds("embedded", "apache-controllers", "mixed")
def test_share_groups_lose_and_repeat_nothing_under_faults(kind):
    if kind != "embedded":
        nightly_only()
    source = random.Random(f"{SEED} {kind} share")
    with Shared(kind, "-share") as shared:
        say(f"{FAULTS} faults of seed {SEED}")
        done = shared.undergo(FAULTS, source)
        shared.judge()
        say(f"{kind}: {done} faults of seed {SEED}")


@kinds("embedded", "apache-controllers", "mixed")
def test_share_groups_go_on_when_leaders_and_coordinators_move(kind):
    nightly_only()
    with Shared(kind, "-share-moves") as shared:
        shared.move_each([TOPIC], [STATES], [OFFSETS])
        shared.judge()
