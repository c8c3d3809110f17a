import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Clients of the broker under test, and common steps of the tests. Settings are passed as key, value, key, value. */
abstract class Clients extends Suite {
    protected final Admin admin = Admin.create(settings());

    protected static KafkaProducer<String, String> producer(Object... settings) {
        Map<String, Object> all = settings(settings);
        all.putIfAbsent("delivery.timeout.ms", 30_000);
        all.putIfAbsent("request.timeout.ms", 10_000);
        all.putIfAbsent("linger.ms", 2);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    protected static KafkaConsumer<String, String> consumer(Object... settings) {
        Map<String, Object> all = settings(settings);
        all.putIfAbsent("group.id", unique("group"));
        all.putIfAbsent("auto.offset.reset", "earliest");
        // By the consumer protocol the broker sets them.
        if (!"consumer".equals(all.get("group.protocol"))) {
            all.putIfAbsent("session.timeout.ms", 6_000);
            all.putIfAbsent("heartbeat.interval.ms", 500);
        }
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private static Map<String, Object> settings(Object... settings) {
        Map<String, Object> all = new HashMap<>(SECURITY);
        all.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < settings.length; i += 2) {
            all.put((String) settings[i], settings[i + 1]);
        }
        return all;
    }

    /** Creates a topic with a unique name, and waits until a producer would find its leaders. */
    protected String newTopic(String stem, int partitions, String... configs) throws Exception {
        String topic = unique(stem);
        Map<String, String> map = new HashMap<>();
        for (int i = 0; i < configs.length; i += 2) {
            map.put(configs[i], configs[i + 1]);
        }
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(map))).all().get(20, TimeUnit.SECONDS);
        until("metadata of " + topic, () -> admin.listTopics().names().get().contains(topic));
        return topic;
    }

    /** Produces the values to partition 0, waits for all, and returns their metadata. */
    protected static List<RecordMetadata> fill(String topic, Collection<String> values, Object... settings) throws Exception {
        try (KafkaProducer<String, String> producer = producer(settings)) {
            return send(producer, values.stream().map(value -> new ProducerRecord<String, String>(topic, 0, null, value)).toList());
        }
    }

    protected static List<RecordMetadata> send(KafkaProducer<String, String> producer,
            Collection<ProducerRecord<String, String>> records) throws Exception {
        List<Future<RecordMetadata>> sent = records.stream().map(producer::send).toList();
        producer.flush();
        List<RecordMetadata> acknowledged = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            acknowledged.add(each.get(30, TimeUnit.SECONDS));
        }
        return acknowledged;
    }

    /** That many records of a partition from an offset on. */
    protected static List<ConsumerRecord<String, String>> read(String topic, long offset, int count, Object... settings) {
        try (KafkaConsumer<String, String> consumer = consumer(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Set.of(partition));
            consumer.seek(partition, offset);
            return take(consumer, count);
        }
    }

    protected static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    /** The next records of a consumer, at least that many. */
    protected static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (records.size() < count) {
            check(System.nanoTime() < deadline, records.size() + " of " + count + " records within 30 s");
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    /** Polls the consumers in turn until they share that many partitions, each at least one. */
    @SafeVarargs
    protected static void share(int partitions, KafkaConsumer<String, String>... consumers) throws Exception {
        List<KafkaConsumer<String, String>> members = List.of(consumers);
        until("an assignment of every partition", () -> {
            members.forEach(member -> member.poll(Duration.ofMillis(50)));
            List<TopicPartition> held = members.stream().flatMap(member -> member.assignment().stream()).toList();
            return held.size() == partitions && Set.copyOf(held).size() == partitions
                    && members.stream().noneMatch(member -> member.assignment().isEmpty());
        });
    }

    /** Twelve members come at once to a topic of twelve partitions. */
    protected static void everyOneGetsAPartition(String topic, Supplier<KafkaConsumer<String, String>> member) throws Exception {
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        try {
            for (int i = 0; i < 12; i++) {
                KafkaConsumer<String, String> next = member.get();
                next.subscribe(List.of(topic));
                members.add(next);
            }
            Map<Integer, Integer> owners = new HashMap<>();
            until("twelve owners", () -> {
                owners.clear();
                for (int i = 0; i < 12; i++) {
                    members.get(i).poll(Duration.ofMillis(20));
                    int index = i;
                    members.get(i).assignment().forEach(partition -> owners.put(partition.partition(), index));
                }
                return owners.size() == 12 && new HashSet<>(owners.values()).size() == 12;
            });
        } finally {
            members.forEach(KafkaConsumer::close);
        }
    }

    /** The result of a future that must succeed. */
    protected static <T> T result(Future<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }

    /** Checks that a future fails with an exception of that kind, and returns it. */
    protected static <E extends KafkaException> E fails(Class<E> kind, Future<?> future) throws Exception {
        try {
            throw new AssertionError("expected " + kind.getSimpleName() + ", got " + future.get(30, TimeUnit.SECONDS));
        } catch (ExecutionException failed) {
            check(kind.isInstance(failed.getCause()), "expected " + kind.getSimpleName() + ", got " + failed.getCause());
            return kind.cast(failed.getCause());
        }
    }
}
