import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consumers with manually assigned partitions: positions, limits, times, watermarks. */
final class ConsumerTests extends Clients {
    private static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf).toList();
    }

    public void fetchFromTheMiddleOfABatch() throws Exception {
        for (String codec : List.of("none", "zstd")) {
            String topic = newTopic("middle", 1);
            fill(topic, numbers(100), "linger.ms", 200, "compression.type", codec);
            for (int offset : new int[] {0, 1, 50, 99}) {
                ConsumerRecord<String, String> found = read(topic, offset, 1).get(0);
                check(found.offset() == offset && found.value().equals(String.valueOf(offset)), found);
            }
        }
    }

    public void batchLargerThanTheFetchLimitIsReturned() throws Exception {
        String topic = newTopic("limit", 1);
        fill(topic, List.of("x".repeat(300_000), "after"));
        equal(2, read(topic, 0, 2, "max.partition.fetch.bytes", 1, "fetch.max.bytes", 1).size());
    }

    public void fetchMaxBytesBoundsAnAnswer() throws Exception {
        String topic = newTopic("bound", 1);
        fill(topic, IntStream.range(0, 100).mapToObj(number -> "x".repeat(10_000)).toList(), "batch.size", 10_000);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("fetch.max.bytes", 50_000, "max.poll.records", 1_000)) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, 0);
            ConsumerRecords<String, String> first = ConsumerRecords.empty();
            while (first.isEmpty()) {
                first = consumer.poll(Duration.ofSeconds(1));
            }
            check(first.count() <= 5, first.count() + " records of 10 kB within 50 kB");
        }
    }

    public void fetchMinBytesAndMaxWaitDelayAnAnswer() throws Exception {
        String topic = newTopic("wait", 1);
        fill(topic, List.of("few bytes"));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("fetch.min.bytes", 1_000_000, "fetch.max.wait.ms", 1_500)) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, 0);
            consumer.position(partition);
            long began = System.nanoTime();
            take(consumer, 1);
            check(System.nanoTime() - began > 1_000_000_000L, "the answer came at once");
        }
    }

    public void recordArrivesWhileTheConsumerWaits() throws Exception {
        String topic = newTopic("arrives", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("fetch.max.wait.ms", 10_000);
                KafkaProducer<String, String> producer = producer()) {
            consumer.assign(Set.of(partition));
            consumer.seekToEnd(Set.of(partition));
            // Otherwise the end is looked up some time later, perhaps behind the record.
            equal(0L, consumer.position(partition));
            equal(0, consumer.poll(Duration.ofMillis(500)).count());
            long began = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, "new"));
            take(consumer, 1);
            check(System.nanoTime() - began < 3_000_000_000L, "the record came late");
        }
    }

    public void manyPartitionsInOneFetchSession() throws Exception {
        String topic = newTopic("session", 20);
        try (KafkaConsumer<String, String> consumer = consumer(); KafkaProducer<String, String> producer = producer()) {
            consumer.assign(IntStream.range(0, 20).mapToObj(number -> new TopicPartition(topic, number)).toList());
            consumer.seekToBeginning(consumer.assignment());
            for (int round = 0; round < 5; round++) {
                int partition = round * 3;
                send(producer, List.of(new ProducerRecord<>(topic, partition, null, "x")));
                equal(partition, take(consumer, 1).get(0).partition());
            }
            consumer.assign(Set.of(new TopicPartition(topic, 19)));
            consumer.seekToBeginning(consumer.assignment());
            send(producer, List.of(new ProducerRecord<>(topic, 0, null, "not mine"), new ProducerRecord<>(topic, 19, null, "mine")));
            equal("mine", take(consumer, 1).get(0).value());
        }
    }

    public void beginningAndEndOffsets() throws Exception {
        String topic = newTopic("ends", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        fill(topic, numbers(10));
        result(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3))).all());
        for (String level : List.of("read_uncommitted", "read_committed")) {
            try (KafkaConsumer<String, String> consumer = consumer("isolation.level", level)) {
                equal(Map.of(partition, 3L), consumer.beginningOffsets(Set.of(partition)));
                equal(Map.of(partition, 10L), consumer.endOffsets(Set.of(partition)));
            }
        }
    }

    public void offsetsForTimesInsideCompressedBatches() throws Exception {
        String topic = newTopic("times", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer("compression.type", "gzip", "linger.ms", 200)) {
            send(producer, IntStream.range(0, 50)
                    .mapToObj(number -> new ProducerRecord<String, String>(topic, 0, 1_000_000L + number * 10, null, "x")).toList());
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 1_000_255L)).get(partition);
            check(found.offset() == 26 && found.timestamp() == 1_000_260L, found);
            check(consumer.offsetsForTimes(Map.of(partition, 2_000_000L)).get(partition) == null, "an offset after the last time");
        }
    }

    public void offsetOutOfRange() throws Exception {
        String topic = newTopic("range", 1);
        fill(topic, numbers(3));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "none")) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, 100);
            try {
                take(consumer, 1);
                throw new AssertionError("no exception");
            } catch (OffsetOutOfRangeException expected) {
                equal(Map.of(partition, 100L), expected.offsetOutOfRangePartitions());
            }
        }
        equal("0", read(topic, 100, 1, "auto.offset.reset", "earliest").get(0).value());
    }

    public void positionBelowTheLogStartResets() throws Exception {
        String topic = newTopic("below", 1);
        fill(topic, numbers(10), "batch.size", 100);
        result(admin.deleteRecords(Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(7))).all());
        equal("7", read(topic, 2, 1).get(0).value());
    }

    public void listTopicsAndPartitions() throws Exception {
        String topic = newTopic("listed", 3);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            equal(3, consumer.listTopics().get(topic).size());
            equal(3, consumer.partitionsFor(topic).size());
            check(consumer.partitionsFor(topic).get(0).leader() != null, "a leader");
        }
    }

    public void patternSubscriptionFindsNewTopics() throws Exception {
        String stem = unique("pattern");
        try (KafkaConsumer<String, String> consumer = consumer("metadata.max.age.ms", 500)) {
            consumer.subscribe(Pattern.compile(stem + ".*"));
            consumer.poll(Duration.ofMillis(200));
            String topic = newTopic(stem, 1);
            fill(topic, List.of("found"));
            equal("found", take(consumer, 1).get(0).value());
        }
    }

    public void currentLagIsKnown() throws Exception {
        String topic = newTopic("lag", 1);
        fill(topic, numbers(10));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("max.poll.records", 4)) {
            consumer.assign(Set.of(partition));
            consumer.seek(partition, 0);
            take(consumer, 4);
            equal(6L, consumer.currentLag(partition).orElse(-1));
        }
    }
}
