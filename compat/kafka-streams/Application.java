import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment.TaskIds;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A word count: lines are split into words, repartitioned by word, and counted in a store. It has its own topics and group,
 * and any number of instances, each with its own directory.
 */
final class Application extends Suite implements AutoCloseable {
    static final String STORE = "counts";
    static final int PARTITIONS = 3;

    final String id;
    final String input;
    final String output;
    final Admin admin = Admin.create(new HashMap<String, Object>(settings()));
    private final short replicas;
    private final Path directory;
    private final Map<String, Object> more;
    private final Map<String, KafkaStreams> running = new HashMap<>();
    private final Map<String, Long> expected = new HashMap<>();

    /** One with topics of its own. Settings of Kafka Streams are passed as key, value, key, value. */
    Application(Object... more) throws Exception {
        this(unique("words"), (short) 1, pairs(more));
        createTopics();
    }

    /** One that has instances in several processes, of which one creates the topics. */
    Application(String id, short replicas, Map<String, Object> more) throws IOException {
        this.id = id;
        this.replicas = replicas;
        input = id + "-lines";
        output = id + "-totals";
        directory = Files.createDirectories(Path.of(System.getenv().getOrDefault("WORK", "/tmp"), id));
        this.more = more;
    }

    private static Map<String, Object> pairs(Object... more) {
        Map<String, Object> all = new HashMap<>();
        for (int i = 0; i < more.length; i += 2) {
            all.put((String) more[i], more[i + 1]);
        }
        return all;
    }

    void createTopics() throws Exception {
        List<NewTopic> topics = List.of(new NewTopic(input, PARTITIONS, replicas), new NewTopic(output, PARTITIONS, replicas));
        admin.createTopics(topics).all().get(20, TimeUnit.SECONDS);
        until("topics", () -> admin.listTopics().names().get().containsAll(Set.of(input, output)));
    }

    static Map<String, Object> settings() {
        Map<String, Object> all = new HashMap<>(SECURITY);
        all.put("bootstrap.servers", BOOTSTRAP);
        return all;
    }

    /** Sets a property of the group. */
    void configure(String key, String value) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, id);
        List<AlterConfigOp> ops = List.of(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(group, ops)).all().get(20, TimeUnit.SECONDS);
    }

    private Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(STORE))
                .toStream()
                .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    /** The offsets that the group has committed. */
    Map<TopicPartition, OffsetAndMetadata> offsets() throws Exception {
        return admin.listStreamsGroupOffsets(Map.of(id, new ListStreamsGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(id).get();
    }

    /** Starts an instance. One of this name that has run before finds its stores again. */
    KafkaStreams start(String name) {
        return start(name, null);
    }

    /** Starts an instance that can be queried at that port. */
    KafkaStreams start(String name, Integer port) {
        Properties all = new Properties();
        all.putAll(settings());
        all.put("application.id", id);
        all.put("client.id", name);
        all.put("group.protocol", "streams");
        if (port != null) {
            all.put("application.server", "localhost:" + port);
        }
        all.put("state.dir", directory.resolve(name).toString());
        all.put("commit.interval.ms", 200);
        all.put("replication.factor", (int) replicas);
        all.put("default.key.serde", Serdes.StringSerde.class.getName());
        all.put("default.value.serde", Serdes.StringSerde.class.getName());
        all.putAll(more);
        KafkaStreams streams = new KafkaStreams(topology(), all);
        streams.start();
        running.put(name, streams);
        return streams;
    }

    /** Stops an instance. */
    void stop(String name) {
        check(running.remove(name).close(Duration.ofSeconds(30)), name + " does not stop");
    }

    /** Waits until that many instances run, and have all tasks between them. */
    StreamsGroupDescription settled(int instances) throws Exception {
        until(instances + " instances with all tasks", () -> {
            boolean run = running.values().stream().allMatch(streams -> streams.state() == KafkaStreams.State.RUNNING);
            StreamsGroupDescription group = exists() ? described() : null;
            return run && group != null && group.groupState().toString().equals("Stable") && group.members().size() == instances
                    && active(group) == 2 * PARTITIONS;
        });
        return described();
    }

    /** Whether a member has joined. */
    boolean exists() throws InterruptedException, ExecutionException {
        return admin.listGroups().all().get().stream().anyMatch(group -> group.groupId().equals(id));
    }

    StreamsGroupDescription described() throws InterruptedException, ExecutionException {
        return admin.describeStreamsGroups(List.of(id)).all().get().get(id);
    }

    static int active(StreamsGroupDescription group) {
        Set<String> tasks = new HashSet<>();
        group.members().forEach(member -> tasks.addAll(tasks(member.assignment().activeTasks())));
        return tasks.size();
    }

    static List<String> tasks(Collection<TaskIds> ids) {
        return ids.stream().flatMap(of -> of.partitions().stream().map(index -> of.subtopologyId() + "_" + index)).toList();
    }

    static long membersWithTasks(StreamsGroupDescription group) {
        Stream<StreamsGroupMemberDescription> members = group.members().stream();
        return members.filter(member -> !member.assignment().activeTasks().isEmpty()).count();
    }

    /** A line of three words, the first of which is in every line. */
    static String line(int number) {
        return "all word" + number % 20 + " line" + number % 7;
    }

    /** Writes lines, and remembers how often each word is to be counted. */
    void write(int lines) {
        Map<String, Object> all = settings();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(all, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < lines; i++) {
                String line = line(i);
                Stream.of(line.split(" ")).forEach(word -> expected.merge(word, 1L, Long::sum));
                producer.send(new ProducerRecord<>(input, i % PARTITIONS, "k" + i, line));
            }
        }
    }

    /** Reads totals until all are as expected, and returns how many there were. */
    int counted(String isolation) {
        Map<String, Object> all = settings();
        all.put("auto.offset.reset", "earliest");
        all.put("group.id", unique("reader"));
        all.put("isolation.level", isolation);
        Map<String, Long> totals = new HashMap<>();
        int read = 0;
        try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(all, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of(output));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!totals.equals(expected)) {
                check(System.nanoTime() < deadline, "counted " + totals + ", expected " + expected);
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    totals.merge(record.key(), record.value(), Long::max);
                    read++;
                }
            }
        }
        return read;
    }

    @Override
    public void close() {
        List.copyOf(running.keySet()).forEach(this::stop);
        admin.close(Duration.ofSeconds(5));
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted((one, other) -> other.compareTo(one)).forEach(path -> path.toFile().delete());
        } catch (IOException failed) {
            System.err.println(failed);
        }
    }
}
