"""Kafka Connect with its connectors of files, and MirrorMaker 2, on the broker at $BOOTSTRAP and on brokers of their own."""

from cluster_tests import *  # noqa: F403
from mirror_tests import *  # noqa: F403
from suite import main
from worker_tests import *  # noqa: F403

main(globals(), parallel=1)
