import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;

/**
 * Kafka Streams by the classic protocol, with a store and exactly once: for each of some words, the output must be 1, 2, 3, ... to
 * the number of its records, whatever happens to the instances.
 */
final class ClassicTests extends Suite {
    private static final int WORDS = 10;
    private static final Path WORK = Path.of(System.getenv().getOrDefault("WORK", System.getProperty("java.io.tmpdir")));

    /** One application: its topics, and the number of records of each word so far. */
    private static final class Counting implements AutoCloseable {
        final String id = unique("counting");
        final String input = id + "-input";
        final String output = id + "-output";
        final KafkaProducer<String, String> producer =
                new KafkaProducer<>(clients("linger.ms", "5"), new StringSerializer(), new StringSerializer());
        int sent;

        Counting() throws Exception {
            try (Admin admin = Admin.create(clients())) {
                admin.createTopics(List.of(new NewTopic(input, 4, (short) 1), new NewTopic(output, 4, (short) 1)))
                        .all().get(20, TimeUnit.SECONDS);
            }
        }

        /** That many more records of every word. */
        void write(int count) {
            for (int i = 0; i < count; i++, sent++) {
                for (int word = 0; word < WORDS; word++) {
                    producer.send(new ProducerRecord<>(input, null, "word-" + word));
                }
            }
            producer.flush();
        }

        KafkaStreams start(String instance, int standbys) {
            Path state = WORK.resolve(id + "-" + instance);
            KafkaStreams streams = new KafkaStreams(CountApp.topology(input, output),
                    CountApp.settings(BOOTSTRAP, id, state.toString(), standbys));
            streams.start();
            return streams;
        }

        /** An instance in a process that can be killed. */
        Process spawn(String instance) throws Exception {
            Path log = WORK.resolve(id + "-" + instance + ".log");
            return new ProcessBuilder("java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", System.getProperty("java.class.path"),
                    "CountApp", BOOTSTRAP, id, input, output, WORK.resolve(id + "-" + instance).toString(), "1")
                    .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
        }

        /** Waits until every word has its last count; the counts of each word are then without a gap or a repetition. */
        void check() throws Exception {
            Map<String, List<Long>> counts = new TreeMap<>();
            Map<String, Object> settings = clients("isolation.level", "read_committed", "auto.offset.reset", "earliest",
                    "group.id", unique("audit"));
            try (KafkaConsumer<String, Long> reader =
                    new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
                reader.subscribe(List.of(output));
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                while (counts.size() < WORDS || counts.values().stream().anyMatch(found -> found.size() < sent)) {
                    Map<String, Integer> sizes = new HashMap<>();
                    counts.forEach((word, found) -> sizes.put(word, found.size()));
                    Suite.check(System.nanoTime() < deadline, "within 60 s only " + sizes + " of " + sent + " each");
                    reader.poll(Duration.ofMillis(200)).forEach(
                            record -> counts.computeIfAbsent(record.key(), word -> new ArrayList<>()).add(record.value()));
                }
                reader.poll(Duration.ofMillis(500)).forEach(record -> counts.get(record.key()).add(record.value()));
            }
            List<Long> expected = LongStream.rangeClosed(1, sent).boxed().toList();
            counts.forEach((word, found) -> Suite.check(found.equals(expected), word + ": " + found));
        }

        @Override
        public void close() {
            producer.close();
        }
    }

    private static Map<String, Object> clients(String... settings) {
        Map<String, Object> all = new HashMap<>(SECURITY);
        all.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        return all;
    }

    private static void stop(KafkaStreams streams) {
        check(streams.close(Duration.ofSeconds(30)), "it does not close");
    }

    public void countsAreExactByTheClassicProtocol() throws Exception {
        try (Counting application = new Counting()) {
            KafkaStreams streams = application.start("a", 0);
            application.write(300);
            application.check();
            stop(streams);
        }
    }

    public void aStoreIsRestoredFromItsChangelogByTheClassicProtocol() throws Exception {
        try (Counting application = new Counting()) {
            application.write(200);
            KafkaStreams first = application.start("a", 0);
            application.check();
            stop(first);
            // Another directory: nothing is left of the store but its changelog.
            KafkaStreams second = application.start("b", 0);
            application.write(200);
            application.check();
            stop(second);
        }
    }

    public void aRestartGoesOnWithItsFilesByTheClassicProtocol() throws Exception {
        try (Counting application = new Counting()) {
            for (int round = 0; round < 3; round++) {
                KafkaStreams streams = application.start("a", 0);
                application.write(100);
                application.check();
                stop(streams);
            }
            Path state = WORK.resolve(application.id + "-a");
            check(Files.isDirectory(state), "the store is in " + state);
        }
    }

    public void aStandbyTakesOverByTheClassicProtocol() throws Exception {
        try (Counting application = new Counting()) {
            KafkaStreams first = application.start("a", 1);
            KafkaStreams second = application.start("b", 1);
            application.write(100);
            until("standby tasks in both instances", () -> List.of(first, second).stream().allMatch(streams ->
                    streams.metadataForLocalThreads().stream().anyMatch(thread -> !thread.standbyTasks().isEmpty())));
            application.check();
            stop(first);
            application.write(100);
            application.check();
            stop(second);
        }
    }

    public void countsStayExactThroughKill9ByTheClassicProtocol() throws Exception {
        if (!"1".equals(System.getenv("NIGHTLY"))) {
            throw new Skip("it takes most of a minute");
        }
        int kills = 4;
        try (Counting application = new Counting()) {
            Process[] instances = {application.spawn("a"), application.spawn("b")};
            try {
                for (int kill = 0; kill < kills; kill++) {
                    application.write(150);
                    Thread.sleep(4000);
                    int which = kill % 2;
                    instances[which].destroyForcibly().waitFor();
                    application.write(50);
                    instances[which] = application.spawn(which == 0 ? "a" : "b");
                }
                application.check();
            } finally {
                for (Process instance : instances) {
                    instance.destroyForcibly();
                }
            }
        }
    }
}
