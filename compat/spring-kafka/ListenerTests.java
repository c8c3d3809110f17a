import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.ShareKafkaListenerContainerFactory;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties.ShareAckMode;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.ShareAcknowledgment;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.SendTo;

/** Listeners of groups and of share groups, and templates that wait for replies. */
final class ListenerTests extends Suite {
    private static final int RECORDS = 200;

    @Configuration
    static class Listener {
        final Collection<String> got = new ConcurrentLinkedQueue<>();

        @Bean
        NewTopic topic(@Value("${topic}") String topic) {
            return TopicBuilder.name(topic).partitions(4).replicas(1).build();
        }

        @KafkaListener(id = "${group}", topics = "${topic}")
        void listen(ConsumerRecord<String, String> record, @Header("colour") String colour) {
            got.add(record.value() + " " + colour);
        }
    }

    private static void send(Application application, int first, int last) throws Exception {
        for (int number = first; number < last; number++) {
            ProducerRecord<String, String> record = new ProducerRecord<>(application.property("topic"), "k" + number, "v" + number);
            record.headers().add("colour", "blue".getBytes());
            application.template().send(record).get(60, TimeUnit.SECONDS);
        }
    }

    private static Set<String> values(int first, int last) {
        return new TreeSet<>(IntStream.range(first, last).mapToObj(number -> "v" + number + " blue").toList());
    }

    private static void await(Application application, Set<String> expected) throws Exception {
        Collection<String> got = application.bean(Listener.class).got;
        until("every record", () -> got.size() >= expected.size());
        equal(expected, new TreeSet<>(got));
        equal(expected.size(), got.size());
    }

    private static void everyRecordComesOnce(String protocol) throws Exception {
        String topic = unique("topic");
        String group = unique("group");
        try (Application first = new Application(Listener.class, "topic", topic, "group", group, "protocol", protocol)) {
            send(first, 0, RECORDS);
            await(first, values(0, RECORDS));
        }
        try (Admin admin = Application.admin()) {
            Collection<OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values();
            equal((long) RECORDS, offsets.stream().mapToLong(OffsetAndMetadata::offset).sum());
        }
        // Another instance of the same group goes on where the first one stopped.
        try (Application second = new Application(Listener.class, "topic", topic, "group", group, "protocol", protocol)) {
            send(second, RECORDS, RECORDS + 20);
            await(second, values(RECORDS, RECORDS + 20));
        }
    }

    public void everyRecordComesOnceByTheClassicProtocol() throws Exception {
        everyRecordComesOnce("classic");
    }

    public void everyRecordComesOnceByTheConsumerProtocol() throws Exception {
        everyRecordComesOnce("consumer");
    }

    @Configuration
    static class Replier {
        @Bean
        KafkaAdmin.NewTopics topics(@Value("${topic}") String topic) {
            return new KafkaAdmin.NewTopics(new NewTopic(topic, 2, (short) 1), new NewTopic(topic + "-replies", 2, (short) 1));
        }

        @KafkaListener(id = "${group}", topics = "${topic}")
        @SendTo
        String answer(String question) {
            return question.toUpperCase(java.util.Locale.ROOT);
        }

        @Bean
        ReplyingKafkaTemplate<String, String, String> replying(
                ProducerFactory<String, String> producers, ConsumerFactory<String, String> consumers, @Value("${topic}") String topic,
                ConcurrentKafkaListenerContainerFactory<String, String> factory, KafkaTemplate<String, String> template) {
            factory.setReplyTemplate(template);
            ConcurrentMessageListenerContainer<String, String> replies = factory.createContainer(topic + "-replies");
            replies.getContainerProperties().setGroupId(topic + "-replies");
            replies.setAutoStartup(false);
            return new ReplyingKafkaTemplate<>(producers, replies);
        }
    }

    public void repliesComeToTheirQuestions() throws Exception {
        try (Application application = new Application(Replier.class)) {
            @SuppressWarnings("unchecked")
            ReplyingKafkaTemplate<String, String, String> template = application.bean(ReplyingKafkaTemplate.class);
            check(template.waitForAssignment(Duration.ofSeconds(60)), "the replies are assigned");
            for (int number = 0; number < 20; number++) {
                ProducerRecord<String, String> question = new ProducerRecord<>(application.property("topic"), "question " + number);
                equal("QUESTION " + number, template.sendAndReceive(question, Duration.ofSeconds(60)).get(60, TimeUnit.SECONDS).value());
            }
        }
    }

    /** Accepts values, once they have come twice where they are odd, and rejects those that are bad. */
    @Configuration
    static class Sharer {
        final Collection<String> accepted = new ConcurrentLinkedQueue<>();
        final Collection<String> released = new ConcurrentLinkedQueue<>();
        final Collection<String> rejected = new ConcurrentLinkedQueue<>();

        @Bean
        KafkaAdmin.NewTopics topics(@Value("${topic}") String topic) {
            return new KafkaAdmin.NewTopics(new NewTopic(topic, 2, (short) 1));
        }

        @Bean
        ShareKafkaListenerContainerFactory<String, String> sharing() {
            ShareKafkaListenerContainerFactory<String, String> factory = new ShareKafkaListenerContainerFactory<>(
                    new DefaultShareConsumerFactory<>(Application.settings(), StringDeserializer::new, StringDeserializer::new));
            factory.setConcurrency(3);
            factory.getContainerProperties().setShareAckMode(ShareAckMode.MANUAL);
            return factory;
        }

        @KafkaListener(id = "share", groupId = "${group}", topics = "${topic}", containerFactory = "sharing")
        void listen(ConsumerRecord<String, String> record, ShareAcknowledgment acknowledgment) {
            String value = record.value();
            if (value.startsWith("bad")) {
                rejected.add(value);
                acknowledgment.reject();
            } else if (value.startsWith("odd") && record.deliveryCount().orElseThrow() < 2) {
                released.add(value);
                acknowledgment.release();
            } else {
                accepted.add(value);
                acknowledgment.acknowledge();
            }
        }
    }

    public void aShareGroupAcceptsReleasesAndRejects() throws Exception {
        String group = unique("share");
        try (Admin admin = Application.admin()) {
            // A new share group begins at the end of its topics, unless it is told otherwise.
            AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(earliest))).all().get();
        }
        try (Application application = new Application(Sharer.class, "group", group)) {
            List<String> good = new ArrayList<>();
            for (int number = 0; number < 30; number++) {
                String value = (number % 10 == 9 ? "bad" : number % 2 == 1 ? "odd" : "even") + number;
                application.template().send(application.property("topic"), value).get(60, TimeUnit.SECONDS);
                if (!value.startsWith("bad")) {
                    good.add(value);
                }
            }
            Sharer sharer = application.bean(Sharer.class);
            until("27 accepted, 3 rejected", () -> sharer.accepted.size() >= good.size() && sharer.rejected.size() >= 3);
            equal(new TreeSet<>(good), new TreeSet<>(sharer.accepted));
            equal(good.size(), sharer.accepted.size());
            equal(new TreeSet<>(List.of("bad9", "bad19", "bad29")), new TreeSet<>(sharer.rejected));
            equal(12, sharer.released.size());
        }
    }
}
