import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;

/** What the instances of an application see as members of a streams group. */
final class StreamsTests extends Suite {
    public void twoInstancesShareTheTasks() throws Exception {
        try (Application words = new Application()) {
            words.start("one");
            words.start("two");
            StreamsGroupDescription group = words.settled(2);
            equal(2L, Application.membersWithTasks(group));
            words.write(300);
            words.counted("read_uncommitted");
            Set<String> topics = words.admin.listTopics().names().get();
            check(topics.contains(words.id + "-counts-changelog") && topics.contains(words.id + "-counts-repartition"), topics);
            List<GroupListing> listed = words.admin.listGroups().all().get().stream()
                    .filter(listing -> listing.groupId().equals(words.id)).toList();
            equal(GroupType.STREAMS, listed.get(0).type().orElseThrow());
            equal(2, group.subtopologies().size());
        }
    }

    public void anInstanceThatRestartsFindsItsTasks() throws Exception {
        try (Application words = new Application()) {
            words.start("one");
            words.start("two");
            words.settled(2);
            words.write(200);
            words.counted("read_uncommitted");
            words.stop("two");
            words.write(200);
            StreamsGroupDescription alone = words.settled(1);
            equal(2 * Application.PARTITIONS, Application.active(alone));
            words.counted("read_uncommitted");
            words.start("two");
            equal(2L, Application.membersWithTasks(words.settled(2)));
            words.write(200);
            words.counted("read_uncommitted");
        }
    }

    public void exactlyOnceCountsEveryWordOnce() throws Exception {
        try (Application words = new Application("processing.guarantee", "exactly_once_v2")) {
            words.start("one");
            words.start("two");
            words.settled(2);
            words.write(300);
            words.stop("one");
            words.write(300);
            words.start("one");
            words.settled(2);
            words.write(300);
            words.counted("read_committed");
        }
    }

    public void standbysCopyTheState() throws Exception {
        try (Application words = new Application()) {
            words.configure("streams.num.standby.replicas", "1");
            words.start("one");
            words.start("two");
            words.write(100);
            until("a standby of every task with state", () -> {
                if (!words.exists()) {
                    return false;
                }
                StreamsGroupDescription group = words.described();
                Set<String> standbys = new HashSet<>();
                for (StreamsGroupMemberDescription member : group.members()) {
                    List<String> active = Application.tasks(member.assignment().activeTasks());
                    List<String> standby = Application.tasks(member.assignment().standbyTasks());
                    if (standby.stream().anyMatch(active::contains)) {
                        return false;
                    }
                    standbys.addAll(standby);
                }
                return standbys.size() == Application.PARTITIONS;
            });
            words.settled(2);
            words.counted("read_uncommitted");
        }
    }

    public void queriesFindTheInstanceWithTheKey() throws Exception {
        try (Application words = new Application()) {
            // Kafka 4.3.1 fails on members with an endpoint as long as its coordinator does not see their topics.
            Thread.sleep(2_000);
            KafkaStreams one = words.start("one", 1);
            KafkaStreams two = words.start("two", 2);
            words.settled(2);
            words.write(60);
            words.counted("read_uncommitted");
            for (String word : List.of("all", "word1", "line3")) {
                until("one answer for " + word, () -> {
                    Set<Integer> ports = new HashSet<>();
                    for (KafkaStreams instance : List.of(one, two)) {
                        KeyQueryMetadata found = instance.queryMetadataForKey(Application.STORE, word, new StringSerializer());
                        if (found.equals(KeyQueryMetadata.NOT_AVAILABLE)) {
                            return false;
                        }
                        ports.add(found.activeHost().port());
                    }
                    return ports.size() == 1;
                });
            }
            until("stores of both", () -> one.streamsMetadataForStore(Application.STORE).size() == 2);
        }
    }

    public void aGroupWithoutItsSourceTopicWaits() throws Exception {
        try (Application words = new Application()) {
            words.admin.deleteTopics(List.of(words.input)).all().get();
            until("no topic", () -> !words.admin.listTopics().names().get().contains(words.input));
            KafkaStreams one = words.start("one");
            until("a group that is not ready, and an instance that gives up", () -> words.exists()
                    && words.described().groupState().toString().matches("NotReady|Empty")
                    && one.state() == KafkaStreams.State.ERROR);
        }
    }

    public void anEmptyGroupIsDeleted() throws Exception {
        try (Application words = new Application()) {
            words.start("one");
            words.settled(1);
            words.write(30);
            words.counted("read_uncommitted");
            words.stop("one");
            until("an empty group", () -> words.described().groupState().toString().equals("Empty"));
            check(words.offsets().size() >= Application.PARTITIONS, words.offsets());
            words.admin.deleteStreamsGroups(List.of(words.id)).all().get();
            until("no group", () -> !words.exists());
        }
    }
}
