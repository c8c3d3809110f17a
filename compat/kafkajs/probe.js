// What compat/confluent-kafka/probe.py does, on kafkajs.
import kafkajs from 'kafkajs';
import { connection } from './login.js';

const [topic, seconds] = process.argv.slice(2);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const retry = { retries: 2 };
const kafka = new kafkajs.Kafka({ clientId: 'probe', ...connection, retry, reauthenticationThreshold: 500, logLevel: kafkajs.logLevel.NOTHING });

async function run() {
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await producer.connect();
  let sent = 0;
  for (const end = Date.now() + 1_000 * seconds; sent === 0 || Date.now() < end; await pause(20)) {
    await producer.send({ topic, messages: [{ value: String(sent) }], acks: -1 });
    sent += 1;
  }
  const consumer = kafka.consumer({ groupId: `${topic}-group`, maxWaitTimeInMs: 300 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let read = 0;
  const crash = new Promise((_, reject) => consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error)));
  await consumer.run({ eachMessage: async () => void (read += 1) });
  for (const deadline = Date.now() + 15_000; read < sent && Date.now() < deadline; ) await Promise.race([pause(50), crash]);
  await consumer.disconnect();
  await producer.disconnect();
  return read === sent ? 'ok' : `${read} of ${sent} records read`;
}

run()
  .catch((error) => `${error.name}: ${error.message} ${error.type ?? ''}`)
  .then((outcome) => {
    console.log(outcome);
    process.exit(0);
  });
