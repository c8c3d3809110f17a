import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;

/** What members of a group see by the consumer protocol (KIP-848), and administrators of such groups. */
final class ConsumerProtocolTests extends Clients {
    /** The partitions that a member lost. */
    private static final class Lost implements ConsumerRebalanceListener {
        final Collection<TopicPartition> partitions = new ConcurrentLinkedQueue<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> gained) {
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            partitions.addAll(revoked);
        }
    }

    /** Records that are written while members come and go: each is read, and none twice. */
    private static final class Stream implements AutoCloseable {
        private final String topic;
        private final int partitions;
        private final KafkaProducer<String, String> producer = producer();
        private final Set<String> seen = new HashSet<>();
        private int written;

        Stream(String topic, int partitions) {
            this.topic = topic;
            this.partitions = partitions;
        }

        @SafeVarargs
        final void passOn(KafkaConsumer<String, String>... readers) throws Exception {
            send(producer, IntStream.range(written, written + 400)
                    .mapToObj(number -> new ProducerRecord<String, String>(topic, number % partitions, null, "" + number)).toList());
            written += 400;
            until("all records, and a share for each", () -> {
                List<TopicPartition> held = new ArrayList<>();
                boolean each = true;
                for (KafkaConsumer<String, String> reader : readers) {
                    reader.poll(Duration.ofMillis(50)).forEach(record -> check(seen.add(record.value()), "twice: " + record));
                    held.addAll(reader.assignment());
                    each &= !reader.assignment().isEmpty();
                }
                return each && held.size() == partitions && Set.copyOf(held).size() == partitions && seen.size() == written;
            });
        }

        @Override
        public void close() {
            producer.close();
        }
    }

    public void consumerProtocolSharesThePartitionsByEachAssignor() throws Exception {
        for (String assignor : List.of("uniform", "range")) {
            String topic = newTopic("incremental", 4);
            String group = unique("incremental");
            try (KafkaConsumer<String, String> second = member(group, "group.remote.assignor", assignor)) {
                try (KafkaConsumer<String, String> first = member(group, "group.remote.assignor", assignor)) {
                    first.subscribe(List.of(topic));
                    share(4, first);
                    second.subscribe(List.of(topic));
                    share(4, first, second);
                    equal(assignor, describe(group).partitionAssignor());
                }
                share(4, second);
            }
        }
    }

    public void consumerProtocolMovesOnlyWhatItMust() throws Exception {
        String topic = newTopic("moves", 4);
        String group = unique("moves");
        Lost lost = new Lost();
        try (KafkaConsumer<String, String> first = member(group); KafkaConsumer<String, String> second = member(group)) {
            first.subscribe(List.of(topic), lost);
            share(4, first);
            second.subscribe(List.of(topic));
            share(4, first, second);
            equal(2, lost.partitions.size());
        }
    }

    public void consumerProtocolSharesEveryRecordOnce() throws Exception {
        String topic = newTopic("shares", 4);
        String group = unique("shares");
        try (Stream stream = new Stream(topic, 4); KafkaConsumer<String, String> stays = member(group)) {
            stays.subscribe(List.of(topic));
            stream.passOn(stays);
            try (KafkaConsumer<String, String> comes = member(group)) {
                comes.subscribe(List.of(topic));
                stream.passOn(stays, comes);
            }
            stream.passOn(stays);
        }
    }

    public void consumerProtocolCommitsAndResumes() throws Exception {
        String topic = newTopic("resumes", 1);
        String group = unique("resumes");
        TopicPartition partition = new TopicPartition(topic, 0);
        fill(topic, List.of("a", "b", "c"));
        try (KafkaConsumer<String, String> first = member(group, "max.poll.records", 2, "enable.auto.commit", false)) {
            first.subscribe(List.of(topic));
            take(first, 2);
            first.commitSync(Map.of(partition, new OffsetAndMetadata(2, "a note")));
            equal("a note", first.committed(Set.of(partition)).get(partition).metadata());
        }
        try (KafkaConsumer<String, String> second = member(group)) {
            second.subscribe(List.of(topic));
            equal("c", take(second, 1).get(0).value());
        }
    }

    public void consumerProtocolCommitOfALostMemberFails() throws Exception {
        String topic = newTopic("lost", 1);
        String group = unique("lost");
        fill(topic, List.of("a"));
        try (KafkaConsumer<String, String> slow = member(group, "max.poll.interval.ms", 6_000, "enable.auto.commit", false);
                KafkaConsumer<String, String> other = member(group)) {
            slow.subscribe(List.of(topic));
            take(slow, 1);
            other.subscribe(List.of(topic));
            share(1, other);
            try {
                slow.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
                throw new AssertionError("the commit went through");
            } catch (CommitFailedException expected) {
                check(expected.getMessage() != null, expected);
            }
        }
    }

    public void consumerProtocolStaticMemberReturnsWithItsPartitions() throws Exception {
        String topic = newTopic("returns", 2);
        String group = unique("returns");
        Lost lost = new Lost();
        try (KafkaConsumer<String, String> stays = member(group, "group.instance.id", "stays")) {
            stays.subscribe(List.of(topic), lost);
            Set<TopicPartition> before;
            try (KafkaConsumer<String, String> leaves = member(group, "group.instance.id", "leaves")) {
                leaves.subscribe(List.of(topic));
                share(2, stays, leaves);
                before = new HashSet<>(leaves.assignment());
            }
            int lostBefore = lost.partitions.size();
            try (KafkaConsumer<String, String> returns = member(group, "group.instance.id", "leaves")) {
                returns.subscribe(List.of(topic));
                share(2, stays, returns);
                equal(before, returns.assignment());
            }
            equal(lostBefore, lost.partitions.size());
        }
    }

    public void consumerProtocolRefusesTheDoubleOfAStaticMember() throws Exception {
        String topic = newTopic("double", 1);
        String group = unique("double");
        try (KafkaConsumer<String, String> first = member(group, "group.instance.id", "one");
                KafkaConsumer<String, String> twin = member(group, "group.instance.id", "one")) {
            first.subscribe(List.of(topic));
            share(1, first);
            twin.subscribe(List.of(topic));
            until("the double refused", () -> {
                first.poll(Duration.ofMillis(50));
                try {
                    twin.poll(Duration.ofMillis(100));
                    return false;
                } catch (UnreleasedInstanceIdException refused) {
                    return true;
                }
            });
            equal(1, first.assignment().size());
        }
    }

    public void consumerProtocolFollowsARegularExpression() throws Exception {
        String stem = unique("pattern");
        Set<String> topics = new HashSet<>(Set.of(newTopic(stem + "-0", 1), newTopic(stem + "-1", 1)));
        try (KafkaConsumer<String, String> reader = member(unique("pattern"), "metadata.max.age.ms", 1_000)) {
            reader.subscribe(new SubscriptionPattern(stem + "-[0-9]-.*"));
            until("both topics", () -> holds(reader, topics));
            newTopic(stem + "-x", 1);
            topics.add(newTopic(stem + "-2", 1));
            until("the topic that was created later", () -> holds(reader, topics));
            reader.subscribe(new SubscriptionPattern(stem + "-x-.*"));
            until("another expression", () -> {
                reader.poll(Duration.ofMillis(100));
                return reader.assignment().stream().map(TopicPartition::topic).allMatch(topic -> topic.startsWith(stem + "-x"))
                        && reader.assignment().size() == 1;
            });
        }
    }

    public void consumerProtocolRefusesAMalformedRegularExpression() throws Exception {
        try (KafkaConsumer<String, String> reader = member(unique("malformed"))) {
            reader.subscribe(new SubscriptionPattern("orders-(["));
            until("an error", () -> {
                try {
                    reader.poll(Duration.ofMillis(200));
                    return false;
                } catch (InvalidRegularExpression refused) {
                    return true;
                }
            });
        }
    }

    public void consumerProtocolSeesNewTopicsAndPartitions() throws Exception {
        String topic = newTopic("grows", 1);
        String later = unique("later");
        try (KafkaConsumer<String, String> reader = member(unique("grows"), "metadata.max.age.ms", 1_000,
                "allow.auto.create.topics", false)) {
            reader.subscribe(List.of(topic, later));
            share(1, reader);
            result(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
            share(3, reader);
            result(admin.createTopics(List.of(new NewTopic(later, 2, (short) 1))).all());
            share(5, reader);
            result(admin.deleteTopics(List.of(topic)).all());
            share(2, reader);
        }
    }

    public void consumerProtocolMigratesAndReturnsWhileMembersRun() throws Exception {
        for (String assignor : List.of("RangeAssignor", "CooperativeStickyAssignor")) {
            String topic = newTopic("migrates", 4);
            String group = unique("migrates");
            Object[] classic = {"group.id", group, "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor};
            try (Stream stream = new Stream(topic, 4); KafkaConsumer<String, String> returned = consumer(classic)) {
                try (KafkaConsumer<String, String> modern = member(group)) {
                    try (KafkaConsumer<String, String> old = consumer(classic)) {
                        old.subscribe(List.of(topic));
                        stream.passOn(old);
                        equal(GroupType.CLASSIC, describe(group).type());
                        modern.subscribe(List.of(topic));
                        stream.passOn(old, modern);
                        equal(GroupType.CONSUMER, describe(group).type());
                        Set<Boolean> upgraded = describe(group).members().stream().map(member -> member.upgraded().orElseThrow())
                                .collect(Collectors.toSet());
                        equal(Set.of(true, false), upgraded);
                    }
                    stream.passOn(modern);
                    returned.subscribe(List.of(topic));
                    stream.passOn(modern, returned);
                }
                stream.passOn(returned);
                until("a classic group", () -> describe(group).type() == GroupType.CLASSIC);
                stream.passOn(returned);
            }
        }
    }

    public void consumerProtocolGroupsAreListedAndDescribed() throws Exception {
        String topic = newTopic("described", 2);
        String group = unique("described");
        try (KafkaConsumer<String, String> reader = member(group, "client.id", "reader-" + group, "group.instance.id", "instance-one",
                "client.rack", "rack-a")) {
            reader.subscribe(List.of(topic));
            share(2, reader);
            until("a stable group", () -> describe(group).groupState() == GroupState.STABLE);
            ConsumerGroupDescription found = describe(group);
            equal(GroupType.CONSUMER, found.type());
            equal("uniform", found.partitionAssignor());
            check(found.groupEpoch().orElse(0) > 0, found);
            equal(found.groupEpoch(), found.targetAssignmentEpoch());
            MemberDescription member = found.members().iterator().next();
            equal("reader-" + group, member.clientId());
            equal("instance-one", member.groupInstanceId().orElseThrow());
            equal(found.groupEpoch(), member.memberEpoch());
            equal(true, member.upgraded().orElseThrow());
            Set<TopicPartition> both = Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            equal(both, member.assignment().topicPartitions());
            equal(both, member.targetAssignment().orElseThrow().topicPartitions());
            check(listed(GroupType.CONSUMER).contains(group), "not listed as a consumer group");
            check(!listed(GroupType.CLASSIC).contains(group), "listed as a classic group");
        }
    }

    public void consumerProtocolGroupsAreResetAndDeletedWhenEmpty() throws Exception {
        String topic = newTopic("reset", 1);
        String group = unique("reset");
        Map<TopicPartition, OffsetAndMetadata> wanted = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
        fill(topic, List.of("a", "b"));
        try (KafkaConsumer<String, String> reader = member(group)) {
            reader.subscribe(List.of(topic));
            take(reader, 2);
            fails(UnknownMemberIdException.class, admin.alterConsumerGroupOffsets(group, wanted).all());
            fails(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(group)).all());
        }
        until("an empty group", () -> describe(group).groupState() == GroupState.EMPTY);
        result(admin.alterConsumerGroupOffsets(group, wanted).all());
        try (KafkaConsumer<String, String> reader = member(group)) {
            reader.subscribe(List.of(topic));
            equal("b", take(reader, 1).get(0).value());
        }
        until("an empty group", () -> describe(group).groupState() == GroupState.EMPTY);
        result(admin.deleteConsumerGroups(List.of(group)).all());
        check(!listed(GroupType.CONSUMER).contains(group), "still listed");
    }

    public void consumerProtocolManyMembersAtOnce() throws Exception {
        String topic = newTopic("crowd", 12);
        String group = unique("crowd");
        everyOneGetsAPartition(topic, () -> member(group));
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        return result(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    private Set<String> listed(GroupType type) throws Exception {
        var options = new ListGroupsOptions().withTypes(Set.of(type));
        return result(admin.listGroups(options).all()).stream().map(GroupListing::groupId).collect(Collectors.toSet());
    }

    private static boolean holds(KafkaConsumer<String, String> reader, Set<String> topics) {
        reader.poll(Duration.ofMillis(100));
        return reader.assignment().stream().map(TopicPartition::topic).collect(Collectors.toSet()).equals(topics);
    }

    /** A member by the consumer protocol, where the broker sets the times of sessions and heartbeats. */
    private static KafkaConsumer<String, String> member(String group, Object... settings) {
        Object[] all = new Object[settings.length + 4];
        System.arraycopy(new Object[] {"group.id", group, "group.protocol", "consumer"}, 0, all, 0, 4);
        System.arraycopy(settings, 0, all, 4, settings.length);
        return consumer(all);
    }
}
