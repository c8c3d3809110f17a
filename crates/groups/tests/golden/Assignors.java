import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Lets Kafka's assignors decide about the groups on standard input, for src/group/assignor/tests/kafka.rs:
 *
 *     java -cp "$(compat/kafka-jars/fetch)" crates/groups/tests/golden/Assignors.java
 *
 * A group is `group ASSIGNOR TYPE`, then lines `topic ID COUNT` and `member ID INSTANCE TOPICS ASSIGNED`, then `end`. Topics are
 * separated by commas; an assignment is `ID:0,1;ID:2`; a dash stands for nothing. The answer is a line `ID ASSIGNED` for each
 * member with partitions, then `end`.
 */
public class Assignors {
    private static final Map<String, PartitionAssignor> ASSIGNORS =
        Map.of("uniform", new UniformAssignor(), "range", new RangeAssignor(), "simple", new SimpleAssignor());

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        PartitionAssignor assignor = null;
        SubscriptionType type = null;
        Map<Uuid, Integer> topics = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        // The assignors number members in the order of this map.
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "group":
                    assignor = ASSIGNORS.get(words[1]);
                    type = SubscriptionType.valueOf(words[2]);
                    topics = new HashMap<>();
                    owners = new HashMap<>();
                    members = new LinkedHashMap<>();
                    break;
                case "topic":
                    topics.put(Uuid.fromString(words[1]), Integer.parseInt(words[2]));
                    break;
                case "member":
                    Optional<String> instance = words[2].equals("-") ? Optional.empty() : Optional.of(words[2]);
                    Map<Uuid, Set<Integer>> assigned = assignment(words[4]);
                    for (Map.Entry<Uuid, Set<Integer>> topic : assigned.entrySet()) {
                        Map<Integer, String> of = owners.computeIfAbsent(topic.getKey(), id -> new HashMap<>());
                        topic.getValue().forEach(partition -> of.put(partition, words[1]));
                    }
                    members.put(words[1], new MemberSubscriptionAndAssignmentImpl(
                        Optional.empty(), instance, ids(words[3]), new Assignment(Collections.unmodifiableMap(assigned))));
                    break;
                default:
                    answer(out, assignor, new GroupSpecImpl(members, type, owners), topics);
            }
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static Set<Uuid> ids(String text) {
        Set<Uuid> ids = new TreeSet<>();
        for (String id : text.equals("-") ? new String[0] : text.split(",")) {
            ids.add(Uuid.fromString(id));
        }
        return ids;
    }

    private static Map<Uuid, Set<Integer>> assignment(String text) {
        Map<Uuid, Set<Integer>> assignment = new TreeMap<>();
        for (String topic : text.equals("-") ? new String[0] : text.split(";")) {
            String[] parts = topic.split(":");
            Set<Integer> partitions = new TreeSet<>();
            for (String partition : parts[1].split(",")) {
                partitions.add(Integer.parseInt(partition));
            }
            assignment.put(Uuid.fromString(parts[0]), partitions);
        }
        return assignment;
    }

    private static void answer(StringBuilder out, PartitionAssignor assignor, GroupSpecImpl group, Map<Uuid, Integer> topics) {
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return topics.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                throw new IllegalStateException("No assignor of Kafka 4.3.1 reads racks.");
            }
        };
        assignor.assign(group, describer).members().forEach((id, member) -> {
            String separator = " ";
            StringBuilder line = new StringBuilder(id);
            for (Map.Entry<Uuid, Set<Integer>> topic : member.partitions().entrySet()) {
                if (topic.getValue().isEmpty()) {
                    continue;
                }
                line.append(separator).append(topic.getKey()).append(':');
                separator = ";";
                String comma = "";
                for (int partition : new TreeSet<>(topic.getValue())) {
                    line.append(comma).append(partition);
                    comma = ",";
                }
            }
            if (separator.equals(";")) {
                out.append(line).append('\n');
            }
        });
        out.append("end\n");
    }
}
