import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** kafka-streams-groups.sh. */
final class StreamsToolTests extends Suite {
    /** Runs the tool, and returns what it prints. */
    private static String tool(String... arguments) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                System.getProperty("java.class.path"), "org.apache.kafka.tools.streams.StreamsGroupCommand",
                "--bootstrap-server", BOOTSTRAP));
        String security = System.getenv("SECURITY_JAVA");
        if (security != null) {
            command.addAll(List.of("--command-config", security));
        }
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        check(process.waitFor(60, TimeUnit.SECONDS), "the tool does not end: " + out);
        return out;
    }

    public void theToolListsDescribesResetsAndDeletes() throws Exception {
        try (Application words = new Application()) {
            words.start("one");
            words.settled(1);
            words.write(90);
            words.counted("read_uncommitted");
            String listed = tool("--list", "--state");
            check(listed.lines().anyMatch(line -> line.contains(words.id) && line.contains("Stable")), listed);
            String state = tool("--describe", "--group", words.id, "--state");
            check(state.contains(words.id) && state.contains("Stable"), state);
            String members = tool("--describe", "--group", words.id, "--members", "--verbose");
            check(members.contains("ACTIVE: 0:[0,1,2]; 1:[0,1,2];"), members);
            String offsets = tool("--describe", "--group", words.id, "--offsets");
            check(offsets.contains(words.input), offsets);
            words.stop("one");
            until("an empty group", () -> words.described().groupState().toString().equals("Empty"));
            String reset = tool("--reset-offsets", "--group", words.id, "--all-input-topics", "--to-earliest", "--execute");
            check(reset.contains(words.input), reset);
            Map<TopicPartition, OffsetAndMetadata> offsetsNow = words.offsets();
            for (int partition = 0; partition < Application.PARTITIONS; partition++) {
                equal(0L, offsetsNow.get(new TopicPartition(words.input, partition)).offset());
            }
            String deleted = tool("--delete", "--group", words.id, "--delete-all-internal-topics");
            check(deleted.contains("was successful"), deleted);
            until("no internal topics", () -> words.admin.listTopics().names().get().stream()
                    .noneMatch(topic -> topic.startsWith(words.id + "-counts")));
        }
    }
}
