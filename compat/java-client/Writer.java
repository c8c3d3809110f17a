import java.io.FileInputStream;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes 0, 1, 2, ... to a topic, 300 records a second, until it gets SIGTERM; prints the outcome of each as a line of JSON:
 * {@code java Writer BOOTSTRAP TOPIC PROPERTIES}.
 *
 * <p>Kafka's VerifiableProducer, whose events these are, closes its producer while its main thread still sends: the last
 * record may then fail without any fault of the broker.
 */
final class Writer {
    private static final long INTERVAL_NS = 1_000_000_000 / 300;

    private Writer() {
    }

    public static void main(String[] arguments) throws Exception {
        Stop stop = Stop.onSignal();
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[2])) {
            settings.load(file);
        }
        settings.put("bootstrap.servers", arguments[0]);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            long due = System.nanoTime();
            for (long number = 0; !stop.isAsked(); number++) {
                send(producer, arguments[1], Long.toString(number));
                due += INTERVAL_NS;
                LockSupport.parkNanos(due - System.nanoTime());
            }
            producer.flush();
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String value) {
        try {
            producer.send(new ProducerRecord<>(topic, value), (metadata, failure) -> say(value, metadata, failure));
        } catch (KafkaException failure) {
            say(value, null, failure);
        }
    }

    private static synchronized void say(String value, RecordMetadata metadata, Exception failure) {
        if (failure == null) {
            System.out.printf("{\"name\":\"producer_send_success\",\"value\":\"%s\",\"partition\":%d,\"offset\":%d}%n",
                    value, metadata.partition(), metadata.offset());
        } else {
            String why = failure.toString().replaceAll("[\\s\"\\\\]+", " ");
            System.out.printf("{\"name\":\"producer_send_error\",\"value\":\"%s\",\"message\":\"%s\"}%n", value, why);
        }
    }
}
