import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.DeleteShareGroupStateRequestData;
import org.apache.kafka.common.message.InitializeShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryRequestData;
import org.apache.kafka.common.message.WriteShareGroupStateRequestData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.share.ShareCoordinatorConfig;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorShard;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Lets Kafka's share coordinator serve the requests on standard input, for src/share/tests/kafka.rs:
 *
 *     java -cp "$(compat/kafka-jars/fetch)" crates/share-groups/tests/golden/ShareStates.java
 *
 * A line is one of these; a share partition P is `GROUP TOPIC PARTITION`, runs are `FIRST:LAST:COUNT:STATE,...` or a dash:
 *
 *     new UPDATES                               a coordinator without states, a snapshot after so many updates
 *     clock MS                                  the time from now on
 *     init P STATE_EPOCH START    read P LEADER_EPOCH    delete P    summary P
 *     write P STATE_EPOCH LEADER_EPOCH START COUNT RUNS
 *     cold    gone TOPIC                        snapshots of what does not change; a topic is deleted
 *
 * The answer to each but the first two is its error code, what was read, `KEY=VALUE` for each record in hexadecimal digits, sorted,
 * and the offset before which no record is needed, or -1. Every topic has 8 partitions, but for that of the id 1, which has none.
 */
public class ShareStates {
    private static final HexFormat HEX = HexFormat.of();
    private static long clock = 0;
    private static long offset = 0;
    private static ShareCoordinatorShard shard;

    private static final Time TIME = (Time) Proxy.newProxyInstance(
        ShareStates.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, args) -> {
            if (method.getName().equals("milliseconds")) {
                return clock;
            }
            throw new UnsupportedOperationException(method.getName());
        });

    private static CoordinatorMetadataImage.TopicMetadata topic(Uuid id) {
        return new CoordinatorMetadataImage.TopicMetadata() {
            public String name() {
                return id.toString();
            }
            public Uuid id() {
                return id;
            }
            public int partitionCount() {
                return 8;
            }
            public List<String> partitionRacks(int partition) {
                return List.of();
            }
        };
    }

    private static final CoordinatorMetadataImage IMAGE = (CoordinatorMetadataImage) Proxy.newProxyInstance(
        ShareStates.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class}, (proxy, method, args) -> {
            if (method.getName().equals("topicMetadata") && args[0] instanceof Uuid id) {
                return id.equals(new Uuid(0, 1)) ? Optional.empty() : Optional.of(topic(id));
            }
            throw new UnsupportedOperationException(method.getName());
        });

    private static ShareCoordinatorShard fresh(String updates) {
        AbstractConfig config = new AbstractConfig(
            ShareCoordinatorConfig.CONFIG_DEF,
            Map.of(ShareCoordinatorConfig.SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT_CONFIG, updates),
            false);
        ShareCoordinatorShard shard = new ShareCoordinatorShard.Builder(new ShareCoordinatorConfig(config))
            .withLogContext(new LogContext())
            .withSnapshotRegistry(new SnapshotRegistry(new LogContext()))
            .withTime(TIME)
            .withCoordinatorMetrics(new ShareCoordinatorMetrics(new Metrics()))
            .withTopicPartition(new TopicPartition("__share_group_state", 0))
            .build();
        shard.onLoaded(IMAGE);
        return shard;
    }

    private static String settle(List<CoordinatorRecord> records, String answer) {
        ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
        List<String> lines = new ArrayList<>();
        for (CoordinatorRecord record : records) {
            byte[] value = serde.serializeValue(record);
            lines.add(HEX.formatHex(serde.serializeKey(record)) + "=" + (value == null ? "" : HEX.formatHex(value)));
        }
        // Several records of a decision are about different share partitions.
        List<CoordinatorRecord> sorted = new ArrayList<>(records);
        sorted.sort((a, b) -> HEX.formatHex(serde.serializeKey(a)).compareTo(HEX.formatHex(serde.serializeKey(b))));
        for (CoordinatorRecord record : sorted) {
            shard.replay(offset++, -1, (short) -1, record);
        }
        lines.sort(null);
        long redundant = shard.lastRedundantOffset().response().orElse(-1L);
        return answer + " [" + String.join(" ", lines) + "] " + redundant;
    }

    private static List<WriteShareGroupStateRequestData.StateBatch> runs(String text) {
        List<WriteShareGroupStateRequestData.StateBatch> runs = new ArrayList<>();
        if (text.equals("-")) {
            return runs;
        }
        for (String run : text.split(",")) {
            String[] parts = run.split(":");
            runs.add(new WriteShareGroupStateRequestData.StateBatch()
                .setFirstOffset(Long.parseLong(parts[0]))
                .setLastOffset(Long.parseLong(parts[1]))
                .setDeliveryCount(Short.parseShort(parts[2]))
                .setDeliveryState(Byte.parseByte(parts[3])));
        }
        return runs;
    }

    private static String serve(String[] words) {
        switch (words[0]) {
            case "cold":
                return settle(shard.snapshotColdPartitions().records(), "0 -");
            case "gone":
                return settle(shard.maybeCleanupShareState(Set.of(Uuid.fromString(words[1]))).records(), "0 -");
            default:
        }
        String group = words[1];
        Uuid topic = Uuid.fromString(words[2]);
        int partition = Integer.parseInt(words[3]);
        switch (words[0]) {
            case "init": {
                var result = shard.initializeState(new InitializeShareGroupStateRequestData().setGroupId(group).setTopics(List.of(
                    new InitializeShareGroupStateRequestData.InitializeStateData().setTopicId(topic).setPartitions(List.of(
                        new InitializeShareGroupStateRequestData.PartitionData()
                            .setPartition(partition)
                            .setStateEpoch(Integer.parseInt(words[4]))
                            .setStartOffset(Long.parseLong(words[5])))))));
                return settle(result.records(), result.response().results().get(0).partitions().get(0).errorCode() + " -");
            }
            case "read": {
                var result = shard.readStateAndMaybeUpdateLeaderEpoch(new ReadShareGroupStateRequestData().setGroupId(group).setTopics(List.of(
                    new ReadShareGroupStateRequestData.ReadStateData().setTopicId(topic).setPartitions(List.of(
                        new ReadShareGroupStateRequestData.PartitionData()
                            .setPartition(partition)
                            .setLeaderEpoch(Integer.parseInt(words[4])))))));
                var one = result.response().results().get(0).partitions().get(0);
                String runs = one.stateBatches().stream()
                    .map(b -> b.firstOffset() + ":" + b.lastOffset() + ":" + b.deliveryCount() + ":" + b.deliveryState())
                    .collect(Collectors.joining(","));
                String read = one.errorCode() != 0 ? "-" : one.stateEpoch() + "/" + one.startOffset() + "/" + runs;
                return settle(result.records(), one.errorCode() + " " + read);
            }
            case "write": {
                var result = shard.writeState(new WriteShareGroupStateRequestData().setGroupId(group).setTopics(List.of(
                    new WriteShareGroupStateRequestData.WriteStateData().setTopicId(topic).setPartitions(List.of(
                        new WriteShareGroupStateRequestData.PartitionData()
                            .setPartition(partition)
                            .setStateEpoch(Integer.parseInt(words[4]))
                            .setLeaderEpoch(Integer.parseInt(words[5]))
                            .setStartOffset(Long.parseLong(words[6]))
                            .setDeliveryCompleteCount(Integer.parseInt(words[7]))
                            .setStateBatches(runs(words[8])))))));
                return settle(result.records(), result.response().results().get(0).partitions().get(0).errorCode() + " -");
            }
            case "delete": {
                var result = shard.deleteState(new DeleteShareGroupStateRequestData().setGroupId(group).setTopics(List.of(
                    new DeleteShareGroupStateRequestData.DeleteStateData().setTopicId(topic).setPartitions(List.of(
                        new DeleteShareGroupStateRequestData.PartitionData().setPartition(partition))))));
                return settle(result.records(), result.response().results().get(0).partitions().get(0).errorCode() + " -");
            }
            case "summary": {
                var result = shard.readStateSummary(new ReadShareGroupStateSummaryRequestData().setGroupId(group).setTopics(List.of(
                    new ReadShareGroupStateSummaryRequestData.ReadStateSummaryData().setTopicId(topic).setPartitions(List.of(
                        new ReadShareGroupStateSummaryRequestData.PartitionData().setPartition(partition))))));
                var one = result.response().results().get(0).partitions().get(0);
                String read = one.errorCode() != 0 ? "-"
                    : one.stateEpoch() + "/" + one.leaderEpoch() + "/" + one.startOffset() + "/" + one.deliveryCompleteCount();
                return settle(result.records(), one.errorCode() + " " + read);
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        // What it refuses, it logs where the answers go.
        System.setProperty("log4j2.level", "OFF");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "new":
                    shard = fresh(words[1]);
                    offset = 0;
                    break;
                case "clock":
                    clock = Long.parseLong(words[1]);
                    break;
                default:
                    out.append(serve(words)).append('\n');
            }
        }
        new PrintStream(System.out, true, StandardCharsets.UTF_8).print(out);
    }
}
