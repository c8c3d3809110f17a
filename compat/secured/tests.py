"""Clients and tools on secured listeners, against brokers of the kind $TARGET that the suite starts itself."""

from connection_tests import *  # noqa: F403
from suite import main
from tool_tests import *  # noqa: F403

main(globals(), parallel=3)
