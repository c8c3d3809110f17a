import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Lets Kafka's assignor of tasks decide about the groups on standard input, for src/group/assignor/tests/tasks.rs:
 *
 *     java -cp "$(compat/kafka-jars/fetch)" crates/groups/tests/golden/Tasks.java
 *
 * A group is `group STANDBYS`, then lines `subtopology ID COUNT STATEFUL` and `member ID PROCESS ACTIVE STANDBY`, then `end`. Tasks
 * are `ID:0,1;ID:2`, or a dash. The answer is a line `ID ACTIVE STANDBY` for each member, by id, then `end`.
 */
public class Tasks {
    private record Subtopology(int tasks, boolean isStateful) { }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        String standbys = "0";
        Map<String, Subtopology> subtopologies = new TreeMap<>();
        Map<String, AssignmentMemberSpec> members = new LinkedHashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "group":
                    standbys = words[1];
                    subtopologies = new TreeMap<>();
                    members = new LinkedHashMap<>();
                    break;
                case "subtopology":
                    subtopologies.put(words[1], new Subtopology(Integer.parseInt(words[2]), Boolean.parseBoolean(words[3])));
                    break;
                case "member":
                    members.put(words[1], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(words[3]), tasks(words[4]),
                        Map.of(), words[2], Map.of(), Map.of(), Map.of()));
                    break;
                default:
                    answer(out, members, subtopologies, standbys);
            }
        }
        new PrintStream(System.out, true, StandardCharsets.UTF_8).print(out);
        System.out.flush();
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> tasks = new TreeMap<>();
        for (String word : text.equals("-") ? new String[0] : text.split(";")) {
            String[] parts = word.split(":");
            Set<Integer> partitions = new HashSet<>();
            for (String partition : parts[1].split(",")) {
                partitions.add(Integer.parseInt(partition));
            }
            tasks.put(parts[0], partitions);
        }
        return tasks;
    }

    private static String words(Map<String, Set<Integer>> tasks) {
        List<String> words = new ArrayList<>();
        new TreeMap<>(tasks).forEach((id, partitions) -> {
            List<String> numbers = new ArrayList<>();
            new TreeSet<>(partitions).forEach(partition -> numbers.add(partition.toString()));
            words.add(id + ":" + String.join(",", numbers));
        });
        return words.isEmpty() ? "-" : String.join(";", words);
    }

    private static void answer(StringBuilder out, Map<String, AssignmentMemberSpec> members,
                               Map<String, Subtopology> subtopologies, String standbys) {
        TopologyDescriber describer = new TopologyDescriber() {
            @Override
            public List<String> subtopologies() {
                return List.copyOf(subtopologies.keySet());
            }

            @Override
            public int maxNumInputPartitions(String id) {
                return subtopologies.get(id).tasks();
            }

            @Override
            public boolean isStateful(String id) {
                return subtopologies.get(id).isStateful();
            }
        };
        GroupSpecImpl group = new GroupSpecImpl(members, Map.of("num.standby.replicas", standbys));
        Map<String, MemberAssignment> assigned = new StickyTaskAssignor().assign(group, describer).members();
        new TreeMap<>(assigned).forEach((id, member) -> out.append(id).append(' ').append(words(member.activeTasks()))
            .append(' ').append(words(member.standbyTasks())).append('\n'));
        out.append("end\n");
    }
}
