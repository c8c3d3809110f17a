"""What compat/confluent-kafka/probe.py does, on aiokafka."""

import asyncio
import contextlib
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import login
from suite import BOOTSTRAP


async def run(topic, seconds):
    async with contextlib.AsyncExitStack() as stack:
        connection = {"bootstrap_servers": BOOTSTRAP, **login.aiokafka()}
        producer = AIOKafkaProducer(**connection, acks="all")
        stack.push_async_callback(producer.stop)
        await producer.start()
        sent, end = 0, time.monotonic() + seconds
        while sent == 0 or time.monotonic() < end:
            await producer.send_and_wait(topic, b"%d" % sent)
            sent += 1
            await asyncio.sleep(0.02)
        consumer = AIOKafkaConsumer(topic, **connection, group_id=f"{topic}-group", auto_offset_reset="earliest")
        stack.push_async_callback(consumer.stop)
        await consumer.start()
        for _ in range(sent):
            await consumer.getone()
        await consumer.commit()
    return "ok"


log = login.Log()
try:
    print(asyncio.run(asyncio.wait_for(run(sys.argv[1], float(sys.argv[2])), 30)))
except Exception as failure:  # a client may fail in any way
    print(f"{type(failure).__name__}: {failure}; {log.lines}")
