"""Kafka Connect with its connectors of files, and MirrorMaker 2, on the broker at $BOOTSTRAP and on brokers of their own."""

import cluster_tests
import mirror_tests
from suite import main
import worker_tests

main(cluster_tests, mirror_tests, worker_tests, parallel=1)
