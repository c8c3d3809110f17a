// Writes to $TOPIC until its input ends, prints a line whenever something is written, and reads all of it as a group.
// trials/faults runs it and restarts brokers meanwhile: no error that the client does not retry itself may occur.
import kafkajs from 'kafkajs';
import { connection } from './login.js';

const { TOPIC: topic } = process.env;
const kafka = new kafkajs.Kafka({ clientId: 'restarts', ...connection, logLevel: kafkajs.logLevel.NOTHING });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const failures = [];
const read = new Set();

let ended = false;
process.stdin.resume().on('end', () => void (ended = true));

async function member() {
  const settings = { sessionTimeout: 6_000, heartbeatInterval: 500, maxWaitTimeInMs: 300 };
  const consumer = kafka.consumer({ groupId: `${topic}-readers`, ...settings });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    // With `restart` it recovers by itself.
    if (!payload.restart) failures.push(`the consumer has crashed: ${payload.error.stack}`);
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 100,
    eachMessage: async ({ message }) => void read.add(Number(message.value.toString())),
  });
  return consumer;
}

async function hasRead(count, seconds) {
  for (const deadline = Date.now() + 1_000 * seconds; read.size < count && Date.now() < deadline; ) await pause(100);
  return read.size >= count;
}

await member();
const settings = { idempotent: true, maxInFlightRequests: 1, createPartitioner: kafkajs.Partitioners.DefaultPartitioner };
const producer = kafka.producer(settings);
await producer.connect();
let written = 0;
while (!ended && failures.length === 0) {
  const messages = Array.from({ length: 10 }, (_, i) => ({ value: String(written + i) }));
  try {
    await producer.send({ topic, messages, acks: -1 });
    written += messages.length;
    console.log('committed');
  } catch (error) {
    failures.push(`records were not written: ${error.stack}`);
  }
  await pause(40);
}
await producer.disconnect();
// After a restart of brokers, also Apache Kafka's, its consumer may stall for minutes. Another continues from what the
// first has committed: only records that were read may have been committed.
if (!(await hasRead(written, 10))) {
  const second = await member();
  if (!(await hasRead(written, 60))) failures.push(`${read.size} of ${written} were read`);
  await second.disconnect();
}
failures.forEach((failure) => console.log(failure));
process.exit(failures.length > 0 ? 1 : 0);
