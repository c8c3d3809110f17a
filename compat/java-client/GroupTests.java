import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;

/** What the members of a group see, by the classic protocol: commits, rebalances, static members. */
final class GroupTests extends Clients {
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";

    /** The partitions that a member gained and lost, in order. */
    private static final class Changes implements ConsumerRebalanceListener {
        final Collection<TopicPartition> gained = new ConcurrentLinkedQueue<>();
        final Collection<TopicPartition> lost = new ConcurrentLinkedQueue<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            gained.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            lost.addAll(partitions);
        }
    }

    public void commitAndCommittedWithMetadata() throws Exception {
        String topic = newTopic("commit", 2);
        TopicPartition partition = new TopicPartition(topic, 1);
        String group = unique("commit");
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
            consumer.assign(Set.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7, "a note")));
            equal(new OffsetAndMetadata(7, "a note"), consumer.committed(Set.of(partition)).get(partition));
            check(consumer.committed(Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0)) == null, "nothing");
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
            consumer.assign(Set.of(partition));
            equal(7L, consumer.position(partition));
        }
    }

    public void autoCommitOnClose() throws Exception {
        String topic = newTopic("auto", 1);
        String group = unique("auto");
        fill(topic, List.of("a", "b", "c"));
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group, "max.poll.records", 2)) {
            consumer.subscribe(List.of(topic));
            take(consumer, 2);
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            equal("c", take(consumer, 1).get(0).value());
        }
    }

    public void eachAssignorSharesThePartitions() throws Exception {
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")) {
            String topic = newTopic("assignor", 4);
            Object[] settings = {"group.id", unique("assignor"), "partition.assignment.strategy", ASSIGNORS + assignor};
            try (KafkaConsumer<String, String> second = consumer(settings)) {
                try (KafkaConsumer<String, String> first = consumer(settings)) {
                    first.subscribe(List.of(topic));
                    share(4, first);
                    second.subscribe(List.of(topic));
                    share(4, first, second);
                }
                share(4, second);
            }
        }
    }

    public void cooperativeRebalanceKeepsWhatNeedNotMove() throws Exception {
        String topic = newTopic("cooperative", 4);
        Object[] settings = {"group.id", unique("cooperative"), "partition.assignment.strategy", ASSIGNORS + "CooperativeStickyAssignor"};
        Changes changes = new Changes();
        try (KafkaConsumer<String, String> first = consumer(settings); KafkaConsumer<String, String> second = consumer(settings)) {
            first.subscribe(List.of(topic), changes);
            share(4, first);
            second.subscribe(List.of(topic));
            share(4, first, second);
            equal(2, changes.lost.size());
            equal(4, changes.gained.size());
        }
    }

    public void groupWithTwoAssignorsAgreesOnTheCommonOne() throws Exception {
        String topic = newTopic("common", 2);
        String group = unique("common");
        String range = ASSIGNORS + "RangeAssignor";
        String both = range + "," + ASSIGNORS + "CooperativeStickyAssignor";
        try (KafkaConsumer<String, String> first = consumer("group.id", group, "partition.assignment.strategy", both);
                KafkaConsumer<String, String> second = consumer("group.id", group, "partition.assignment.strategy", range)) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            share(2, first, second);
            equal("range", result(admin.describeConsumerGroups(List.of(group)).all()).get(group).partitionAssignor());
        }
    }

    public void staticMemberReturnsWithItsPartitions() throws Exception {
        String topic = newTopic("static", 2);
        String group = unique("static");
        Changes changes = new Changes();
        try (KafkaConsumer<String, String> stays = member(group, "stays")) {
            stays.subscribe(List.of(topic), changes);
            Set<TopicPartition> before;
            try (KafkaConsumer<String, String> leaves = member(group, "leaves")) {
                leaves.subscribe(List.of(topic));
                share(2, stays, leaves);
                before = new HashSet<>(leaves.assignment());
            }
            int lost = changes.lost.size();
            try (KafkaConsumer<String, String> returns = member(group, "leaves")) {
                returns.subscribe(List.of(topic));
                share(2, stays, returns);
                equal(before, returns.assignment());
            }
            equal(lost, changes.lost.size());
        }
    }

    public void staticMemberIsFencedByItsDouble() throws Exception {
        String topic = newTopic("fenced", 1);
        String group = unique("fenced");
        try (KafkaConsumer<String, String> first = member(group, "one"); KafkaConsumer<String, String> second = member(group, "one")) {
            first.subscribe(List.of(topic));
            share(1, first);
            second.subscribe(List.of(topic));
            until("the first fenced", () -> {
                second.poll(Duration.ofMillis(50));
                try {
                    first.poll(Duration.ofMillis(100));
                    return false;
                } catch (FencedInstanceIdException fenced) {
                    return true;
                }
            });
        }
    }

    public void memberRemovedByTheAdminLosesItsPlace() throws Exception {
        String topic = newTopic("removed", 2);
        String group = unique("removed");
        try (KafkaConsumer<String, String> first = member(group, "one"); KafkaConsumer<String, String> second = member(group, "two")) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            share(2, first, second);
            var one = new MemberToRemove("one");
            var options = new RemoveMembersFromConsumerGroupOptions(Set.of(one));
            result(admin.removeMembersFromConsumerGroup(group, options).all());
            share(2, second);
        }
    }

    public void commitOfALostMemberFails() throws Exception {
        String topic = newTopic("lost", 1);
        String group = unique("lost");
        fill(topic, List.of("a"));
        try (KafkaConsumer<String, String> slow = consumer("group.id", group, "max.poll.interval.ms", 6_000, "enable.auto.commit", false);
                KafkaConsumer<String, String> other = consumer("group.id", group)) {
            slow.subscribe(List.of(topic));
            take(slow, 1);
            other.subscribe(List.of(topic));
            share(1, other);
            try {
                slow.commitSync();
                throw new AssertionError("the commit went through");
            } catch (CommitFailedException expected) {
                check(expected.getMessage() != null, expected);
            }
        }
    }

    public void manyMembersAtOnce() throws Exception {
        String topic = newTopic("storm", 12);
        String group = unique("storm");
        everyOneGetsAPartition(topic, () -> consumer("group.id", group));
    }

    public void groupLosesAndDoublesNothingWhileMembersCome() throws Exception {
        String topic = newTopic("stream", 4);
        Object[] settings = {"group.id", unique("stream")};
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<String, String> first = consumer(settings); KafkaConsumer<String, String> second = consumer(settings);
                KafkaProducer<String, String> producer = producer()) {
            first.subscribe(List.of(topic));
            share(4, first);
            send(producer, IntStream.range(0, 1_000)
                    .mapToObj(number -> new ProducerRecord<String, String>(topic, number % 4, null, "" + number)).toList());
            second.subscribe(List.of(topic));
            until("1,000 records", () -> {
                for (KafkaConsumer<String, String> consumer : List.of(first, second)) {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> check(seen.add(record.value()), "twice: " + record));
                }
                return seen.size() == 1_000;
            });
        }
    }

    private static KafkaConsumer<String, String> member(String group, String instance) {
        return consumer("group.id", group, "group.instance.id", instance, "session.timeout.ms", 30_000);
    }
}
