import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** What compat/confluent-kafka/probe.py does, on Kafka's own client. */
final class Probe extends Clients {
    private static final long PATIENCE_MS = 15_000;

    private Probe() {
    }

    public static void main(String[] arguments) {
        String outcome;
        try {
            outcome = run(arguments[0], TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[1])));
        } catch (ExecutionException failed) {
            outcome = failed.getCause().toString();
        } catch (Exception failed) {
            outcome = failed.toString();
        }
        System.out.println(outcome);
        Runtime.getRuntime().halt(0);
    }

    private static String run(String topic, long duration) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("max.block.ms", PATIENCE_MS)) {
            long end = System.nanoTime() + duration;
            while (sent.isEmpty() || System.nanoTime() < end) {
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.toString(sent.size()))));
                Thread.sleep(20);
            }
            for (Future<RecordMetadata> each : sent) {
                each.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            }
        }
        int read = 0;
        try (KafkaConsumer<String, String> consumer = consumer("group.id", topic + "-group")) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
            while (read < sent.size() && System.nanoTime() < deadline) {
                read += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
            // A quiet connection is used again after the end of its session.
            TimeUnit.NANOSECONDS.sleep(duration);
            consumer.commitSync();
        }
        return read == sent.size() ? "ok" : read + " of " + sent.size() + " records read";
    }
}
