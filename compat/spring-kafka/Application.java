import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.support.PropertySourcesPlaceholderConfigurer;
import org.springframework.core.env.Environment;
import org.springframework.core.env.MapPropertySource;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;

/** An application of Spring: the beans that every test needs, those of a class of the test, and its properties. */
final class Application extends Suite implements AutoCloseable {
    private final AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();

    /** Starts the application. Properties are passed as key, value, key, value; `topic` and `group` have unique names. */
    Application(Class<?> configuration, Object... properties) {
        Map<String, Object> all = new HashMap<>(Map.of("topic", unique("topic"), "group", unique("group"), "protocol", "classic"));
        for (int i = 0; i < properties.length; i += 2) {
            all.put((String) properties[i], properties[i + 1]);
        }
        context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("test", all));
        context.register(Beans.class, configuration);
        context.refresh();
    }

    static Map<String, Object> settings(Object... more) {
        Map<String, Object> all = new HashMap<>(SECURITY);
        all.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < more.length; i += 2) {
            all.put((String) more[i], more[i + 1]);
        }
        return all;
    }

    static Admin admin() {
        return Admin.create(settings());
    }

    String property(String name) {
        return context.getEnvironment().getProperty(name);
    }

    <T> T bean(Class<T> type) {
        return context.getBean(type);
    }

    @SuppressWarnings("unchecked")
    KafkaTemplate<String, String> template() {
        return context.getBean("kafkaTemplate", KafkaTemplate.class);
    }

    @Override
    public void close() {
        context.close();
    }

    /** The beans that Spring Boot would configure. */
    @Configuration
    @EnableKafka
    static class Beans {
        @Bean
        static PropertySourcesPlaceholderConfigurer placeholders() {
            return new PropertySourcesPlaceholderConfigurer();
        }

        @Bean
        KafkaAdmin kafkaAdmin() {
            return new KafkaAdmin(settings());
        }

        @Bean
        ProducerFactory<String, String> producerFactory() {
            return new DefaultKafkaProducerFactory<>(settings(), new StringSerializer(), new StringSerializer());
        }

        @Bean
        KafkaTemplate<String, String> kafkaTemplate(ProducerFactory<String, String> producerFactory) {
            return new KafkaTemplate<>(producerFactory);
        }

        @Bean
        ConsumerFactory<String, String> consumerFactory(Environment environment) {
            Map<String, Object> all = settings("auto.offset.reset", "earliest", "isolation.level", "read_committed");
            all.put("group.protocol", environment.getProperty("protocol"));
            all.put("metadata.max.age.ms", 1_000);
            return new DefaultKafkaConsumerFactory<>(all, new StringDeserializer(), new StringDeserializer());
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(ConsumerFactory<String, String> consumers) {
            ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
            factory.setConsumerFactory(consumers);
            factory.setConcurrency(3);
            factory.getContainerProperties().setPollTimeout(200);
            return factory;
        }
    }
}
