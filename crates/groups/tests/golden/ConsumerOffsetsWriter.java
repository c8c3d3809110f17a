// Fills __consumer_offsets of a running Apache Kafka with groups in every state that its log can tell, writes what
// Kafka then answers about them, and copies the segment while they are alive. The broker has one partition of
// __consumer_offsets; run with the jars of compat/kafka-jars:
//   java -cp 'libs/*' ConsumerOffsetsWriter.java BOOTSTRAP SEGMENT OUT
// where SEGMENT is the broker's __consumer_offsets-0/00000000000000000000.log, and OUT gets .log and .txt appended.

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class ConsumerOffsetsWriter {
    static String bootstrap;

    static KafkaConsumer<byte[], byte[]> consumer(String group, String client, String instance, String protocol) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("group.id", group);
        p.put("client.id", client);
        p.put("group.protocol", protocol);
        p.put("enable.auto.commit", "false");
        if (instance != null) p.put("group.instance.id", instance);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static OffsetAndMetadata at(long offset, int epoch, String metadata) {
        return new OffsetAndMetadata(offset, epoch < 0 ? Optional.empty() : Optional.of(epoch), metadata);
    }

    static KafkaProducer<byte[], byte[]> transaction(String id, String group, long offset) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("transactional.id", id);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(
            Map.of(new TopicPartition("t", 0), at(offset, -1, id)), new ConsumerGroupMetadata(group));
        return producer;
    }


    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        admin.createTopics(List.of(new NewTopic("t", 3, (short) 1), new NewTopic("gone", 1, (short) 1))).all().get();
        TopicPartition t0 = new TopicPartition("t", 0), t1 = new TopicPartition("t", 1), t2 = new TopicPartition("t", 2);

        KafkaConsumer<byte[], byte[]> a = consumer("members", "alpha", null, "classic");
        KafkaConsumer<byte[], byte[]> b = consumer("members", "beta", "beta-1", "classic");
        a.subscribe(List.of("t"));
        b.subscribe(List.of("t"));
        while (a.assignment().isEmpty() || b.assignment().isEmpty() || a.assignment().size() + b.assignment().size() != 3) {
            a.poll(Duration.ofMillis(100));
            b.poll(Duration.ofMillis(100));
        }
        for (KafkaConsumer<byte[], byte[]> c : List.of(a, b)) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition tp : c.assignment()) offsets.put(tp, at(10 + tp.partition(), 0, "größe " + tp));
            c.commitSync(offsets);
        }

        KafkaConsumer<byte[], byte[]> left = consumer("empty", "gamma", null, "classic");
        left.subscribe(List.of("t"));
        while (left.assignment().isEmpty()) left.poll(Duration.ofMillis(100));
        left.commitSync(Map.of(t0, at(1, -1, ""), t1, at(2, 0, "")));
        left.commitSync(Map.of(t0, at(3, -1, "again")));
        left.close();

        for (String group : List.of("simple", "deleted", "offset-deleted", "topic-deleted")) {
            KafkaConsumer<byte[], byte[]> c = consumer(group, "delta", null, "classic");
            TopicPartition other = group.equals("topic-deleted") ? new TopicPartition("gone", 0) : t2;
            c.assign(List.of(t0, other));
            c.commitSync(Map.of(t0, at(7, -1, group), other, at(8, 0, group)));
            c.close();
        }
        admin.deleteConsumerGroups(List.of("deleted")).all().get();
        admin.deleteConsumerGroupOffsets("offset-deleted", Set.of(t2)).all().get();
        admin.deleteTopics(List.of("gone")).all().get();

        transaction("commits", "transactions", 100).commitTransaction();
        transaction("aborts", "transactions", 200).abortTransaction();
        transaction("stays-open", "open", 300).flush();

        KafkaConsumer<byte[], byte[]> modern = consumer("modern", "epsilon", null, "consumer");
        modern.subscribe(List.of("t"));
        while (modern.assignment().isEmpty()) modern.poll(Duration.ofMillis(100));
        Thread.sleep(2000);

        Files.copy(Path.of(args[1]), Path.of(args[2] + ".log"), StandardCopyOption.REPLACE_EXISTING);
        try (PrintWriter out = new PrintWriter(args[2] + ".txt", "UTF-8")) {
            List<String> groups = new ArrayList<>();
            for (GroupListing listing : admin.listGroups().all().get())
                if (listing.type().get().toString().equals("Classic")) groups.add(listing.groupId());
            Collections.sort(groups);
            for (String group : groups) {
                ClassicGroupDescription d = admin.describeClassicGroups(List.of(group)).all().get().get(group);
                out.printf("group\t%s\t%s\t%s\t%s%n", group, d.state(), d.protocol(), d.protocolData());
                List<MemberDescription> members = new ArrayList<>(d.members());
                members.sort(Comparator.comparing(MemberDescription::consumerId));
                for (MemberDescription m : members)
                    out.printf("member\t%s\t%s\t%s\t%s\t%s%n", m.consumerId(), m.groupInstanceId().orElse("-"),
                        m.clientId(), m.host(), new TreeSet<>(Set.copyOf(m.assignment().topicPartitions().stream().map(Object::toString).toList())));
                Map<TopicPartition, OffsetAndMetadata> offsets =
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                Map<String, OffsetAndMetadata> sorted = new TreeMap<>();
                offsets.forEach((tp, offset) -> sorted.put(tp.topic() + "\t" + tp.partition(), offset));
                sorted.forEach((tp, o) -> out.printf("offset\t%s\t%d\t%d\t%s%n", tp, o.offset(), o.leaderEpoch().orElse(-1), o.metadata()));
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
