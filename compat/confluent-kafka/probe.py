"""Writes to a topic for some seconds and reads all of it as a group: `probe.py TOPIC SECONDS`.

compat/secured runs it. It prints `ok`, or the errors that the client reported, and ends within half a minute.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer

import login
from suite import BOOTSTRAP

PATIENCE_S = 15
# Of connections that are opened again; librdkafka reports them besides.
HARMLESS = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


def main(topic, seconds):
    errors = []
    note = lambda error: errors.append(str(error)) if error and error.code() not in HARMLESS else None
    connection = {"bootstrap.servers": BOOTSTRAP, "error_cb": note, "log_level": 0, **login.librdkafka()}
    producer = Producer({**connection, "message.timeout.ms": PATIENCE_S * 1000, "enable.idempotence": True})
    sent, read, end = 0, 0, time.monotonic() + seconds
    while sent == 0 or time.monotonic() < end:
        producer.produce(topic, b"%d" % sent, on_delivery=lambda error, _: note(error))
        sent += 1
        producer.poll(0.02)
    deadline = time.monotonic() + PATIENCE_S
    while producer.flush(0.1) and not errors and time.monotonic() < deadline:
        pass
    consumer = Consumer({**connection, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while read < sent and not errors and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            note(message.error())
            read += not message.error()
    if not errors:
        consumer.commit(asynchronous=False)
    consumer.close()
    print("; ".join(dict.fromkeys(errors)) or ("ok" if read == sent else f"{read} of {sent} records read"))


main(sys.argv[1], float(sys.argv[2]))
