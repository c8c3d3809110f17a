"""confluent-kafka (librdkafka) against the broker at $BOOTSTRAP."""

from admin_tests import *  # noqa: F403
from consumer_protocol_tests import *  # noqa: F403
from consumer_tests import *  # noqa: F403
from producer_tests import *  # noqa: F403
from suite import main
from transaction_tests import *  # noqa: F403

main(globals())
