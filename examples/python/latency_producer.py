"""Sends records with the time of their creation, at a rate, for latency_consumer.py.

    pip install kafka-python
    python latency_consumer.py --topic latency --count 1000 &
    python latency_producer.py --topic latency --count 1000 --rate 100

Both clocks must agree: on one machine they do.
"""

import argparse
import time

from kafka import KafkaProducer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=1000, help="records")
    parser.add_argument("--rate", type=float, default=100.0, help="records per second")
    parser.add_argument("--size", type=int, default=100, help="bytes of a record, at least 20")
    parser.add_argument("--acks", default="1", choices=["0", "1", "all"])
    options = parser.parse_args()
    acks = options.acks if options.acks == "all" else int(options.acks)
    producer = KafkaProducer(bootstrap_servers=options.bootstrap_server, acks=acks, linger_ms=0)
    # The first record waits for metadata: it is not part of the measurement.
    producer.partitions_for(options.topic)
    began = time.monotonic()
    sent = []
    for number in range(options.count):
        # Each record has its time, so that a record that is late does not shift those behind it.
        time.sleep(max(0.0, began + number / options.rate - time.monotonic()))
        sent.append(producer.send(options.topic, str(time.time_ns()).ljust(options.size).encode()))
    producer.flush()
    for one in sent:
        one.get(30)
    print(f"{options.count} records in {time.monotonic() - began:.1f} s")
    producer.close()


if __name__ == "__main__":
    main()
