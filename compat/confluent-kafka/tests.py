"""confluent-kafka (librdkafka) against the broker at $BOOTSTRAP."""

import admin_tests
import consumer_protocol_tests
import consumer_tests
import producer_tests
from suite import main
import transaction_tests

main(admin_tests, consumer_protocol_tests, consumer_tests, producer_tests, transaction_tests)
