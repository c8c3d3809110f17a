"""A member of a group by the consumer protocol, which is killed: member.py GROUP TOPIC. Prints its partitions at each change."""

import sys

from clients import consumer

reader = consumer(sys.argv[1], group_protocol="consumer")
reader.subscribe([sys.argv[2]])
before = None
while True:
    reader.poll(0.1)
    now = sorted(part.partition for part in reader.assignment())
    if now != before:
        print(*now, flush=True)
        before = now
