"""Kafka Connect with its connectors of files, and MirrorMaker 2, on the broker at $BOOTSTRAP and on brokers of their own."""

from cluster_tests import *  # noqa: F403
from mirror_tests import *  # noqa: F403
from suite import NIGHTLY, main
from worker_tests import *  # noqa: F403

# Those of the short form use connectors of their own, and mostly wait. The others kill what they share.
main(globals(), parallel=1 if NIGHTLY else 3)
