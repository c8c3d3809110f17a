import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What the admin client sees: topics by name and by id, settings with their sources, groups, offsets, directories. */
final class AdminTests extends Clients {
    private static ConfigResource topicResource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private Config config(ConfigResource resource) throws Exception {
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return result(admin.describeConfigs(Set.of(resource), all).all()).get(resource);
    }

    private void alter(ConfigResource resource, AlterConfigOp.OpType type, String key, String value) throws Exception {
        AlterConfigOp op = new AlterConfigOp(new ConfigEntry(key, value), type);
        result(admin.incrementalAlterConfigs(Map.of(resource, Set.of(op))).all());
    }

    private TopicDescription describe(String topic) throws Exception {
        return result(admin.describeTopics(Set.of(topic)).allTopicNames()).get(topic);
    }

    public void createAnswersWithTheTopicItMade() throws Exception {
        String topic = unique("made");
        NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "5555"));
        CreateTopicsResult made = admin.createTopics(Set.of(wanted));
        equal(3, result(made.numPartitions(topic)));
        equal(1, result(made.replicationFactor(topic)));
        equal("5555", result(made.config(topic)).get("retention.ms").value());
        Uuid id = result(made.topicId(topic));
        until("the topic", () -> result(admin.listTopics().names()).contains(topic));
        equal(id, describe(topic).topicId());
        equal(id, result(admin.listTopics().namesToListings()).get(topic).topicId());
    }

    public void topicsAreFoundAndDeletedById() throws Exception {
        String topic = newTopic("by-id", 2);
        Uuid id = describe(topic).topicId();
        equal(topic, result(admin.describeTopics(TopicCollection.ofTopicIds(Set.of(id))).allTopicIds()).get(id).name());
        result(admin.deleteTopics(TopicCollection.ofTopicIds(Set.of(id))).all());
        until("the topic gone", () -> !result(admin.listTopics().names()).contains(topic));
        fails(UnknownTopicIdException.class, admin.describeTopics(TopicCollection.ofTopicIds(Set.of(id))).allTopicIds());
    }

    public void createErrors() throws Exception {
        String topic = newTopic("errors", 1);
        fails(TopicExistsException.class, admin.createTopics(Set.of(new NewTopic(topic, 1, (short) 1))).all());
        fails(InvalidTopicException.class, admin.createTopics(Set.of(new NewTopic("bad name", 1, (short) 1))).all());
        fails(InvalidTopicException.class, admin.createTopics(Set.of(new NewTopic("..", 1, (short) 1))).all());
        fails(InvalidPartitionsException.class, admin.createTopics(Set.of(new NewTopic(unique("no"), 0, (short) 1))).all());
        fails(InvalidReplicationFactorException.class, admin.createTopics(Set.of(new NewTopic(unique("no"), 1, (short) 2))).all());
        fails(InvalidReplicaAssignmentException.class,
                admin.createTopics(Set.of(new NewTopic(unique("no"), Map.of(0, List.of(1234))))).all());
        NewTopic bad = new NewTopic(unique("no"), 1, (short) 1).configs(Map.of("min.insync.replicas", "0"));
        fails(InvalidConfigurationException.class, admin.createTopics(Set.of(bad)).all());
    }

    public void createValidateOnly() throws Exception {
        String topic = unique("validated");
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(true);
        CreateTopicsResult made = admin.createTopics(Set.of(new NewTopic(topic, Optional.empty(), Optional.empty())), options);
        equal(1, result(made.numPartitions(topic)));
        check(!result(admin.listTopics().names()).contains(topic), "the topic exists");
    }

    public void namesThatCollideAreRefused() throws Exception {
        String stem = unique("collide").replace('-', '.');
        result(admin.createTopics(Set.of(new NewTopic(stem, 1, (short) 1))).all());
        fails(InvalidTopicException.class, admin.createTopics(Set.of(new NewTopic(stem.replace('.', '_'), 1, (short) 1))).all());
    }

    public void deleteUnknownTopic() throws Exception {
        fails(UnknownTopicOrPartitionException.class, admin.deleteTopics(Set.of(unique("absent"))).all());
    }

    public void createPartitionsAndItsErrors() throws Exception {
        String topic = newTopic("grown", 1);
        result(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
        until("four partitions", () -> describe(topic).partitions().size() == 4);
        fails(InvalidPartitionsException.class, admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all());
        fails(UnknownTopicOrPartitionException.class,
                admin.createPartitions(Map.of(unique("absent"), NewPartitions.increaseTo(2))).all());
    }

    public void configsHaveSourcesSynonymsTypesAndDocumentation() throws Exception {
        String topic = newTopic("config", 1, "segment.ms", "3600000");
        ConfigEntry set = config(topicResource(topic)).get("segment.ms");
        equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, set.source());
        equal("3600000", set.synonyms().get(0).value());
        equal(ConfigEntry.ConfigType.LONG, set.type());
        check(set.documentation() != null && !set.documentation().isBlank(), "no documentation");
        ConfigEntry unset = config(topicResource(topic)).get("retention.bytes");
        check(unset.isDefault() && unset.value().equals("-1"), unset);
        equal("log.retention.bytes", unset.synonyms().get(0).name());
    }

    public void topicConfigSetDeleteAppendSubtract() throws Exception {
        String topic = newTopic("altered", 1);
        ConfigResource resource = topicResource(topic);
        alter(resource, AlterConfigOp.OpType.SET, "flush.messages", "7");
        until("set", () -> config(resource).get("flush.messages").value().equals("7"));
        alter(resource, AlterConfigOp.OpType.DELETE, "flush.messages", null);
        until("deleted", () -> config(resource).get("flush.messages").isDefault());
        alter(resource, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        until("appended", () -> config(resource).get("cleanup.policy").value().equals("delete,compact"));
        alter(resource, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete");
        until("subtracted", () -> config(resource).get("cleanup.policy").value().equals("compact"));
    }

    public void alterConfigErrorsAndValidateOnly() throws Exception {
        ConfigResource resource = topicResource(newTopic("refused", 1));
        AlterConfigOp bad = new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
        fails(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource, Set.of(bad))).all());
        AlterConfigOp good = new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.SET);
        result(admin.incrementalAlterConfigs(Map.of(resource, Set.of(good)), new AlterConfigsOptions().validateOnly(true)).all());
        check(!"1".equals(config(resource).get("retention.ms").value()), "altered");
        fails(UnknownTopicOrPartitionException.class,
                admin.incrementalAlterConfigs(Map.of(topicResource(unique("absent")), Set.of(good))).all());
    }

    public void brokerConfigsPerBrokerAndForAll() throws Exception {
        String node = String.valueOf(result(admin.describeCluster().nodes()).iterator().next().id());
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        ConfigResource every = new ConfigResource(ConfigResource.Type.BROKER, "");
        alter(every, AlterConfigOp.OpType.SET, "log.cleaner.io.buffer.load.factor", "0.8");
        until("the default for all", () -> config(broker).get("log.cleaner.io.buffer.load.factor").source()
                == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);
        alter(broker, AlterConfigOp.OpType.SET, "log.cleaner.io.buffer.load.factor", "0.7");
        until("the broker's own", () -> config(broker).get("log.cleaner.io.buffer.load.factor").value().equals("0.7"));
        alter(broker, AlterConfigOp.OpType.DELETE, "log.cleaner.io.buffer.load.factor", null);
        alter(every, AlterConfigOp.OpType.DELETE, "log.cleaner.io.buffer.load.factor", null);
        until("the built-in default", () -> config(broker).get("log.cleaner.io.buffer.load.factor").isDefault());
        check(config(broker).get("listeners").isReadOnly() || config(broker).get("node.id").isReadOnly(), "read-only settings");
    }

    public void clusterIsDescribed() throws Exception {
        String id = result(admin.describeCluster().clusterId());
        equal(22, id.length());
        equal(1, result(admin.describeCluster().nodes()).size());
        check(result(admin.describeFeatures().featureMetadata()).finalizedFeatures().containsKey("metadata.version"), "features");
    }

    public void listOffsetsOfEachSpec() throws Exception {
        String topic = newTopic("specs", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long[] times = {1_000_000, 3_000_000, 2_000_000};
        try (KafkaProducer<String, String> producer = producer("linger.ms", 0)) {
            for (long time : times) {
                send(producer, List.of(new ProducerRecord<>(topic, 0, time, null, "x")));
            }
        }
        Map<OffsetSpec, Long> expected = Map.of(OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 3L, OffsetSpec.maxTimestamp(), 1L,
                OffsetSpec.earliestLocal(), 0L, OffsetSpec.latestTiered(), -1L, OffsetSpec.forTimestamp(1_500_000), 1L);
        for (Map.Entry<OffsetSpec, Long> each : expected.entrySet()) {
            long found = result(admin.listOffsets(Map.of(partition, each.getKey())).all()).get(partition).offset();
            check(found == each.getValue(), each.getKey() + ": " + found);
        }
    }

    public void deleteRecordsAndItsErrors() throws Exception {
        String topic = newTopic("trimmed", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        fill(topic, List.of("a", "b", "c"));
        var before = RecordsToDelete.beforeOffset(2);
        equal(2L, result(admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition)).lowWatermark());
        var past = RecordsToDelete.beforeOffset(99);
        fails(OffsetOutOfRangeException.class, admin.deleteRecords(Map.of(partition, past)).all());
    }

    public void logDirsShowSizes() throws Exception {
        String topic = newTopic("sized", 1);
        fill(topic, List.of("x".repeat(10_000)));
        int node = result(admin.describeCluster().nodes()).iterator().next().id();
        long size = 0;
        for (LogDirDescription dir : result(admin.describeLogDirs(Set.of(node)).allDescriptions()).get(node).values()) {
            check(dir.error() == null && dir.totalBytes().getAsLong() > 0 && dir.usableBytes().getAsLong() > 0, dir);
            var replica = dir.replicaInfos().get(new TopicPartition(topic, 0));
            size += replica == null ? 0 : replica.size();
        }
        check(size > 10_000 && size < 11_000, size);
    }

    public void groupsAreListedDescribedAndDeleted() throws Exception {
        String topic = newTopic("grouped", 1);
        String group = unique("grouped");
        fill(topic, List.of("a"));
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group, "client.id", "reader")) {
            consumer.subscribe(List.of(topic));
            take(consumer, 1);
            var found = result(admin.describeConsumerGroups(Set.of(group)).all()).get(group);
            equal(GroupState.STABLE, found.groupState());
            equal("reader", found.members().iterator().next().clientId());
            equal(Set.of(new TopicPartition(topic, 0)), found.members().iterator().next().assignment().topicPartitions());
            check(result(admin.listGroups().all()).stream().anyMatch(each -> each.groupId().equals(group)), "not listed");
            fails(GroupNotEmptyException.class, admin.deleteConsumerGroups(Set.of(group)).all());
        }
        until("an empty group", () -> result(admin.describeConsumerGroups(Set.of(group)).all()).get(group).groupState() == GroupState.EMPTY);
        result(admin.deleteConsumerGroups(Set.of(group)).all());
        fails(GroupIdNotFoundException.class, admin.deleteConsumerGroups(Set.of(group)).all());
    }

    public void groupOffsetsAreAlteredListedAndDeleted() throws Exception {
        String topic = newTopic("moved", 2);
        String group = unique("moved");
        TopicPartition one = new TopicPartition(topic, 0);
        TopicPartition two = new TopicPartition(topic, 1);
        result(admin.alterConsumerGroupOffsets(group, Map.of(one, new OffsetAndMetadata(5), two, new OffsetAndMetadata(6))).all());
        equal(6L, result(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(two).offset());
        result(admin.deleteConsumerGroupOffsets(group, Set.of(one)).all());
        equal(Set.of(two), result(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).keySet());
    }

    public void manyTopicsAtOnce() throws Exception {
        String stem = unique("many");
        List<NewTopic> wanted = IntStream.range(0, 50)
                .mapToObj(number -> new NewTopic(stem + "-" + number, 2, (short) 1)).toList();
        admin.createTopics(wanted).all().get(30, TimeUnit.SECONDS);
        List<String> names = wanted.stream().map(NewTopic::name).toList();
        until("fifty topics", () -> result(admin.listTopics().names()).containsAll(names));
        equal(50, result(admin.describeTopics(names).allTopicNames()).size());
        admin.deleteTopics(names).all().get(30, TimeUnit.SECONDS);
    }
}
