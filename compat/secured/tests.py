"""Clients and tools on secured listeners, against brokers of the kind $TARGET that the suite starts itself."""

import connection_tests
from suite import main
import tool_tests

main(connection_tests, tool_tests, parallel=3)
