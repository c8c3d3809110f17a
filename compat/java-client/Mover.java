import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Moves records from a topic to another, each exactly once: reads, writes and commits offsets in one transaction.
 * compat/confluent-kafka/mover.py is the same on librdkafka, and documents arguments and output.
 */
final class Mover {
    private final String source;
    private final String sink;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private int number;

    private Mover(String bootstrap, String source, String sink, String group, String transactionalId, String inFlight) {
        this.source = source;
        this.sink = sink;
        Map<String, Object> writing = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId));
        writing.putAll(Map.of("transaction.timeout.ms", 6_000, "linger.ms", 1, "reconnect.backoff.max.ms", 500));
        writing.put("max.in.flight.requests.per.connection", inFlight);
        // Timeouts shorter than those of the test.
        writing.putAll(Map.of("request.timeout.ms", 10_000, "delivery.timeout.ms", 30_000, "max.block.ms", 60_000));
        producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
        Map<String, Object> reading = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group));
        reading.putAll(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 500));
        reading.putAll(Map.of("session.timeout.ms", 6_000, "heartbeat.interval.ms", 500, "isolation.level", "read_committed"));
        reading.putAll(Map.of("reconnect.backoff.max.ms", 500, "request.timeout.ms", 10_000));
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void begin() {
        again("initTransactions", producer::initTransactions);
        consumer.subscribe(List.of(source));
    }

    /** Moves available records in one transaction. */
    private void move() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            return;
        }
        number++;
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(sink, record.partition(), null, record.value()));
                offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            again("sendOffsets", () -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
            if (number % 7 == 0) {
                abort(records, "by itself");
                return;
            }
            again("commit", producer::commitTransaction);
        } catch (KafkaException failure) {
            // If the abort fails, too, the error is fatal: restart.
            abort(records, failure.toString());
            return;
        }
        say("committed", records.count());
    }

    private void abort(ConsumerRecords<byte[], byte[]> records, String why) {
        again("abort", producer::abortTransaction);
        say("aborted", why);
        for (TopicPartition partition : records.partitions()) {
            if (consumer.assignment().contains(partition)) {
                consumer.seek(partition, records.records(partition).get(0).offset());
            }
        }
    }

    /** Calls, and retries after timeouts: the client continues the same call. */
    private static void again(String name, Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                say("again", name + " " + late.getMessage());
            }
        }
    }

    private void close() {
        producer.close(Duration.ZERO);
        consumer.close();
    }

    private static void say(String event, Object what) {
        System.out.println(event + " " + what);
    }

    public static void main(String[] arguments) throws Exception {
        Stop stop = Stop.onSignal();
        while (!stop.isAsked()) {
            Mover mover = new Mover(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
            try {
                mover.begin();
                while (!stop.isAsked()) {
                    mover.move();
                }
            } catch (KafkaException failure) {
                say("renewed", failure);
            }
            mover.close();
        }
    }
}
