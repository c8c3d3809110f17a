import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;

import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Transactions with Kafka's own client, by the newest enabled protocol. */
final class TransactionTests extends Clients {
    private static KafkaProducer<String, String> begin(String id, Object... settings) {
        Object[] all = Stream.concat(Stream.of("transactional.id", id), Stream.of(settings)).toArray();
        KafkaProducer<String, String> producer = producer(all);
        producer.initTransactions();
        return producer;
    }

    /** The records of a read_committed reader up to its end. */
    private static List<String> committed(String topic, int partitions) {
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", "read_committed")) {
            List<TopicPartition> all = IntStream.range(0, partitions).mapToObj(each -> new TopicPartition(topic, each)).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<String> found = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (!all.stream().allMatch(each -> consumer.position(each) >= ends.get(each))) {
                check(System.nanoTime() < deadline, "the end " + ends + " was not reached within 30 s");
                consumer.poll(Duration.ofMillis(100)).forEach(record -> found.add(record.value()));
            }
            return found;
        }
    }

    public void transactionsCommitAndAbort() throws Exception {
        String topic = newTopic("transactions", 1);
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<String, String> producer = begin(unique("tx"))) {
            for (int round = 0; round < 20; round++) {
                int number = round;
                List<String> values = IntStream.range(0, 30).mapToObj(each -> number + "-" + each).toList();
                producer.beginTransaction();
                values.forEach(value -> producer.send(new ProducerRecord<>(topic, value)));
                if (round % 3 == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    expected.addAll(values);
                }
            }
        }
        until("the last transaction", () -> committed(topic, 1).equals(expected));
    }

    public void transactionsSpanPartitionsAndTopics() throws Exception {
        String one = newTopic("span", 3);
        String other = newTopic("span", 1);
        try (KafkaProducer<String, String> producer = begin(unique("tx"))) {
            producer.beginTransaction();
            for (int number = 0; number < 300; number++) {
                producer.send(new ProducerRecord<>(one, number % 3, null, "" + number));
                producer.send(new ProducerRecord<>(other, "" + number));
            }
            producer.flush();
            equal(List.of(), committed(one, 3));
            producer.commitTransaction();
        }
        until("the transaction", () -> committed(one, 3).size() == 300 && committed(other, 1).size() == 300);
    }

    public void transactionsFenceTheProducerBefore() throws Exception {
        String topic = newTopic("fence", 1);
        String id = unique("fence");
        KafkaProducer<String, String> old = begin(id);
        old.beginTransaction();
        old.send(new ProducerRecord<>(topic, "old")).get(20, TimeUnit.SECONDS);
        try (KafkaProducer<String, String> young = begin(id)) {
            try {
                old.commitTransaction();
                throw new AssertionError("a producer that was replaced has committed");
            } catch (ProducerFencedException fenced) {
                // Expected.
            } catch (KafkaException other) {
                check(other.getCause() instanceof ProducerFencedException
                        || other instanceof org.apache.kafka.common.errors.InvalidProducerEpochException, other);
            } finally {
                old.close(Duration.ZERO);
            }
            young.beginTransaction();
            young.send(new ProducerRecord<>(topic, "young"));
            young.commitTransaction();
        }
        until("the transaction", () -> committed(topic, 1).equals(List.of("young")));
    }

    public void transactionsCarryOffsets() throws Exception {
        String source = newTopic("source", 1);
        String sink = newTopic("sink", 1);
        List<String> values = IntStream.range(0, 200).mapToObj(String::valueOf).toList();
        fill(source, values);
        String group = unique("pipe");
        try (KafkaProducer<String, String> producer = begin(unique("tx"))) {
            for (int round = 0; committed(sink, 1).size() < values.size(); round++) {
                check(round < 100, "the pipe does not come to its end");
                try (KafkaConsumer<String, String> consumer = consumer("group.id", group, "enable.auto.commit", false,
                        "isolation.level", "read_committed", "max.poll.records", 40)) {
                    consumer.subscribe(List.of(source));
                    List<ConsumerRecord<String, String>> records = take(consumer, 1);
                    producer.beginTransaction();
                    records.forEach(record -> producer.send(new ProducerRecord<>(sink, record.value())));
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    consumer.assignment().forEach(each -> offsets.put(each, new OffsetAndMetadata(consumer.position(each))));
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (round % 2 == 0) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
            }
        }
        equal(values, committed(sink, 1));
    }

    public void transactionsAreListedAndDescribed() throws Exception {
        String topic = newTopic("listed", 2);
        String id = unique("listed");
        try (KafkaProducer<String, String> producer = begin(id)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 1, null, "x")).get(20, TimeUnit.SECONDS);
            TransactionDescription open = result(admin.describeTransactions(Set.of(id)).description(id));
            equal(TransactionState.ONGOING, open.state());
            equal(Set.of(new TopicPartition(topic, 1)), open.topicPartitions());
            check(result(admin.listTransactions().all()).stream().map(TransactionListing::transactionalId).toList().contains(id), id);
            TopicPartition partition = new TopicPartition(topic, 1);
            List<ProducerState> producers =
                    result(admin.describeProducers(Set.of(partition)).partitionResult(partition)).activeProducers();
            equal(open.producerId(), producers.get(0).producerId());
            check(producers.get(0).currentTransactionStartOffset().isPresent(), producers);
            producer.commitTransaction();
            until("the end of the transaction", () -> result(admin.describeTransactions(Set.of(id)).description(id)).state()
                    == TransactionState.COMPLETE_COMMIT);
        }
    }

    public void transactionsOfAnIdAreAbortedByAdministrators() throws Exception {
        String topic = newTopic("abort", 1);
        String id = unique("abort");
        try (KafkaProducer<String, String> producer = begin(id)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "x")).get(20, TimeUnit.SECONDS);
            result(admin.fenceProducers(Set.of(id)).all());
            until("the end of the transaction", () -> committedEnd(topic) == 2);
        }
        equal(List.of(), committed(topic, 1));
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ProducerState> producers =
                result(admin.describeProducers(Set.of(partition)).partitionResult(partition)).activeProducers();
        ProducerState last = producers.get(0);
        // A marker for an ended transaction changes nothing.
        result(admin.abortTransaction(new AbortTransactionSpec(partition, last.producerId(), (short) last.producerEpoch(),
                last.coordinatorEpoch().orElse(0))).all());
    }

    private static long committedEnd(String topic) {
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", "read_committed")) {
            TopicPartition partition = new TopicPartition(topic, 0);
            return consumer.endOffsets(Set.of(partition)).get(partition);
        }
    }
}
