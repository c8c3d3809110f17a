import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.transaction.KafkaTransactionManager;

/**
 * A listener copies numbers from topic to topic, in transactions with its offsets if it is to do so exactly once. Usage:
 * SpringOrdeal GUARANTEE PROTOCOL
 */
public final class SpringOrdeal {
    private static final AtomicBoolean FAILURE_DUE = new AtomicBoolean();

    private SpringOrdeal() {
    }

    @Configuration
    static class Once {
        @Bean
        @Primary
        ProducerFactory<String, String> transactional(ConcurrentKafkaListenerContainerFactory<String, String> listeners) {
            DefaultKafkaProducerFactory<String, String> factory =
                    new DefaultKafkaProducerFactory<>(Application.settings(), new StringSerializer(), new StringSerializer());
            factory.setTransactionIdPrefix("spring-");
            listeners.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(factory));
            return factory;
        }

        @Bean
        Copier copier(KafkaTemplate<String, String> template, @Value("${output}") String output) {
            return new Copier(template, output);
        }
    }

    @Configuration
    static class AtLeastOnce {
        @Bean
        Copier copier(KafkaTemplate<String, String> template, @Value("${output}") String output) {
            return new Copier(template, output);
        }
    }

    /** Passes numbers on, and fails when that is due, after a number was sent. */
    static final class Copier {
        private final KafkaTemplate<String, String> template;
        private final String output;

        Copier(KafkaTemplate<String, String> template, String output) {
            this.template = template;
            this.output = output;
        }

        @KafkaListener(id = "spring", topics = "${input}")
        void copy(String number) {
            template.send(output, number, number);
            if (FAILURE_DUE.compareAndSet(true, false)) {
                throw new IllegalStateException("a failure on purpose");
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean once = arguments[0].equals("exactly_once");
        Ledger ledger = new Ledger("spring");
        Class<?> beans = once ? Once.class : AtLeastOnce.class;
        Application application = new Application(beans, "input", ledger.input, "output", ledger.output, "protocol", arguments[1]);
        ledger.run(() -> FAILURE_DUE.set(true), once);
        application.close();
        Runtime.getRuntime().halt(0);
    }
}
