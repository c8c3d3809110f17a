import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Kafka's own command line tools against the broker at $BOOTSTRAP. */
public final class JavaTools extends Suite {
    private static final String GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    private static final String CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    private static final String CONFIGS = "kafka.admin.ConfigCommand";

    public static void main(String[] words) throws Exception {
        Suite.run(words, 1, new JavaTools());
    }

    // kafka-topics

    public void topicsCreateListDescribeAlterDelete() throws Exception {
        String topic = unique("topics");
        Tool.Outcome created = topics("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=99000");
        check(created.good().out().contains("Created topic " + topic), created);
        until("the topic", () -> topics("--list").good().lines().anyMatch(topic::equals));
        String described = topics("--describe", "--topic", topic).good().out();
        check(described.contains("PartitionCount: 3") && described.contains("retention.ms=99000"), described);
        check(described.contains("Leader: 1") || described.contains("Leader: 0"), described);
        topics("--alter", "--topic", topic, "--partitions", "5").good();
        until("five partitions", () -> topics("--describe", "--topic", topic).out().contains("PartitionCount: 5"));
        topics("--delete", "--topic", topic).good();
        until("the topic gone", () -> topics("--list").lines().noneMatch(topic::equals));
    }

    public void topicsRefusesATopicThatExists() {
        String topic = newTopic("exists", 1);
        Tool.Outcome again = topics("--create", "--topic", topic);
        check(again.status() == 1 && again.out().contains("already exists"), again);
        topics("--create", "--topic", topic, "--if-not-exists").good();
    }

    public void topicsRefusesABadConfig() {
        Tool.Outcome refused = topics("--create", "--topic", unique("bad"), "--config", "retention.ms=soon");
        check(refused.status() == 1 && refused.out().contains("Invalid value soon"), refused);
    }

    public void topicsDescribesOnlyWhatIsUnhealthy() throws Exception {
        // Other suites create and delete topics meanwhile.
        for (String kind : List.of("--unavailable-partitions", "--under-replicated-partitions")) {
            until("nothing unhealthy", () -> {
                Tool.Outcome described = topics("--describe", kind);
                return described.status() == 0 && described.out().isBlank();
            });
        }
    }

    // kafka-configs

    public void configsAlterAndDescribeATopic() throws Exception {
        String topic = newTopic("configured", 1);
        String[] entity = {"--entity-type", "topics", "--entity-name", topic};
        configs(entity, "--alter", "--add-config", "retention.ms=123456,segment.bytes=2000000").good();
        until("the values", () -> configs(entity, "--describe").out().contains("retention.ms=123456"));
        String described = configs(entity, "--describe").good().out();
        check(described.contains("DYNAMIC_TOPIC_CONFIG:retention.ms=123456"), described);
        check(described.contains("DEFAULT_CONFIG:log.segment.bytes=1073741824"), described);
        configs(entity, "--alter", "--delete-config", "retention.ms").good();
        until("the default", () -> !configs(entity, "--describe").out().contains("retention.ms"));
    }

    public void configsAlterABroker() throws Exception {
        String listed = Tool.run("ClusterTool", "list-endpoints", "--bootstrap-server", BOOTSTRAP).good().out();
        String node = listed.lines().skip(1).findFirst().orElseThrow().split("\\s+")[0];
        String[] entity = {"--entity-type", "brokers", "--entity-name", node};
        configs(entity, "--alter", "--add-config", "log.cleaner.threads=2").good();
        until("the value", () -> configs(entity, "--describe").out().contains("log.cleaner.threads=2"));
        configs(entity, "--alter", "--delete-config", "log.cleaner.threads").good();
        check(configs(entity, "--describe", "--all").good().out().contains("log.retention.ms="), "all settings");
    }

    public void configsOfAGroup() throws Exception {
        String[] entity = {"--entity-type", "groups", "--entity-name", unique("group")};
        configs(entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000,share.auto.offset.reset=earliest").good();
        until("the values", () -> configs(entity, "--describe").out().contains("consumer.session.timeout.ms=50000"));
        check(configs(entity, "--describe").good().out().contains("share.auto.offset.reset=earliest"), "both");
        Tool.Outcome tooLong = configs(entity, "--alter", "--add-config", "consumer.session.timeout.ms=999999");
        check(tooLong.status() != 0 && (tooLong.out() + tooLong.err()).contains("group.consumer.max.session.timeout.ms"),
                tooLong.out() + tooLong.err());
        configs(entity, "--alter", "--delete-config", "consumer.session.timeout.ms,share.auto.offset.reset").good();
        until("the default", () -> !configs(entity, "--describe").out().contains("consumer.session.timeout.ms=50000"));
    }

    public void configsOfClientMetrics() throws Exception {
        String[] entity = {"--entity-type", "client-metrics", "--entity-name", unique("metrics")};
        configs(entity, "--alter", "--add-config", "interval.ms=10000,match=[client_id=a.*]").good();
        until("the values", () -> configs(entity, "--describe").out().contains("interval.ms=10000"));
        configs(entity, "--alter", "--delete-config", "interval.ms,match").good();
        until("none", () -> !configs(entity, "--describe").out().contains("interval.ms=10000"));
    }

    public void configsStoreWhatABrokerDoesNotServe() throws Exception {
        String listed = Tool.run("ClusterTool", "list-endpoints", "--bootstrap-server", BOOTSTRAP).good().out();
        String node = listed.lines().skip(1).findFirst().orElseThrow().split("\\s+")[0];
        String[] entity = {"--entity-type", "brokers", "--entity-name", node};
        String setting = "sasl.kerberos.min.time.before.relogin";
        configs(entity, "--alter", "--add-config", setting + "=1000").good();
        until("the value", () -> configs(entity, "--describe").out().contains(setting + "=1000"));
        configs(entity, "--alter", "--delete-config", setting).good();
        until("the default", () -> !configs(entity, "--describe").out().contains(setting + "=1000"));
    }

    public void configsChangeTheLevelsOfLoggers() throws Exception {
        String listed = Tool.run("ClusterTool", "list-endpoints", "--bootstrap-server", BOOTSTRAP).good().out();
        String node = listed.lines().skip(1).findFirst().orElseThrow().split("\\s+")[0];
        String[] entity = {"--entity-type", "broker-loggers", "--entity-name", node};
        String described = configs(entity, "--describe").good().out();
        // What is logged, and from which level on, differs between kinds of brokers.
        List<String> levels = described.lines().map(String::strip).filter(line -> line.contains(" sensitive=false synonyms={}"))
                .map(line -> line.substring(0, line.indexOf(' '))).toList();
        String root = levels.stream().filter(line -> line.startsWith("root=")).findFirst().orElseThrow();
        String ofRoot = root.substring("root".length());
        String logger = levels.stream().filter(line -> line.endsWith(ofRoot) && !line.equals(root))
                .map(line -> line.substring(0, line.indexOf('='))).findFirst().orElseThrow();
        configs(entity, "--alter", "--add-config", logger + "=DEBUG").good();
        until("the level", () -> configs(entity, "--describe").out().contains(logger + "=DEBUG"));
        configs(entity, "--alter", "--delete-config", logger).good();
        until("that of the root", () -> configs(entity, "--describe").out().contains(logger + ofRoot + " "));
        Tool.Outcome unknown = configs(entity, "--alter", "--add-config", "no.such.logger=DEBUG");
        check(unknown.status() != 0 && (unknown.out() + unknown.err()).contains("no.such.logger"),
                unknown.out() + unknown.err());
        Tool.Outcome loud = configs(entity, "--alter", "--add-config", logger + "=LOUD");
        check(loud.status() != 0 && (loud.out() + loud.err()).contains("Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
                loud.out() + loud.err());
        Tool.Outcome kept = configs(entity, "--alter", "--delete-config", "root");
        check(kept.status() != 0 && (kept.out() + kept.err()).contains("Removing the log level of the root logger is not allowed"),
                kept.out() + kept.err());
    }

    public void configsKeepCredentialsOfAUser() throws Exception {
        String user = unique("user");
        String[] entity = {"--entity-type", "users", "--entity-name", user};
        configs(entity, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=pencil]").good();
        configs(entity, "--alter", "--add-config", "SCRAM-SHA-512=[password=pencil]").good();
        String are = "SCRAM credential configs for user-principal '" + user + "' are ";
        // In the order of a hash map: Apache Kafka's differs from start to start.
        List<String> both = List.of(are + "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096",
                are + "SCRAM-SHA-512=iterations=4096, SCRAM-SHA-256=iterations=8192");
        until("both", () -> {
            String described = configs(entity, "--describe").good().out();
            return both.stream().anyMatch(described::contains);
        });
        configs(entity, "--alter", "--delete-config", "SCRAM-SHA-256").good();
        until("one", () -> !configs(entity, "--describe").good().out().contains("SCRAM-SHA-256"));
        Tool.Outcome again = configs(entity, "--alter", "--delete-config", "SCRAM-SHA-256");
        check(again.status() != 0 && again.err().contains("does not exist"), again.out() + again.err());
        configs(entity, "--alter", "--delete-config", "SCRAM-SHA-512").good();
        until("none", () -> !configs(entity, "--describe").good().out().contains("SCRAM"));
    }

    // kafka-console-producer, kafka-console-consumer

    public void consoleProducesAndConsumes() {
        String topic = newTopic("console", 1);
        produce(topic, "one\ntwo\nthree\n");
        equal(List.of("one", "two", "three"), consume(topic, 3));
    }

    public void consoleKeysHeadersAndTimestamps() {
        String topic = newTopic("keyed", 1);
        produce(topic, "h:1\tk1\tv1\n", "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true");
        List<String> found = consume(topic, 1, "--formatter-property", "print.key=true", "--formatter-property",
                "print.headers=true", "--formatter-property", "print.timestamp=true", "--formatter-property", "print.offset=true");
        check(found.get(0).matches("CreateTime:\\d+\tOffset:0\th:1\tk1\tv1"), found);
    }

    public void consoleConsumesEachCodec() {
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            String topic = newTopic(codec, 1);
            String line = "the same words again and again ".repeat(20);
            produce(topic, (line + "\n").repeat(50), "--compression-codec", codec);
            equal(Collections.nCopies(50, line), consume(topic, 50));
        }
    }

    public void consoleConsumesAPartitionFromAnOffset() {
        String topic = newTopic("from", 1);
        produce(topic, "a\nb\nc\n");
        Tool.Outcome found = Tool.run(CONSOLE_CONSUMER, "--bootstrap-server", BOOTSTRAP, "--topic", topic,
                "--partition", "0", "--offset", "1", "--max-messages", "2", "--timeout-ms", "20000").good();
        equal(List.of("b", "c"), found.lines().toList());
    }

    // kafka-producer-perf-test, kafka-consumer-perf-test, kafka-e2e-latency

    public void perfTestsProduceAndConsume() {
        String topic = newTopic("perf", 2);
        String produced = Tool.run("ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "128",
                "--throughput", "-1", "--bootstrap-server", BOOTSTRAP, "--command-property", "acks=1").good().out();
        check(produced.contains("20000 records sent"), produced);
        String consumed = Tool.run("ConsumerPerformance", "--bootstrap-server", BOOTSTRAP, "--topic", topic,
                "--num-records", "20000", "--hide-header").good().out();
        check(consumed.contains(", 20000, ") || consumed.split(", ")[4].equals("20000"), consumed);
    }

    public void perfTestProducesTransactions() throws Exception {
        String topic = newTopic("perf-tx", 2);
        String id = unique("perf-tx");
        String produced = Tool.run("ProducerPerformance", "--topic", topic, "--num-records", "5000", "--record-size", "100",
                "--throughput", "-1", "--bootstrap-server", BOOTSTRAP, "--transactional-id", id, "--transaction-duration-ms",
                "20").good().out();
        check(produced.contains("5000 records sent"), produced);
        // Only committed records are present.
        String consumed = Tool.run("ConsumerPerformance", "--bootstrap-server", BOOTSTRAP, "--topic", topic, "--num-records",
                "5000", "--hide-header", "--command-property", "isolation.level=read_committed").good().out();
        check(consumed.split(", ")[4].equals("5000"), consumed);
    }

    public void transactionsListDescribeAndFindHanging() throws Exception {
        String topic = newTopic("tx", 1);
        String id = unique("tx");
        Tool.run("ProducerPerformance", "--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1",
                "--bootstrap-server", BOOTSTRAP, "--transactional-id", id, "--transaction-duration-ms", "1000").good();
        String listed = Tool.run("TransactionsCommand", "--bootstrap-server", BOOTSTRAP, "list").good().out();
        check(listed.contains(id), listed);
        until("the end of the transaction", () -> Tool.run("TransactionsCommand", "--bootstrap-server", BOOTSTRAP, "describe",
                "--transactional-id", id).good().out().contains("CompleteCommit"));
        String producers = Tool.run("TransactionsCommand", "--bootstrap-server", BOOTSTRAP, "describe-producers", "--topic",
                topic, "--partition", "0").good().out();
        check(producers.contains("None"), producers);
        Tool.run("TransactionsCommand", "--bootstrap-server", BOOTSTRAP, "find-hanging", "--topic", topic, "--partition", "0")
                .good();
    }

    public void dumpLogReadsTransactionState() throws Exception {
        String topic = newTopic("tx-dump", 1);
        String id = unique("tx-dump");
        Tool.run("ProducerPerformance", "--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1",
                "--bootstrap-server", BOOTSTRAP, "--transactional-id", id, "--transaction-duration-ms", "1000").good();
        List<String> logs = IntStream.range(0, 50).boxed()
                .flatMap(partition -> files("__transaction_state-" + partition, ".log").stream()).toList();
        until("the end of the transaction", () -> dump(logs, "--transaction-log-decoder").lines()
                .anyMatch(line -> line.contains(id) && line.contains("\"transactionStatus\":4")));
    }

    public void endToEndLatencyMeasures() {
        String topic = unique("latency");
        Tool.Outcome measured = Tool.run("EndToEndLatency", "--bootstrap-server", BOOTSTRAP, "--topic", topic,
                "--num-records", "200", "--producer-acks", "1", "--record-size", "100").good();
        check(measured.out().contains("Avg latency") && measured.out().contains("Percentiles"), measured);
    }

    // kafka-verifiable-producer, kafka-verifiable-consumer

    public void verifiableProducerAndConsumerAgree() throws Exception {
        String topic = newTopic("verifiable", 1);
        String produced = Tool.fork("VerifiableProducer", "--bootstrap-server", BOOTSTRAP, "--topic", topic,
                "--max-messages", "500").good().out();
        check(produced.lines().filter(line -> line.contains("producer_send_success")).count() == 500, produced);
        String consumed = Tool.fork("VerifiableConsumer", "--bootstrap-server", BOOTSTRAP, "--topic", topic,
                "--group-id", unique("verifiable"), "--max-messages", "500", "--verbose").good().out();
        check(consumed.lines().filter(line -> line.contains("\"name\":\"record_data\"")).count() == 500, consumed);
        check(consumed.contains("offsets_committed") && consumed.contains("\"success\":true"), consumed);
    }

    // kafka-consumer-groups, kafka-groups

    public void groupsListDescribeResetDelete() {
        String topic = newTopic("grouped", 1);
        String group = unique("grouped");
        produce(topic, "a\nb\nc\nd\n");
        consume(topic, 3, "--group", group);
        check(groups("--list").good().lines().anyMatch(group::equals), "the group is not listed");
        equal(List.of("3", "4", "1"), lag(group, topic));
        String[] reset = {"--reset-offsets", "--group", group, "--topic", topic, "--execute"};
        groups(with(reset, "--to-earliest")).good();
        equal(List.of("0", "4", "4"), lag(group, topic));
        groups(with(reset, "--shift-by", "2")).good();
        equal(List.of("2", "4", "2"), lag(group, topic));
        groups(with(reset, "--to-offset", "4")).good();
        equal(List.of("4", "4", "0"), lag(group, topic));
        groups(with(reset, "--by-duration", "PT1H")).good();
        equal(List.of("0", "4", "4"), lag(group, topic));
        groups("--delete-offsets", "--group", group, "--topic", topic).good();
        groups("--delete", "--group", group).good();
        check(groups("--list").good().lines().noneMatch(group::equals), "the group is still listed");
    }

    public void groupsDescribeState() {
        String topic = newTopic("state", 1);
        String group = unique("state");
        produce(topic, "a\n");
        consume(topic, 1, "--group", group);
        String state = groups("--describe", "--group", group, "--state").good().out();
        check(state.contains("Empty"), state);
        check(Tool.run("GroupsCommand", "--bootstrap-server", BOOTSTRAP, "--list").good().out().contains(group), "kafka-groups");
    }

    public void groupsDescribeAnUnknownGroup() {
        Tool.Outcome found = groups("--describe", "--group", unique("absent"));
        check((found.out() + found.err()).contains("does not exist") || found.out().contains("not found"), found);
    }

    public void consumerProtocolGroupsDescribeMembersAndStates() throws Exception {
        String topic = newTopic("members", 2);
        String group = unique("members");
        produce(topic, "a\nb\n");
        try (KafkaConsumer<String, String> member = member(group)) {
            member.subscribe(List.of(topic));
            until("both partitions", () -> {
                member.poll(Duration.ofMillis(100));
                return member.assignment().size() == 2;
            });
            until("a stable group", () -> groups("--describe", "--group", group, "--state").good().out().contains("Stable"));
            String state = groups("--describe", "--group", group, "--state", "--verbose").good().out();
            check(row(state, group).contains("uniform") && state.contains("GROUP-EPOCH") && state.contains("TARGET-ASSIGNMENT-EPOCH"), state);
            String members = groups("--describe", "--group", group, "--members", "--verbose").good().out();
            check(row(members, group).contains(topic + ":0,1"), members);
            check(members.contains("CURRENT-EPOCH") && members.contains("TARGET-EPOCH"), members);
            String offsets = groups("--describe", "--group", group, "--verbose").good().out();
            check(row(offsets, topic).contains("instance-one"), offsets);
            String listed = groups("--list", "--type", "consumer", "--state").good().out();
            check(row(listed, group).contains("Stable") && row(listed, group).contains("Consumer"), listed);
            check(groups("--list", "--type", "classic").good().lines().noneMatch(line -> line.contains(group)), "listed as classic");
            Tool.Outcome reset = groups("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute");
            check((reset.out() + reset.err()).contains("the current state is Stable"), reset);
            Tool.Outcome deleted = groups("--delete", "--group", group);
            check((deleted.out() + deleted.err()).contains("GroupNotEmptyException"), deleted);
        }
        // A static member that closes is expected back: it leaves by the end of its session.
        until("an empty group", () -> groups("--describe", "--group", group, "--state").good().out().contains("Empty"));
        groups("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "1", "--execute").good();
        String lag = groups("--describe", "--group", group).good().out();
        check(lag.lines().anyMatch(line -> line.contains(topic)), lag);
        groups("--delete-offsets", "--group", group, "--topic", topic).good();
        groups("--delete", "--group", group).good();
        check(groups("--list").good().lines().noneMatch(group::equals), "the group is still listed");
    }

    public void consumerProtocolOfTheConsoleConsumer() {
        String topic = newTopic("console", 1);
        String group = unique("console");
        produce(topic, "a\nb\nc\n");
        String[] protocol = {"--group", group, "--command-property", "group.protocol=consumer"};
        equal(List.of("a", "b"), consume(topic, 2, protocol));
        equal(List.of("2", "3", "1"), lag(group, topic));
        equal(List.of("c"), consume(topic, 1, protocol));
        String listed = groups("--list", "--type", "consumer").good().out();
        check(listed.contains(group), listed);
    }

    // kafka-get-offsets, kafka-delete-records, kafka-log-dirs

    public void getOffsetsOfEachTime() {
        String topic = newTopic("offsets", 1);
        produce(topic, "a\nb\nc\n");
        equal(topic + ":0:3", offsets(topic, "latest"));
        equal(topic + ":0:0", offsets(topic, "earliest"));
        equal(topic + ":0:0", offsets(topic, "earliest-local"));
        check(offsets(topic, "max-timestamp").matches(topic + ":0:[012]"), offsets(topic, "max-timestamp"));
        equal(topic + ":0:0", offsets(topic, "1000"));
    }

    public void deleteRecords() throws IOException {
        String topic = newTopic("deleted", 1);
        produce(topic, "a\nb\nc\n");
        Path plan = Files.createTempFile(Path.of(System.getenv("WORK")), "plan", ".json");
        Files.writeString(plan, "{\"version\":1,\"partitions\":[{\"topic\":\"" + topic + "\",\"partition\":0,\"offset\":2}]}");
        String deleted = Tool.run("DeleteRecordsCommand", "--bootstrap-server", BOOTSTRAP, "--offset-json-file",
                plan.toString()).good().out();
        check(deleted.contains("low_watermark: 2"), deleted);
        equal(topic + ":0:2", offsets(topic, "earliest"));
    }

    public void logDirsDescribe() throws Exception {
        String topic = newTopic("dirs", 2);
        until("both partitions", () -> {
            String described = Tool.run("LogDirsCommand", "--bootstrap-server", BOOTSTRAP, "--describe", "--topic-list", topic)
                    .good().out();
            return described.contains(topic + "-0") && described.contains(topic + "-1") && described.contains("\"offsetLag\":0");
        });
    }

    // kafka-broker-api-versions, kafka-cluster

    public void brokerApiVersions() {
        String found = Tool.run("BrokerApiVersionsCommand", "--bootstrap-server", BOOTSTRAP).good().out();
        for (String api : List.of("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13", "JoinGroup(11): 0 to 9",
                "OffsetCommit(8): 2 to 10", "CreateTopics(19): 2 to 7", "DescribeTopicPartitions(75): 0")) {
            check(found.contains(api), api + " is not in " + found);
        }
    }

    public void clusterIdAndEndpoints() {
        String found = Tool.run("ClusterTool", "cluster-id", "--bootstrap-server", BOOTSTRAP).good().out();
        check(found.matches("(?s)Cluster ID: [\\w-]{22}\\s*"), found);
        String endpoints = Tool.run("ClusterTool", "list-endpoints", "--bootstrap-server", BOOTSTRAP).good().out();
        check(endpoints.contains("127.0.0.1"), endpoints);
    }

    // kafka-dump-log on the files of the broker

    public void dumpLogReadsPlainAndCompressedBatches() throws Exception {
        String topic = newTopic("dumped", 1);
        produce(topic, "plain\n");
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            produce(topic, codec + " one\n" + codec + " two\n", "--compression-codec", codec);
        }
        String dumped = dump(files(topic + "-0", ".log"), "--print-data-log", "--deep-iteration");
        for (String codec : List.of("GZIP", "SNAPPY", "LZ4", "ZSTD")) {
            check(dumped.contains("compresscodec: " + codec.toLowerCase()) || dumped.contains("compresscodec: " + codec), dumped);
        }
        check(dumped.contains("payload: plain") && dumped.contains("payload: zstd two"), dumped);
        equal(9L, dumped.lines().filter(line -> line.startsWith("|")).count());
        check(dumped.lines().filter(line -> line.startsWith("baseOffset")).allMatch(line -> line.contains("isvalid: true")), dumped);
    }

    public void dumpLogChecksTheIndexes() throws Exception {
        String topic = unique("indexed");
        topics("--create", "--topic", topic, "--config", "segment.bytes=1048576", "--config", "index.interval.bytes=1024").good();
        Tool.run("ProducerPerformance", "--topic", topic, "--num-records", "30000", "--record-size", "100", "--throughput", "-1",
                "--bootstrap-server", BOOTSTRAP, "--command-property", "batch.size=4096").good();
        List<String> rolled = Stream.of(".log", ".index", ".timeindex").flatMap(kind -> files(topic + "-0", kind).stream())
                .filter(file -> file.contains("/00000000000000000000.")).toList();
        equal(3, rolled.size());
        dump(rolled, "--verify-index-only");
        String found = dump(rolled);
        check(found.lines().filter(line -> line.matches("offset: \\d+ position: \\d+")).count() > 10, "too few index entries");
    }

    public void dumpLogReadsGroupOffsets() throws Exception {
        String topic = newTopic("committed", 1);
        String group = unique("committed");
        produce(topic, "a\n");
        consume(topic, 1, "--group", group);
        List<String> logs = IntStream.range(0, 4).boxed()
                .flatMap(partition -> files("__consumer_offsets-" + partition, ".log").stream()).toList();
        String dumped = dump(logs, "--offsets-decoder");
        check(dumped.contains("\"group\":\"" + group + "\"") && dumped.contains("\"topic\":\"" + topic + "\""), group + " is not there");
    }

    public void dumpLogReadsClusterMetadata() throws Exception {
        String topic = newTopic("metadata", 1);
        List<String> logs = files("__cluster_metadata-0", ".log");
        until("the topic's record", () -> dump(logs, "--cluster-metadata-decoder").contains("\"name\":\"" + topic + "\""));
        String dumped = dump(logs, "--cluster-metadata-decoder");
        for (String type : List.of("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD")) {
            check(dumped.contains("\"type\":\"" + type + "\"") || type.startsWith("FEATURE"), type);
        }
    }

    // Shared steps

    /** A member by the consumer protocol. */
    private static KafkaConsumer<String, String> member(String group) {
        Map<String, Object> settings = new HashMap<>(SECURITY);
        settings.putAll(Map.of("bootstrap.servers", BOOTSTRAP, "group.id", group, "group.protocol", "consumer",
                "group.instance.id", "instance-one", "auto.offset.reset", "earliest"));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** The first line of a tool's output that names this. */
    private static String row(String out, String name) {
        return out.lines().filter(line -> line.contains(name)).findFirst().orElseThrow(() -> new AssertionError(name + " is not in " + out));
    }

    private static Tool.Outcome topics(String... arguments) {
        return Tool.run("TopicCommand", with(new String[] {"--bootstrap-server", BOOTSTRAP}, arguments));
    }

    private static Tool.Outcome groups(String... arguments) {
        return Tool.run(GROUPS, with(new String[] {"--bootstrap-server", BOOTSTRAP}, arguments));
    }

    private static Tool.Outcome configs(String[] entity, String... arguments) {
        return Tool.run(CONFIGS, with(with(new String[] {"--bootstrap-server", BOOTSTRAP}, entity), arguments));
    }

    private static String newTopic(String stem, int partitions) {
        String topic = unique(stem);
        topics("--create", "--topic", topic, "--partitions", String.valueOf(partitions), "--replication-factor", "1").good();
        return topic;
    }

    private static void produce(String topic, String lines, String... arguments) {
        String[] base = {"--bootstrap-server", BOOTSTRAP, "--topic", topic};
        Tool.runOn(lines, "ConsoleProducer", with(base, arguments)).good();
    }

    private static List<String> consume(String topic, int count, String... arguments) {
        String[] base = {"--bootstrap-server", BOOTSTRAP, "--topic", topic, "--from-beginning", "--max-messages",
            String.valueOf(count), "--timeout-ms", "20000"};
        return Tool.run(CONSOLE_CONSUMER, with(base, arguments)).good().lines().toList();
    }

    private static String offsets(String topic, String time) {
        return Tool.run("GetOffsetShell", "--bootstrap-server", BOOTSTRAP, "--topic", topic, "--time", time).good().out().trim();
    }

    /** The committed offset, the log end offset and the lag in the tool's output for partition 0. */
    private static List<String> lag(String group, String topic) {
        String described = groups("--describe", "--group", group).good().out();
        String row = described.lines().filter(line -> line.contains(topic)).findFirst().orElseThrow(() -> new AssertionError(described));
        return List.of(row.trim().split("\\s+")).subList(3, 6);
    }

    private static List<String> files(String partition, String suffix) {
        if (DATA_DIR.isEmpty()) {
            throw new Skip("the broker's files are not at hand");
        }
        try (Stream<Path> all = Files.list(Path.of(DATA_DIR, partition))) {
            return all.map(Path::toString).filter(file -> file.endsWith(suffix)).sorted().toList();
        } catch (NoSuchFileException absent) {
            return List.of();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** The output of kafka-dump-log for the files, which must report no error. */
    private static String dump(List<String> files, String... arguments) {
        check(!files.isEmpty(), "no such files");
        Tool.Outcome dumped = Tool.run("DumpLogSegments", with(new String[] {"--files", String.join(",", files)}, arguments)).good();
        List<String> complaints = Stream.concat(dumped.lines(), dumped.err().lines())
                .filter(line -> line.matches("(?i).*(mismatch|isvalid: false|not found|invalid bytes|corrupt|exception).*"))
                .toList();
        equal(List.of(), complaints);
        return dumped.out();
    }

    private static String[] with(String[] first, String... rest) {
        List<String> all = new ArrayList<>(List.of(first));
        all.addAll(List.of(rest));
        return all.toArray(String[]::new);
    }
}
