import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The books of a system that copies records from one topic to another while it and its broker fail. The numbers 0, 1, 2, ... are
 * written to the input, and the committed records of the output are read as they come. `ordeal.py` has the other side of `run`.
 */
public final class Ledger {
    private static final int PARTITIONS = 3;
    private static final int PAUSE_MS = 5;
    private static final long DRAIN_S = 120;
    /** A copy that comes late, from a transaction that was committed twice, is seen within this time. */
    private static final long LATE_MS = 2_000;
    private static final long REPORT_MS = 200;

    public final String input;
    public final String output;
    private final String bootstrap = System.getenv("BOOTSTRAP");
    private final ConcurrentLinkedQueue<String> violations = new ConcurrentLinkedQueue<>();
    private volatile boolean writing = true;
    private volatile int written;
    private final BitSet read = new BitSet();
    private final Set<Integer> repeated = new TreeSet<>();

    public Ledger(String stem) throws Exception {
        input = stem + "-in";
        output = stem + "-out";
        try (Admin admin = Admin.create(settings())) {
            List<NewTopic> topics = List.of(new NewTopic(input, PARTITIONS, (short) 1), new NewTopic(output, PARTITIONS, (short) 1));
            admin.createTopics(topics).all().get(20, TimeUnit.SECONDS);
        }
    }

    /**
     * Prints how many numbers have come through, until a line of the input says "end". Each line "fail" makes the system fail.
     * Then everything that was written has to come through, and the audit is printed: without a repeated number, where the
     * system promises that.
     */
    public void run(Runnable failure, boolean once) throws InterruptedException {
        Thread writer = start("writer", this::write);
        start("reader", this::read);
        start("orders", () -> obey(failure));
        System.out.println("begun");
        while (writing) {
            System.out.println("so far " + distinct());
            Thread.sleep(REPORT_MS);
        }
        writer.join();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DRAIN_S);
        while (distinct() < written && System.nanoTime() < deadline) {
            Thread.sleep(REPORT_MS);
        }
        Thread.sleep(LATE_MS);
        audit(once);
    }

    /** Numbers that the input has. */
    public int written() {
        return written;
    }

    private static Thread start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void obey(Runnable failure) {
        try (Scanner orders = new Scanner(System.in)) {
            while (orders.hasNextLine() && !orders.nextLine().equals("end")) {
                failure.run();
            }
        }
        writing = false;
    }

    private Map<String, Object> settings() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap));
    }

    private void write() {
        Map<String, Object> settings = settings();
        settings.putAll(Map.of("delivery.timeout.ms", 180_000, "max.block.ms", 120_000));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            while (writing) {
                String number = Integer.toString(written);
                producer.send(new ProducerRecord<>(input, written % PARTITIONS, number, number), (metadata, failed) -> {
                    if (failed != null) {
                        violations.add(number + " was not written: " + failed);
                    }
                });
                written++;
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void read() {
        Map<String, Object> settings = settings();
        settings.putAll(Map.of("auto.offset.reset", "earliest", "isolation.level", "read_committed", "enable.auto.commit", "false"));
        List<TopicPartition> all = IntStream.range(0, PARTITIONS).mapToObj(partition -> new TopicPartition(output, partition)).toList();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(new ArrayList<>(all));
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    enter(record);
                }
            }
        }
    }

    private synchronized void enter(ConsumerRecord<String, String> record) {
        int number = Integer.parseInt(record.value());
        if (read.get(number)) {
            repeated.add(number);
        }
        read.set(number);
    }

    private synchronized int distinct() {
        return read.cardinality();
    }

    private synchronized void audit(boolean once) {
        List<Integer> missing = IntStream.range(0, written).filter(number -> !read.get(number)).boxed().toList();
        if (!missing.isEmpty()) {
            violations.add(missing.size() + " of " + written + " are missing, the first: " + missing.subList(0, Math.min(5, missing.size())));
        }
        if (once && !repeated.isEmpty()) {
            violations.add(repeated.size() + " of " + written + " came more than once: " + repeated.stream().limit(5).toList());
        }
        violations.stream().limit(10).forEach(System.out::println);
        System.out.println("audit " + (violations.isEmpty() ? "passed" : "failed") + ": written " + written + ", repeated " + repeated.size());
    }
}
