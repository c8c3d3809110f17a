// kafkajs against the broker at $BOOTSTRAP.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, describe, test } from 'node:test';
import kafkajs from 'kafkajs';
import SnappyCodec from 'kafkajs-snappy';
import { connection } from './login.js';

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, PartitionAssigners, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;

const kafka = new Kafka({ clientId: 'compat', ...connection, logLevel: logLevel.NOTHING });
const admin = kafka.admin();
await admin.connect();
const members = [];
after(async () => {
  // A test that failed leaves its members running; they, or a broker that does not answer, must not block the suite.
  setTimeout(() => process.exit(1), 10_000).unref();
  await Promise.allSettled(members.map((consumer) => consumer.disconnect()));
  await admin.disconnect();
});

const unique = (stem) => `${stem}-${randomBytes(4).toString('hex')}`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(what, holds) {
  for (const deadline = Date.now() + 30_000; !(await holds()); await pause(50)) {
    assert.ok(Date.now() < deadline, `not within 30 s: ${what}`);
  }
}

async function newTopic(stem, numPartitions = 1, configEntries = []) {
  const topic = unique(stem);
  await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true });
  return topic;
}

async function produce(topic, messages, options = {}, settings = {}) {
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner, ...settings });
  await producer.connect();
  try {
    return await producer.send({ topic, messages, ...options });
  } finally {
    await producer.disconnect();
  }
}

// Starts a member of a group that collects its records. A member of kafkajs notices a rebalance, or a request to
// disconnect, only between two fetches: the maximum wait of a fetch must be well below the rebalance timeout.
async function member(groupId, topic, settings = {}) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6_000, heartbeatInterval: 300, maxWaitTimeInMs: 300, ...settings });
  members.push(consumer);
  const found = { consumer, messages: [], assigned: [] };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    found.assigned = payload.memberAssignment[topic] ?? [];
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => void found.messages.push({ partition, ...message }),
  });
  return found;
}

async function take(topic, count) {
  const reader = await member(unique('reader'), topic);
  try {
    await until(`${count} messages`, () => reader.messages.length >= count);
  } finally {
    await reader.consumer.disconnect();
  }
  return reader.messages;
}

const values = (messages) => messages.map(({ value }) => value.toString());
const limits = { timeout: 60_000 };

describe('kafkajs', { concurrency: 4 }, () => {
  test('admin_creates_describes_and_deletes_topics', limits, async () => {
    const topic = await newTopic('admin', 3, [{ name: 'retention.ms', value: '123000' }]);
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    assert.equal(topics[0].partitions.length, 3);
    const { resources } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });
    assert.equal(resources[0].configEntries.find(({ configName }) => configName === 'retention.ms').configValue, '123000');
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false);
    await admin.deleteTopics({ topics: [topic] });
    await until('the topic gone', async () => !(await admin.listTopics()).includes(topic));
  });

  test('admin_alters_configs_and_partitions', limits, async () => {
    const topic = await newTopic('alter');
    const configEntries = [{ name: 'retention.ms', value: '77000' }];
    await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] });
    await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
    await until('four partitions', async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 4);
  });

  for (const [name, compression] of Object.entries({ none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy })) {
    test(`produces_and_consumes_${name}`, limits, async () => {
      const topic = await newTopic(name);
      const sent = Array.from({ length: 500 }, (_, number) => `${number}${' words that repeat'.repeat(20)}`);
      await produce(topic, sent.map((value) => ({ value })), { compression });
      assert.deepEqual(values(await take(topic, sent.length)), sent);
    });
  }

  for (const acks of [0, 1, -1]) {
    test(`produces_with_acks_${acks}`, limits, async () => {
      const topic = await newTopic('acks');
      await produce(topic, [{ value: 'a' }, { value: 'b' }], { acks });
      assert.deepEqual(values(await take(topic, 2)), ['a', 'b']);
    });
  }

  test('idempotent_producer', limits, async () => {
    const topic = await newTopic('idempotent');
    const producer = kafka.producer({ idempotent: true });
    await producer.connect();
    for (let number = 0; number < 20; number += 1) {
      await producer.send({ topic, messages: [{ value: `${number}` }] });
    }
    await producer.disconnect();
    assert.deepEqual(values(await take(topic, 20)), Array.from({ length: 20 }, (_, number) => `${number}`));
  });

  test('transactions_commit_abort_and_carry_offsets', limits, async () => {
    const [topic, groupId] = [await newTopic('transactions'), unique('group')];
    const producer = kafka.producer({ transactionalId: unique('tx'), idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const expected = [];
    for (let round = 0; round < 6; round += 1) {
      const transaction = await producer.transaction();
      const sent = [`${round}-a`, `${round}-b`];
      await transaction.send({ topic, messages: sent.map((value) => ({ value })) });
      await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: `${round}` }] }] });
      if (round % 2 === 0) {
        await transaction.commit();
        expected.push(...sent);
      } else {
        await transaction.abort();
      }
    }
    await producer.disconnect();
    assert.deepEqual(values(await take(topic, expected.length)), expected);
    await until('the offset of the last that committed', async () => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
      return partitions[0].offset === '4';
    });
  });

  test('keys_headers_nulls_and_timestamps', limits, async () => {
    const topic = await newTopic('record');
    await produce(topic, [{ key: 'k', value: null, headers: { a: '1' }, timestamp: '1600000000123' }]);
    const [found] = await take(topic, 1);
    assert.equal(found.key.toString(), 'k');
    assert.equal(found.value, null);
    assert.equal(found.headers.a.toString(), '1');
    assert.equal(found.timestamp, '1600000000123');
  });

  test('refuses_too_large_messages', limits, async () => {
    const topic = await newTopic('large', 1, [{ name: 'max.message.bytes', value: '1000' }]);
    const failure = await produce(topic, [{ value: 'x'.repeat(5_000) }], {}, { retry: { retries: 0 } }).catch((error) => error);
    assert.match(String(failure), /larger than the max message size/);
  });

  test('offsets_by_time_and_ends', limits, async () => {
    const topic = await newTopic('offsets');
    await produce(topic, [0, 1, 2, 3].map((number) => ({ value: `${number}`, timestamp: `${1_600_000_000_000 + number * 1000}` })));
    const [ends] = await admin.fetchTopicOffsets(topic);
    assert.deepEqual([ends.low, ends.high], ['0', '4']);
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, 1_600_000_001_500))[0].offset, '2');
  });

  test('deletes_records', limits, async () => {
    const topic = await newTopic('delete');
    await produce(topic, [{ value: 'a' }, { value: 'b' }, { value: 'c' }]);
    await admin.fetchTopicOffsets(topic); // kafkajs finds the leader only of a topic that it has asked for
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '2' }] });
    assert.deepEqual(values(await take(topic, 1)), ['c']);
  });

  test('group_resumes_where_it_committed', limits, async () => {
    const [topic, group] = [await newTopic('resume'), unique('resume')];
    await produce(topic, [{ value: 'a' }]);
    const first = await member(group, topic);
    await until('the message', () => first.messages.length === 1);
    await first.consumer.disconnect();
    await produce(topic, [{ value: 'b' }]);
    const second = await member(group, topic);
    await until('the next message', () => second.messages.length >= 1);
    await second.consumer.disconnect();
    assert.deepEqual(values(second.messages), ['b']);
  });

  test('group_rebalances_as_members_come_and_go', limits, async () => {
    const [topic, group] = [await newTopic('rebalance', 4), unique('rebalance')];
    const settings = { partitionAssigners: [PartitionAssigners.roundRobin], rebalanceTimeout: 5_000 };
    const first = await member(group, topic, settings);
    await until('all to the first', () => first.assigned.length === 4);
    const second = await member(group, topic, settings);
    await until('two to each', () => first.assigned.length === 2 && second.assigned.length === 2);
    const { groups } = await admin.describeGroups([group]);
    assert.equal(groups[0].members.length, 2);
    await first.consumer.disconnect();
    await until('all to the second', () => second.assigned.length === 4);
    await second.consumer.disconnect();
  });

  test('admin_moves_lists_and_deletes_groups', limits, async () => {
    const [topic, groupId] = [await newTopic('moved'), unique('moved')];
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '3' }] });
    const [offsets] = await admin.fetchOffsets({ groupId, topics: [topic] });
    assert.equal(offsets.partitions[0].offset, '3');
    await until('an empty group', async () => (await admin.describeGroups([groupId])).groups[0].members.length === 0);
    await admin.deleteGroups([groupId]);
    const { groups } = await admin.listGroups();
    assert.ok(!groups.some((found) => found.groupId === groupId));
  });
});
