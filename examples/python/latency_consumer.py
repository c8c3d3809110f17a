"""Prints the time from the creation of the records of latency_producer.py to their arrival here.

    pip install kafka-python
    python latency_consumer.py --topic latency --count 1000
"""

import argparse
import time

from kafka import KafkaConsumer, TopicPartition


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=1000, help="records")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds without a record until it gives up")
    options = parser.parse_args()
    consumer = KafkaConsumer(bootstrap_servers=options.bootstrap_server, group_id=None, fetch_max_wait_ms=500)
    partitions = consumer.partitions_for_topic(options.topic)
    if not partitions:
        raise SystemExit(f"There is no topic {options.topic}: create it first")
    consumer.assign([TopicPartition(options.topic, partition) for partition in partitions])
    consumer.seek_to_end()
    # The positions are known, and records from now on are read, when this returns.
    ends = {partition: consumer.position(partition) for partition in consumer.assignment()}
    print(f"ready at the offsets {sorted(ends.values())}", flush=True)
    latencies_ms = read(consumer, options)
    consumer.close()
    if not latencies_ms:
        raise SystemExit(f"no record within {options.timeout:.0f} s")
    latencies_ms.sort()
    at = lambda share: latencies_ms[min(len(latencies_ms) - 1, int(share * len(latencies_ms)))]  # noqa: E731
    print(f"{len(latencies_ms)} records: p50 {at(0.5):.2f} ms, p99 {at(0.99):.2f} ms, max {latencies_ms[-1]:.2f} ms")


def read(consumer, options):
    """The latencies in milliseconds, until all records or none for a while."""
    latencies_ms, last = [], time.monotonic()
    while len(latencies_ms) < options.count and time.monotonic() - last < options.timeout:
        for records in consumer.poll(timeout_ms=1000).values():
            now, last = time.time_ns(), time.monotonic()
            latencies_ms += [(now - int(record.value)) / 1e6 for record in records]
    return latencies_ms


if __name__ == "__main__":
    main()
