"""What compat/confluent-kafka/probe.py does, on kafka-python."""

import sys
import time

from kafka import KafkaConsumer, KafkaProducer

import login
from suite import BOOTSTRAP

PATIENCE_S = 15


def run(topic, seconds):
    connection = {"bootstrap_servers": BOOTSTRAP, **login.kafka_python()}
    producer = KafkaProducer(**connection, acks="all", max_block_ms=PATIENCE_S * 1000)
    sent, read, end = [], 0, time.monotonic() + seconds
    while not sent or time.monotonic() < end:
        sent.append(producer.send(topic, b"%d" % len(sent)))
        time.sleep(0.02)
    for future in sent:
        future.get(PATIENCE_S)
    consumer = KafkaConsumer(topic, **connection, group_id=f"{topic}-group", auto_offset_reset="earliest")
    deadline = time.monotonic() + PATIENCE_S
    while read < len(sent) and time.monotonic() < deadline:
        read += sum(len(records) for records in consumer.poll(200).values())
    consumer.commit()
    # A quiet connection is used again after the end of its session.
    if seconds:
        time.sleep(seconds)
        consumer.commit()
    consumer.close()
    producer.close()
    return "ok" if read == len(sent) else f"{read} of {len(sent)} records read"


log = login.Log()
try:
    print(run(sys.argv[1], float(sys.argv[2])))
except Exception as failure:  # a client may fail in any way
    print(f"{type(failure).__name__}: {failure}; {log.lines}")
