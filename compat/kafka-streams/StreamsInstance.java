import java.util.Map;

import org.apache.kafka.streams.KafkaStreams;

/**
 * An instance of the word count in a process of its own, which may be killed and started again. Counts exactly once until its
 * input ends, and exits with 1 if Kafka Streams gives up. Usage: StreamsInstance ID NAME REPLICAS IN_FLIGHT
 */
public final class StreamsInstance {
    private StreamsInstance() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings =
                Map.of("processing.guarantee", "exactly_once_v2", "producer.max.in.flight.requests.per.connection", args[3]);
        Application words = new Application(args[0], Short.parseShort(args[2]), settings);
        KafkaStreams instance = words.start(args[1]);
        while (System.in.available() == 0) {
            if (instance.state() == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
            Thread.sleep(200);
        }
        words.stop(args[1]);
        Runtime.getRuntime().halt(0);
    }
}
