import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job on a cluster of Flink in this process copies numbers from topic to topic, with a checkpoint every 200 ms. Usage:
 * FlinkOrdeal GUARANTEE NAMING
 */
public final class FlinkOrdeal {
    private static final int PARALLELISM = 2;
    private static final int CHECKPOINT_MS = 200;

    private FlinkOrdeal() {
    }

    /** Passes numbers on, and fails when that is due: all that came after the last checkpoint is then read once more. */
    private static final class Copy implements MapFunction<String, String> {
        private static final AtomicBoolean FAILURE_DUE = new AtomicBoolean();

        @Override
        public String map(String number) {
            if (FAILURE_DUE.compareAndSet(true, false)) {
                throw new IllegalStateException("a failure on purpose");
            }
            return number;
        }
    }

    public static void main(String[] arguments) throws Exception {
        DeliveryGuarantee guarantee = DeliveryGuarantee.valueOf(arguments[0].toUpperCase(Locale.ROOT));
        TransactionNamingStrategy naming = TransactionNamingStrategy.valueOf(arguments[1].toUpperCase(Locale.ROOT));
        Ledger ledger = new Ledger("flink");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, configuration());
        environment.enableCheckpointing(CHECKPOINT_MS);
        environment.fromSource(source(ledger), WatermarkStrategy.noWatermarks(), "numbers")
                .map(new Copy())
                .sinkTo(sink(ledger, guarantee, naming));
        environment.executeAsync("copy");
        ledger.run(() -> Copy.FAILURE_DUE.set(true), guarantee == DeliveryGuarantee.EXACTLY_ONCE);
        Runtime.getRuntime().halt(0);
    }

    /** Any number of restarts, soon after a failure. */
    private static Configuration configuration() {
        Configuration configuration = new Configuration();
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "1000");
        configuration.setString("restart-strategy.fixed-delay.delay", "200 ms");
        configuration.setString("taskmanager.memory.network.min", "32 mb");
        configuration.setString("taskmanager.memory.network.max", "32 mb");
        return configuration;
    }

    private static KafkaSource<String> source(Ledger ledger) {
        return KafkaSource.<String>builder()
                .setBootstrapServers(System.getenv("BOOTSTRAP"))
                .setGroupId("flink")
                .setTopics(ledger.input)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
    }

    private static KafkaSink<String> sink(Ledger ledger, DeliveryGuarantee guarantee, TransactionNamingStrategy naming) {
        return KafkaSink.<String>builder()
                .setBootstrapServers(System.getenv("BOOTSTRAP"))
                .setDeliveryGuarantee(guarantee)
                .setTransactionalIdPrefix("flink-" + UUID.randomUUID())
                .setTransactionNamingStrategy(naming)
                // The sink asks for an hour, which is more than a broker allows by default.
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(ledger.output)
                        .setKeySerializationSchema(new SimpleStringSchema())
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
    }
}
