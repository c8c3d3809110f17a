import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A share group under load while its brokers fail. Begins at once, prints how many records are accepted as it goes, ends
 * with its input, drains the group, and prints the audit. Usage: ShareOrdeal BOOTSTRAP PARTITIONS MEMBERS REPLICAS
 *
 * What a member has accepted, and whose acceptance the broker has confirmed, must not be delivered again. Every record that
 * the broker has confirmed must be delivered, until it is accepted; where the broker died before it could confirm an
 * acceptance, both may be.
 *
 * Among several brokers, one that was deposed without its knowledge may deliver what another has got accepted meanwhile. It
 * cannot confirm anything, so a delivery counts when its acknowledgement is confirmed. A single broker may not even deliver.
 */
public final class ShareOrdeal {
    private static final long QUIET_MS = 12_000;
    private static final long LOCK_MS = 3_000;

    private final String bootstrap;
    private final String topic = "ordeal";
    private final String group = "ordeal";
    private final short replicas;
    private volatile boolean producing = true;
    private volatile boolean consuming = true;
    private final Set<String> put = ConcurrentHashMap.newKeySet();
    private final Set<String> delivered = ConcurrentHashMap.newKeySet();
    private final Set<String> tried = ConcurrentHashMap.newKeySet();
    private final Map<String, Acceptance> accepted = new ConcurrentHashMap<>();
    private final Collection<String> violations = ConcurrentHashMap.newKeySet();
    private final AtomicInteger redelivered = new AtomicInteger();
    private final AtomicLong lastDelivery = new AtomicLong(System.nanoTime());

    /** A confirmed acceptance: the member's number and the time. */
    private record Acceptance(int member, long nanos) {
        /**
         * True if a delivery to this member must not be confirmed. Where a lock ended before the acknowledgement came, the
         * same member may have got the record a second time before: acknowledgements do not say which delivery they mean.
         */
        private boolean isViolatedBy(int next) {
            return next != member || System.nanoTime() - nanos > TimeUnit.MILLISECONDS.toNanos(LOCK_MS);
        }
    }

    private ShareOrdeal(String bootstrap, short replicas) {
        this.bootstrap = bootstrap;
        this.replicas = replicas;
    }

    private Map<String, Object> settings(Object... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "reconnect.backoff.max.ms", 200));
        for (int i = 0; i < settings.length; i += 2) {
            all.put((String) settings[i], settings[i + 1]);
        }
        return all;
    }

    public static void main(String[] args) throws Exception {
        ShareOrdeal ordeal = new ShareOrdeal(args[0], Short.parseShort(args[3]));
        ordeal.prepare(Integer.parseInt(args[1]));
        Thread producer = new Thread(ordeal::produce);
        producer.start();
        List<Thread> members = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            int number = i;
            members.add(new Thread(() -> ordeal.consume(number, new Random(number))));
        }
        members.forEach(Thread::start);
        System.out.println("begun");
        Thread progress = new Thread(ordeal::tell);
        progress.setDaemon(true);
        progress.start();
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).lines().forEach(line -> { });
        ordeal.producing = false;
        producer.join();
        while (System.nanoTime() - ordeal.lastDelivery.get() < TimeUnit.MILLISECONDS.toNanos(QUIET_MS)) {
            Thread.sleep(100);
        }
        ordeal.consuming = false;
        for (Thread member : members) {
            member.join(20_000);
        }
        ordeal.audit();
    }

    private void prepare(int partitions) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            try {
                admin.createTopics(List.of(new NewTopic(topic, partitions, replicas))).all().get(60, TimeUnit.SECONDS);
            } catch (ExecutionException failed) {
                // A controller that resigned meanwhile has made it, and did not answer.
                if (!(failed.getCause() instanceof TopicExistsException)) {
                    throw failed;
                }
            }
            List<AlterConfigOp> ops = new ArrayList<>();
            Map.of("share.auto.offset.reset", "earliest", "share.record.lock.duration.ms", Long.toString(LOCK_MS), "share.delivery.count.limit", "10")
                    .forEach((key, value) -> ops.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get(30, TimeUnit.SECONDS);
        }
    }

    private void tell() {
        while (true) {
            System.out.println("so far " + accepted.size());
            try {
                Thread.sleep(500);
            } catch (InterruptedException stopped) {
                return;
            }
        }
    }

    private void produce() {
        Map<String, Object> settings = settings("acks", "all", "delivery.timeout.ms", 120_000, "linger.ms", 5, "max.block.ms", 120_000);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (long number = 0; producing; number++) {
                String value = Long.toString(number);
                producer.send(new ProducerRecord<>(topic, value, value), (metadata, failed) -> {
                    if (failed == null) {
                        put.add(value);
                    }
                });
                if (number % 20 == 0) {
                    // A cluster fails for longer, and every record is remembered.
                    Thread.sleep(replicas == 1 ? 5 : 40);
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void consume(int number, Random random) {
        Map<String, Object> settings = settings("group.id", group, "share.acknowledgement.mode", "explicit", "max.poll.records", 50);
        try (KafkaShareConsumer<String, String> member = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            member.subscribe(List.of(topic));
            while (consuming) {
                try {
                    round(member, number, random);
                } catch (KafkaException failed) {
                    System.err.println("a member goes on after " + failed);
                }
            }
        }
    }

    private void round(KafkaShareConsumer<String, String> member, int number, Random random) {
        Map<Integer, List<String>> said = new HashMap<>();
        Map<Integer, List<String>> again = new HashMap<>();
        for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(200))) {
            String value = record.value();
            lastDelivery.set(System.nanoTime());
            Acceptance before = accepted.get(value);
            if (before != null && before.isViolatedBy(number)) {
                again.computeIfAbsent(record.partition(), none -> new ArrayList<>()).add(value + " was accepted by member "
                        + before.member() + " " + (System.nanoTime() - before.nanos()) / 1_000_000 + " ms before its delivery "
                        + record.deliveryCount().orElse((short) -1) + " to member " + number + " at " + record.partition()
                        + ":" + record.offset());
            }
            if (!delivered.add(value)) {
                redelivered.incrementAndGet();
            }
            boolean accepts = random.nextInt(20) > 0;
            member.acknowledge(record, accepts ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
            if (accepts) {
                tried.add(value);
                said.computeIfAbsent(record.partition(), none -> new ArrayList<>()).add(value);
            }
        }
        if (replicas == 1) {
            again.values().forEach(violations::addAll);
        }
        Map<TopicIdPartition, Optional<KafkaException>> outcome = member.commitSync();
        outcome.forEach((partition, failed) -> {
            if (failed.isEmpty()) {
                violations.addAll(again.getOrDefault(partition.partition(), List.of()));
                said.getOrDefault(partition.partition(), List.of()).forEach(value -> accepted.put(value, new Acceptance(number, System.nanoTime())));
            }
        });
    }

    private void audit() {
        List<String> lost = put.stream().filter(value -> !accepted.containsKey(value) && !tried.contains(value)).sorted().toList();
        System.out.printf("put %d, delivered %d, accepted %d, tried %d, redelivered %d%n",
                put.size(), delivered.size(), accepted.size(), tried.size(), redelivered.get());
        lost.stream().limit(10).forEach(value -> System.out.println("lost: " + value + (delivered.contains(value) ? ", after a delivery" : "")));
        violations.stream().limit(10).forEach(violation -> System.out.println("again: " + violation));
        System.out.println("audit " + (lost.isEmpty() && violations.isEmpty() ? "passed" : "failed: lost " + lost.size() + ", again " + violations.size()));
        Runtime.getRuntime().halt(0);
    }
}
