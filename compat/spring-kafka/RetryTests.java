import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/** Records that a listener refuses: by topics for later tries, and by tries on the spot; the last place is a dead letter topic. */
final class RetryTests extends Suite {
    /** Takes good values at once, flaky ones at their second try, bad ones never. */
    @Configuration
    @EnableKafkaRetryTopic
    static class Later {
        final Collection<String> tries = new ConcurrentLinkedQueue<>();
        final Collection<String> dead = new ConcurrentLinkedQueue<>();

        @Bean
        TaskScheduler taskScheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        NewTopic topic(@Value("${topic}") String topic) {
            return new NewTopic(topic, 2, (short) 1);
        }

        @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 300), numPartitions = "2", replicationFactor = "1")
        @KafkaListener(id = "${group}", topics = "${topic}")
        void listen(String value, @Header(KafkaHeaders.RECEIVED_TOPIC) String topic) {
            boolean first = !topic.contains("-retry");
            tries.add(value + (first ? "" : " again"));
            if (value.startsWith("bad") || value.startsWith("flaky") && first) {
                throw new IllegalStateException("refused on purpose");
            }
        }

        @DltHandler
        void dead(String value, @Header(KafkaHeaders.ORIGINAL_TOPIC) byte[] from) {
            dead.add(value + " from " + new String(from));
        }
    }

    public void aRefusedRecordIsTriedLaterAndThenDead() throws Exception {
        try (Application application = new Application(Later.class)) {
            String topic = application.property("topic");
            for (String value : List.of("good1", "flaky1", "bad1", "good2")) {
                application.template().send(topic, value, value).get(60, TimeUnit.SECONDS);
            }
            Later later = application.bean(Later.class);
            until("the bad value is dead", () -> !later.dead.isEmpty());
            until("seven tries", () -> later.tries.size() >= 7);
            equal(List.of("bad1 from " + topic), List.copyOf(later.dead));
            equal("[bad1, bad1 again, bad1 again, flaky1, flaky1 again, good1, good2]", later.tries.stream().sorted().toList().toString());
            try (Admin admin = Application.admin()) {
                Set<String> made = new TreeSet<>(admin.listTopics().names().get());
                made.removeIf(name -> !name.startsWith(topic));
                equal(Set.of(topic, topic + "-retry", topic + "-dlt"), made);
            }
        }
    }

    @Configuration
    static class AtOnce {
        final Collection<String> tries = new ConcurrentLinkedQueue<>();
        final Collection<ConsumerRecord<String, String>> dead = new ConcurrentLinkedQueue<>();

        @Bean
        KafkaAdmin.NewTopics topics(@Value("${topic}") String topic) {
            return new KafkaAdmin.NewTopics(new NewTopic(topic, 2, (short) 1), new NewTopic(topic + "-dlt", 2, (short) 1));
        }

        AtOnce(ConcurrentKafkaListenerContainerFactory<String, String> factory, KafkaTemplate<String, String> template) {
            factory.setCommonErrorHandler(new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template), new FixedBackOff(100, 2)));
        }

        @KafkaListener(id = "${group}", topics = "${topic}")
        void listen(String value) {
            tries.add(value);
            if (value.startsWith("bad")) {
                throw new IllegalStateException("refused on purpose");
            }
        }

        @KafkaListener(id = "${group}-dead", topics = "${topic}-dlt")
        void dead(ConsumerRecord<String, String> record) {
            dead.add(record);
        }
    }

    public void aRecordThatIsRefusedThreeTimesIsDead() throws Exception {
        try (Application application = new Application(AtOnce.class)) {
            for (String value : List.of("good1", "bad1", "good2")) {
                application.template().send(application.property("topic"), 0, value, value).get(60, TimeUnit.SECONDS);
            }
            AtOnce tests = application.bean(AtOnce.class);
            until("the bad value is dead, and the last one good", () -> !tests.dead.isEmpty() && tests.tries.contains("good2"));
            equal(List.of("good1", "bad1", "bad1", "bad1", "good2"), List.copyOf(tests.tries));
            ConsumerRecord<String, String> record = tests.dead.iterator().next();
            equal("bad1", record.value());
            equal(application.property("topic"), new String(record.headers().lastHeader(KafkaHeaders.DLT_ORIGINAL_TOPIC).value()));
        }
    }
}
