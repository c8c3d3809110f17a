import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What the members of a share group see (KIP-932). */
final class ShareTests extends Clients {
    /** A group that begins at the first record, with these settings. */
    private String group(String stem, String... settings) throws Exception {
        String group = unique(stem);
        List<AlterConfigOp> ops = new ArrayList<>();
        Map<String, String> all = new HashMap<>(Map.of("share.auto.offset.reset", "earliest"));
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        all.forEach((key, value) -> ops.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        result(admin.incrementalAlterConfigs(Map.of(resource, ops)).all());
        return group;
    }

    private static KafkaShareConsumer<String, String> member(String group, String topic, Object... settings) {
        Map<String, Object> all = new HashMap<>(SECURITY);
        all.put("bootstrap.servers", BOOTSTRAP);
        all.put("group.id", group);
        all.put("share.acknowledgement.mode", "explicit");
        for (int i = 0; i < settings.length; i += 2) {
            all.put((String) settings[i], settings[i + 1]);
        }
        KafkaShareConsumer<String, String> member =
                new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(topic));
        return member;
    }

    /** The next records of a member, in one poll. */
    private static List<ConsumerRecord<String, String>> next(KafkaShareConsumer<String, String> member) {
        return next(member, 30_000);
    }

    private static List<ConsumerRecord<String, String>> next(KafkaShareConsumer<String, String> member, long within) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(within);
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        while (found.isEmpty() && System.nanoTime() < deadline) {
            member.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        return found;
    }

    /** Settles all records, and checks that this succeeds. */
    private static void settle(KafkaShareConsumer<String, String> member, Collection<ConsumerRecord<String, String>> records,
            Function<ConsumerRecord<String, String>, AcknowledgeType> type) {
        records.forEach(record -> member.acknowledge(record, type.apply(record)));
        commit(member);
    }

    private static void commit(KafkaShareConsumer<String, String> member) {
        Map<TopicIdPartition, Optional<KafkaException>> outcome = member.commitSync();
        check(outcome.values().stream().allMatch(Optional::isEmpty), outcome);
    }

    private static List<String> numbers(int from, int to) {
        return IntStream.range(from, to).mapToObj(Integer::toString).toList();
    }

    /** Reads and accepts until that many records are there; returns how often each value was seen. */
    @SafeVarargs
    private static Map<String, Long> drain(int count, KafkaShareConsumer<String, String>... members) {
        List<String> seen = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (seen.size() < count) {
            check(System.nanoTime() < deadline, seen.size() + " of " + count + " records within 40 s");
            for (KafkaShareConsumer<String, String> member : members) {
                ConsumerRecords<String, String> records = member.poll(Duration.ofMillis(100));
                records.forEach(record -> {
                    seen.add(record.value());
                    member.acknowledge(record, AcknowledgeType.ACCEPT);
                });
                commit(member);
            }
        }
        return seen.stream().collect(Collectors.groupingBy(Function.identity(), TreeMap::new, Collectors.counting()));
    }

    public void membersShareThePartitionsAndEachRecordIsSeenOnce() throws Exception {
        String topic = newTopic("share", 3);
        String group = group("share");
        try (KafkaProducer<String, String> producer = producer()) {
            send(producer, numbers(0, 3000).stream().map(value -> new ProducerRecord<String, String>(topic, null, value)).toList());
        }
        try (KafkaShareConsumer<String, String> first = member(group, topic);
                KafkaShareConsumer<String, String> second = member(group, topic);
                KafkaShareConsumer<String, String> third = member(group, topic);
                KafkaShareConsumer<String, String> fourth = member(group, topic)) {
            Map<String, Long> seen = drain(3000, first, second, third, fourth);
            equal(3000, seen.size());
            check(seen.values().stream().allMatch(times -> times == 1), seen);
            equal(0, next(first, 1500).size());
        }
    }

    public void implicitAcknowledgementAcceptsWithTheNextPoll() throws Exception {
        String topic = newTopic("implicit", 1);
        String group = group("implicit");
        fill(topic, numbers(0, 50));
        try (KafkaShareConsumer<String, String> member = member(group, topic, "share.acknowledgement.mode", "implicit")) {
            int seen = 0;
            while (seen < 50) {
                seen += next(member).size();
            }
            commit(member);
        }
        fill(topic, List.of("more"));
        try (KafkaShareConsumer<String, String> member = member(group, topic)) {
            equal("more", next(member).get(0).value());
        }
    }

    public void releasedRecordsComeAgainAndRejectedOnesDoNot() throws Exception {
        String topic = newTopic("release", 1);
        fill(topic, numbers(0, 10));
        try (KafkaShareConsumer<String, String> member = member(group("release"), topic)) {
            List<ConsumerRecord<String, String>> records = next(member);
            equal(10, records.size());
            settle(member, records, record -> switch ((int) record.offset() % 3) {
                case 0 -> AcknowledgeType.ACCEPT;
                case 1 -> AcknowledgeType.RELEASE;
                default -> AcknowledgeType.REJECT;
            });
            Map<String, Integer> again = new TreeMap<>();
            while (again.size() < 3) {
                List<ConsumerRecord<String, String>> more = next(member);
                more.forEach(record -> again.put(record.value(), (int) (short) record.deliveryCount().orElseThrow()));
                settle(member, more, record -> AcknowledgeType.ACCEPT);
            }
            equal(Map.of("1", 2, "4", 2, "7", 2), again);
            equal(0, next(member, 1500).size());
        }
    }

    public void recordsAreDeliveredAsOftenAsTheLimitAllows() throws Exception {
        String topic = newTopic("limit", 1);
        fill(topic, List.of("poison"));
        try (KafkaShareConsumer<String, String> member = member(group("limit", "share.delivery.count.limit", "3"), topic)) {
            for (short delivery = 1; delivery <= 3; delivery++) {
                List<ConsumerRecord<String, String>> records = next(member);
                equal(1, records.size());
                equal(Optional.of(delivery), records.get(0).deliveryCount());
                settle(member, records, record -> AcknowledgeType.RELEASE);
            }
            equal(0, next(member, 1500).size());
            fill(topic, List.of("next"));
            equal("next", next(member).get(0).value());
        }
    }

    public void lockEndsAndAnotherMemberGetsTheRecords() throws Exception {
        String topic = newTopic("lock", 1);
        String group = group("lock", "share.record.lock.duration.ms", "5000");
        fill(topic, numbers(0, 5));
        try (KafkaShareConsumer<String, String> slow = member(group, topic); KafkaShareConsumer<String, String> other = member(group, topic)) {
            List<ConsumerRecord<String, String>> records = next(slow);
            equal(5, records.size());
            long acquired = System.nanoTime();
            List<ConsumerRecord<String, String>> again = next(other);
            long waited = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - acquired);
            check(waited >= 4000 && waited < 20000, waited + " ms");
            equal(5, again.size());
            equal(Optional.of((short) 2), again.get(0).deliveryCount());
            records.forEach(record -> slow.acknowledge(record, AcknowledgeType.ACCEPT));
            Map<TopicIdPartition, Optional<KafkaException>> late = slow.commitSync();
            check(late.values().stream().allMatch(Optional::isPresent), "too late: " + late);
            settle(other, again, record -> AcknowledgeType.ACCEPT);
        }
    }

    public void renewedLockLastsLonger() throws Exception {
        String topic = newTopic("renew", 1);
        String group = group("renew", "share.record.lock.duration.ms", "3000");
        fill(topic, List.of("long"));
        try (KafkaShareConsumer<String, String> slow = member(group, topic); KafkaShareConsumer<String, String> other = member(group, topic)) {
            List<ConsumerRecord<String, String>> records = next(slow);
            for (int round = 0; round < 4; round++) {
                equal(0, next(other, 1500).size());
                settle(slow, records, record -> AcknowledgeType.RENEW);
                slow.poll(Duration.ofMillis(10));
            }
            settle(slow, records, record -> AcknowledgeType.ACCEPT);
            equal(0, next(other, 4000).size());
        }
    }

    public void closedMemberGivesBackWhatItHas() throws Exception {
        String topic = newTopic("close", 1);
        String group = group("close");
        fill(topic, numbers(0, 10));
        try (KafkaShareConsumer<String, String> stays = member(group, topic)) {
            try (KafkaShareConsumer<String, String> leaves = member(group, topic)) {
                List<ConsumerRecord<String, String>> records = next(leaves);
                equal(10, records.size());
                settle(leaves, records.subList(0, 4), record -> AcknowledgeType.ACCEPT);
            }
            List<String> rest = new ArrayList<>();
            while (rest.size() < 6) {
                List<ConsumerRecord<String, String>> records = next(stays, 10_000);
                check(!records.isEmpty(), rest);
                rest.addAll(values(records));
                settle(stays, records, record -> AcknowledgeType.ACCEPT);
            }
            equal(numbers(4, 10), rest.stream().sorted().toList());
        }
    }

    public void recordLimitIsKept() throws Exception {
        String topic = newTopic("few", 1);
        fill(topic, numbers(0, 20), "linger.ms", 200);
        Object[] settings = {"share.acquire.mode", "record_limit", "max.poll.records", 3};
        try (KafkaShareConsumer<String, String> member = member(group("few"), topic, settings)) {
            List<String> seen = new ArrayList<>();
            while (seen.size() < 20) {
                List<ConsumerRecord<String, String>> records = next(member);
                check(records.size() <= 3, records.size());
                seen.addAll(values(records));
                settle(member, records, record -> AcknowledgeType.ACCEPT);
            }
            equal(numbers(0, 20), seen);
        }
    }

    public void groupBeginsWhereItsSettingsSay() throws Exception {
        String topic = newTopic("reset", 1);
        fill(topic, List.of("old"));
        String group = group("reset", "share.auto.offset.reset", "latest");
        try (KafkaShareConsumer<String, String> latest = member(group, topic)) {
            // When it has its partition, and so where the group begins, shows only once a record comes.
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            for (int round = 0; round < 40 && records.isEmpty(); round++) {
                fill(topic, List.of("new"));
                records = next(latest, 500);
            }
            check(!records.isEmpty() && values(records).stream().allMatch("new"::equals), values(records));
        }
        try (KafkaShareConsumer<String, String> hour = member(group("reset", "share.auto.offset.reset", "by_duration:PT1H"), topic)) {
            equal("old", next(hour).get(0).value());
        }
    }

    public void abortedRecordsAreSeenByThoseThatWantThemOnly() throws Exception {
        String topic = newTopic("isolation", 1);
        try (KafkaProducer<String, String> producer = producer("transactional.id", unique("isolation"))) {
            producer.initTransactions();
            for (String outcome : List.of("aborted", "committed")) {
                producer.beginTransaction();
                send(producer, IntStream.range(0, 3).mapToObj(i -> new ProducerRecord<String, String>(topic, outcome + i)).toList());
                if (outcome.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        fill(topic, List.of("plain"));
        try (KafkaShareConsumer<String, String> committed = member(group("committed", "share.isolation.level", "read_committed"), topic)) {
            equal(List.of("committed0", "committed1", "committed2", "plain"), List.copyOf(drain(4, committed).keySet()));
            equal(0, next(committed, 1000).size());
        }
        try (KafkaShareConsumer<String, String> all = member(group("uncommitted"), topic)) {
            equal(7, drain(7, all).size());
        }
    }

    public void deletedRecordsAreNotWaitedFor() throws Exception {
        String topic = newTopic("deleted", 1);
        String group = group("deleted");
        fill(topic, numbers(0, 10));
        try (KafkaShareConsumer<String, String> member = member(group, topic)) {
            List<ConsumerRecord<String, String>> records = next(member);
            equal(10, records.size());
            settle(member, records, record -> AcknowledgeType.RELEASE);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        result(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7))).all());
        try (KafkaShareConsumer<String, String> member = member(group, topic)) {
            equal(numbers(7, 10), List.copyOf(drain(3, member).keySet()));
        }
    }

    public void topicsThatAppearLaterAreRead() throws Exception {
        String topic = unique("later");
        try (KafkaShareConsumer<String, String> member = member(group("later"), topic, "allow.auto.create.topics", false, "metadata.max.age.ms", 500)) {
            equal(0, next(member, 1000).size());
            admin.createTopics(List.of(new org.apache.kafka.clients.admin.NewTopic(topic, 1, (short) 1))).all().get(20, TimeUnit.SECONDS);
            fill(topic, List.of("first"));
            equal(List.of("first"), values(next(member)));
        }
    }

    public void manyRecordsOneByOne() throws Exception {
        String topic = newTopic("single", 1);
        fill(topic, numbers(0, 300));
        try (KafkaShareConsumer<String, String> member = member(group("single"), topic)) {
            List<String> seen = new ArrayList<>();
            while (seen.size() < 300) {
                for (ConsumerRecord<String, String> record : next(member)) {
                    seen.add(record.value());
                    settle(member, List.of(record), one -> AcknowledgeType.ACCEPT);
                }
            }
            equal(300, Map.copyOf(seen.stream().collect(Collectors.toMap(Function.identity(), Function.identity()))).size());
        }
    }
}
