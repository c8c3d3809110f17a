import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import java.util.stream.Stream;

import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;

/** What a producer sees: acknowledgements, codecs, idempotence, sizes, time stamps, headers. */
final class ProducerTests extends Clients {
    private static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf).toList();
    }

    public void produceWithEachAcks() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = newTopic("acks", 1);
            List<RecordMetadata> sent = fill(topic, List.of("a", "b"), "acks", acks, "enable.idempotence", acks.equals("all"));
            check(acks.equals("0") ? !sent.get(1).hasOffset() : sent.get(1).offset() == 1, sent);
            equal(List.of("a", "b"), values(read(topic, 0, 2)));
        }
    }

    public void produceWithEachCodec() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = newTopic(codec, 1);
            List<String> values = numbers(3_000).stream().map(number -> number + " words that repeat".repeat(20)).toList();
            fill(topic, values, "compression.type", codec, "batch.size", 100_000);
            equal(values, values(read(topic, 0, values.size())));
        }
    }

    public void codecOfTheTopicReplacesTheProducers() throws Exception {
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd", "uncompressed")) {
            String topic = newTopic("recompressed", 1, "compression.type", codec);
            fill(topic, numbers(500), "compression.type", "zstd");
            equal(numbers(500), values(read(topic, 0, 500)));
        }
    }

    public void idempotentProducerKeepsOrderWithFiveInFlight() throws Exception {
        String topic = newTopic("idempotent", 1);
        List<RecordMetadata> sent = fill(topic, numbers(20_000), "batch.size", 1_000, "max.in.flight.requests.per.connection", 5);
        equal(IntStream.range(0, 20_000).mapToObj(Long::valueOf).toList(), sent.stream().map(RecordMetadata::offset).toList());
        equal(numbers(20_000), values(read(topic, 0, 20_000)));
    }

    public void idempotentProducerGoesOnAfterItsRecordsAreDeleted() throws Exception {
        String topic = newTopic("forgotten", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer()) {
            send(producer, List.of(new ProducerRecord<>(topic, "a"), new ProducerRecord<>(topic, "b")));
            result(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all());
            equal(2L, send(producer, List.of(new ProducerRecord<>(topic, "c"))).get(0).offset());
        }
        equal(List.of("c"), values(read(topic, 2, 1)));
    }

    public void idempotentProducerGoesOnAfterARefusedBatch() throws Exception {
        String topic = newTopic("refused", 1, "max.message.bytes", "2000");
        try (KafkaProducer<String, String> producer = producer("linger.ms", 0)) {
            send(producer, List.of(new ProducerRecord<>(topic, "a")));
            fails(RecordTooLargeException.class, producer.send(new ProducerRecord<>(topic, randomText(5_000))));
            equal(1L, send(producer, List.of(new ProducerRecord<>(topic, "b"))).get(0).offset());
        }
    }

    public void tooLargeBatchIsSplit() throws Exception {
        String topic = newTopic("split", 1, "max.message.bytes", "10000");
        List<String> values = numbers(100).stream().map(number -> number + "x".repeat(500)).toList();
        fill(topic, values, "batch.size", 60_000, "linger.ms", 100);
        equal(values, values(read(topic, 0, 100)));
    }

    public void recordOfAMegabyte() throws Exception {
        String topic = newTopic("megabyte", 1);
        String value = randomText(1_000_000);
        fill(topic, List.of(value));
        equal(value, read(topic, 0, 1).get(0).value());
    }

    public void keysHeadersAndNullsComeBack() throws Exception {
        String topic = newTopic("headers", 1);
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key", null);
        record.headers().add("a", "1".getBytes(StandardCharsets.UTF_8)).add("a", new byte[0]).add("null", null);
        try (KafkaProducer<String, String> producer = producer("compression.type", "lz4")) {
            send(producer, List.of(record, new ProducerRecord<>(topic, null, "value"), new ProducerRecord<>(topic, "", "")));
        }
        List<ConsumerRecord<String, String>> found = read(topic, 0, 3);
        check(found.get(0).key().equals("key") && found.get(0).value() == null, found.get(0));
        check(found.get(1).key() == null && found.get(2).key().isEmpty() && found.get(2).value().isEmpty(), found);
        equal(List.of("a", "a", "null"), Stream.of(found.get(0).headers().toArray()).map(Header::key).toList());
        check(found.get(0).headers().lastHeader("null").value() == null, "a null header");
    }

    public void createTimeIsTheProducers() throws Exception {
        String topic = newTopic("create", 1);
        try (KafkaProducer<String, String> producer = producer()) {
            RecordMetadata sent = send(producer, List.of(new ProducerRecord<>(topic, 0, 1_600_000_000_123L, null, "x"))).get(0);
            equal(1_600_000_000_123L, sent.timestamp());
        }
        ConsumerRecord<String, String> found = read(topic, 0, 1).get(0);
        check(found.timestamp() == 1_600_000_000_123L && found.timestampType() == TimestampType.CREATE_TIME, found);
    }

    public void logAppendTimeIsTheBrokersInEachCodec() throws Exception {
        for (String codec : List.of("none", "gzip", "zstd")) {
            String topic = newTopic("append", 1, "message.timestamp.type", "LogAppendTime");
            long before = System.currentTimeMillis();
            RecordMetadata sent;
            try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
                sent = send(producer, List.of(new ProducerRecord<>(topic, 0, 5L, null, "x"), new ProducerRecord<>(topic, "y"))).get(0);
            }
            ConsumerRecord<String, String> found = read(topic, 0, 2).get(0);
            check(found.timestampType() == TimestampType.LOG_APPEND_TIME && found.timestamp() >= before, found);
            equal(sent.timestamp(), found.timestamp());
        }
    }

    public void timestampFarFromNowIsRefusedWhereTheTopicSaysSo() throws Exception {
        String topic = newTopic("far", 1, "message.timestamp.after.max.ms", "1000", "message.timestamp.before.max.ms", "1000");
        try (KafkaProducer<String, String> producer = producer()) {
            long now = System.currentTimeMillis();
            fails(InvalidTimestampException.class, producer.send(new ProducerRecord<>(topic, 0, now + 3_600_000, null, "x")));
            fails(InvalidTimestampException.class, producer.send(new ProducerRecord<>(topic, 0, now - 3_600_000, null, "x")));
            send(producer, List.of(new ProducerRecord<>(topic, "x")));
        }
    }

    public void futureTimestampIsRefusedByDefault() throws Exception {
        String topic = newTopic("future", 1);
        try (KafkaProducer<String, String> producer = producer()) {
            long soon = System.currentTimeMillis() + 2 * 3_600_000;
            fails(InvalidTimestampException.class, producer.send(new ProducerRecord<>(topic, 0, soon, null, "x")));
        }
    }

    public void keylessRecordIsRefusedOnACompactedTopic() throws Exception {
        String topic = newTopic("compacted", 1, "cleanup.policy", "compact");
        try (KafkaProducer<String, String> producer = producer("linger.ms", 0)) {
            InvalidRecordException refused = fails(InvalidRecordException.class, producer.send(new ProducerRecord<>(topic, "no key")));
            check(refused.getMessage().contains("key"), refused);
            send(producer, List.of(new ProducerRecord<>(topic, "key", "value")));
        }
    }

    public void oneBadPartitionDoesNotFailTheOthers() throws Exception {
        String small = newTopic("small", 1, "max.message.bytes", "500");
        String normal = newTopic("normal", 1);
        try (KafkaProducer<String, String> producer = producer("linger.ms", 200, "enable.idempotence", false)) {
            Future<RecordMetadata> refused = producer.send(new ProducerRecord<>(small, randomText(2_000)));
            Future<RecordMetadata> taken = producer.send(new ProducerRecord<>(normal, "fine"));
            equal(0L, result(taken).offset());
            fails(RecordTooLargeException.class, refused);
        }
    }

    public void stickyPartitionerReachesEveryPartition() throws Exception {
        String topic = newTopic("sticky", 3);
        Set<Integer> reached = new HashSet<>();
        try (KafkaProducer<String, String> producer = producer("batch.size", 500, "linger.ms", 0)) {
            List<ProducerRecord<String, String>> records = numbers(2_000).stream()
                    .map(number -> new ProducerRecord<String, String>(topic, number + "x".repeat(50))).toList();
            send(producer, records).forEach(sent -> reached.add(sent.partition()));
            equal(3, producer.partitionsFor(topic).size());
        }
        equal(Set.of(0, 1, 2), reached);
    }

    public void topicIsCreatedAutomatically() throws Exception {
        String topic = unique("automatic");
        try (KafkaProducer<String, String> producer = producer()) {
            equal(0L, send(producer, List.of(new ProducerRecord<>(topic, "first"))).get(0).offset());
        }
    }

    private static String randomText(int length) {
        Random random = new Random(length);
        return random.ints(length, 'a', 'z').collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }
}
