import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The books of a word count whose instances and brokers fail: writes lines, reads committed totals as they come, and says how
 * many lines are counted. Ends with its input, waits for the last totals, and prints the audit. Usage:
 * StreamsLedger ID REPLICAS IN_FLIGHT
 *
 * Every line that a broker has confirmed is counted once: the totals of a word grow with every record, and end with the number
 * of times that it was written. A total that comes twice or shrinks means that a transaction was written twice, or that a store
 * lost what was committed.
 */
public final class StreamsLedger {
    private static final int PAUSE_MS = 10;
    private static final long DRAIN_S = 180;

    private final Application words;
    private final String inFlight;
    private volatile boolean writing = true;
    private final Map<String, Long> expected = new ConcurrentHashMap<>();
    private final Map<String, Long> totals = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<String> violations = new ConcurrentLinkedQueue<>();

    private StreamsLedger(Application words, String inFlight) {
        this.words = words;
        this.inFlight = inFlight;
    }

    public static void main(String[] args) throws Exception {
        StreamsLedger ledger = new StreamsLedger(new Application(args[0], Short.parseShort(args[1]), Map.of()), args[2]);
        ledger.words.createTopics();
        ledger.words.configure("streams.num.standby.replicas", "1");
        Thread writer = new Thread(ledger::write);
        Thread reader = new Thread(ledger::read);
        reader.setDaemon(true);
        writer.start();
        reader.start();
        while (System.in.available() == 0) {
            System.out.println("so far " + ledger.totals.getOrDefault("all", 0L));
            Thread.sleep(500);
        }
        ledger.writing = false;
        writer.join();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DRAIN_S);
        while (!ledger.totals.equals(ledger.expected) && System.nanoTime() < deadline) {
            Thread.sleep(100);
        }
        ledger.audit();
        Runtime.getRuntime().halt(0);
    }

    private void write() {
        Map<String, Object> settings = Application.settings();
        settings.putAll(Map.of("max.in.flight.requests.per.connection", inFlight, "delivery.timeout.ms", 180_000, "max.block.ms", 120_000));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; writing; number++) {
                String line = Application.line(number);
                ProducerRecord<String, String> record = new ProducerRecord<>(words.input, number % Application.PARTITIONS, "k" + number, line);
                producer.send(record, (metadata, failed) -> {
                    if (failed != null) {
                        violations.add("a line was not written: " + failed);
                        return;
                    }
                    for (String word : line.split(" ")) {
                        expected.merge(word, 1L, Long::sum);
                    }
                });
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void read() {
        Map<String, Object> settings = Application.settings();
        settings.putAll(Map.of("auto.offset.reset", "earliest", "isolation.level", "read_committed", "enable.auto.commit", "false"));
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < Application.PARTITIONS; partition++) {
            all.add(new TopicPartition(words.output, partition));
        }
        try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            consumer.assign(all);
            while (true) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    Long before = totals.put(record.key(), record.value());
                    if (before != null && record.value() <= before) {
                        violations.add(record.key() + " was " + before + ", then " + record.value() + " at " + record.partition() + ":" + record.offset());
                    }
                }
            }
        }
    }

    private void audit() {
        for (String word : expected.keySet()) {
            if (!expected.get(word).equals(totals.get(word))) {
                violations.add(word + " was written " + expected.get(word) + " times, its total is " + totals.get(word));
            }
        }
        violations.stream().limit(10).forEach(System.out::println);
        System.out.println("audit " + (violations.isEmpty() ? "passed" : "failed") + ": lines " + expected.get("all"));
    }
}
