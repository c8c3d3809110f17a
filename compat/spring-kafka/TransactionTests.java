import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.transaction.KafkaTransactionManager;

/** Transactions of templates, and of listeners with their offsets. */
final class TransactionTests extends Suite {
    /** A factory of transactional producers, and a listener that collects what is committed. */
    @Configuration
    static class Transactions {
        final Collection<String> committed = new ConcurrentLinkedQueue<>();

        @Bean
        KafkaAdmin.NewTopics topics(@Value("${topic}") String topic) {
            return new KafkaAdmin.NewTopics(new NewTopic(topic, 2, (short) 1), new NewTopic(topic + "-out", 1, (short) 1));
        }

        @Bean
        @Primary
        static ProducerFactory<String, String> transactional() {
            DefaultKafkaProducerFactory<String, String> factory =
                    new DefaultKafkaProducerFactory<>(Application.settings(), new StringSerializer(), new StringSerializer());
            factory.setTransactionIdPrefix(unique("spring") + "-");
            return factory;
        }

        @KafkaListener(id = "${group}-reader", topics = "${topic}-out")
        void read(String value) {
            committed.add(value);
        }
    }

    public void aTransactionOfATemplateIsAllOrNothing() throws Exception {
        try (Application application = new Application(Transactions.class)) {
            KafkaTemplate<String, String> template = application.template();
            String topic = application.property("topic") + "-out";
            template.executeInTransaction(operations -> List.of(operations.send(topic, "a1"), operations.send(topic, "a2")));
            try {
                template.executeInTransaction(operations -> {
                    operations.send(topic, "b1");
                    operations.flush();
                    throw new IllegalStateException("aborted on purpose");
                });
                check(false, "the exception was swallowed");
            } catch (IllegalStateException expected) {
                equal("aborted on purpose", expected.getMessage());
            }
            template.executeInTransaction(operations -> operations.send(topic, "c1"));
            Collection<String> committed = application.bean(Transactions.class).committed;
            until("the last value", () -> committed.contains("c1"));
            equal(List.of("a1", "a2", "c1"), List.copyOf(committed));
        }
    }

    /** Copies values in a transaction with the offsets; each third one fails at its first try, after it was sent. */
    @Configuration
    static class Copier extends Transactions {
        private final AtomicInteger failures = new AtomicInteger();
        private final Collection<String> failed = new ConcurrentLinkedQueue<>();
        private final KafkaTemplate<String, String> template;
        private final String output;

        Copier(ConcurrentKafkaListenerContainerFactory<String, String> factory, KafkaTemplate<String, String> template, @Value("${topic}") String topic) {
            factory.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(template.getProducerFactory()));
            this.template = template;
            output = topic + "-out";
        }

        @KafkaListener(id = "${group}", topics = "${topic}")
        void copy(String value) {
            template.send(output, value);
            int number = Integer.parseInt(value.substring(1));
            if (number % 3 == 0 && !failed.contains(value)) {
                failed.add(value);
                failures.incrementAndGet();
                throw new IllegalStateException("rolled back on purpose");
            }
        }
    }

    public void aListenersTransactionTakesItsOffsetsWithIt() throws Exception {
        try (Application application = new Application(Copier.class)) {
            List<String> values = new ArrayList<>(IntStream.range(0, 60).mapToObj(number -> "v" + number).toList());
            application.template().executeInTransaction(operations -> {
                values.forEach(value -> operations.send(application.property("topic"), value, value));
                return null;
            });
            Copier copier = application.bean(Copier.class);
            until("every value", () -> copier.committed.size() >= values.size());
            equal(20, copier.failures.get());
            equal(values.stream().sorted().toList(), copier.committed.stream().sorted().toList());
            try (Admin admin = Application.admin()) {
                until("the group's offsets", () -> {
                    Collection<OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(application.property("group"))
                            .partitionsToOffsetAndMetadata().get(60, TimeUnit.SECONDS).values();
                    // Two partitions, each with the marker of the transaction that wrote the values.
                    return offsets.stream().mapToLong(OffsetAndMetadata::offset).sum() >= values.size();
                });
            }
        }
    }
}
