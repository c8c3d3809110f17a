// What Apache Kafka's own classes take for what `validation.rs` measures, on the same batches:
//
//   BATCHES_TO=DIR cargo bench -p thalweg-record --bench validation
//   java -Xmx1g -cp "$KAFKA_CLASSPATH" crates/record/benches/KafkaValidation.java DIR
//
// A row for each batch: microseconds for the check of its CRC (`ensureValid`), for that and the look into its records
// (`LogValidator`, as a broker calls it for a topic with default settings), and the difference per record. Each is the best
// of several runs once the compiler has warmed up.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class KafkaValidation {
    static final BufferSupplier BUFFERS = BufferSupplier.create();
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    static final LogValidator.MetricsRecorder METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    };

    public static void main(String[] args) throws Exception {
        List<Path> files;
        try (Stream<Path> all = Files.list(Path.of(args[0]))) {
            files = all.sorted().toList();
        }
        for (Path file : files) {
            byte[] bytes = Files.readAllBytes(file);
            int copies = Math.min(512, Math.max(4, (2 << 20) / bytes.length));
            ByteBuffer[] batches = new ByteBuffer[copies];
            for (int i = 0; i < copies; i++) batches[i] = ByteBuffer.wrap(bytes.clone());
            int count = ByteBuffer.wrap(bytes).getInt(57);
            double crc = best(batches, KafkaValidation::check);
            double all = best(batches, KafkaValidation::validate);
            String name = file.getFileName().toString();
            System.out.printf("| %s | %.1f µs | %.1f µs | %.1f ns |%n", name, crc / 1e3, all / 1e3, (all - crc) / count);
        }
    }

    interface Visit {
        void visit(ByteBuffer batch);
    }

    static double best(ByteBuffer[] batches, Visit visit) {
        double best = Double.MAX_VALUE;
        long warm = System.nanoTime() + 1_500_000_000L;
        for (int run = 0; run < 40 || System.nanoTime() < warm; run++) {
            long began = System.nanoTime();
            for (ByteBuffer batch : batches) visit.visit(batch);
            best = Math.min(best, (System.nanoTime() - began) / (double) batches.length);
        }
        return best;
    }

    static MemoryRecords check(ByteBuffer bytes) {
        bytes.putLong(0, 0);
        MemoryRecords records = MemoryRecords.readableRecords(bytes.duplicate());
        for (RecordBatch batch : records.batches()) batch.ensureValid();
        return records;
    }

    static void validate(ByteBuffer bytes) {
        MemoryRecords records = check(bytes);
        CompressionType codec = records.firstBatch().compressionType();
        LogValidator validator = new LogValidator(records, PARTITION, Time.SYSTEM, codec, Compression.of(codec).build(), false,
            RecordBatch.CURRENT_MAGIC_VALUE, TimestampType.CREATE_TIME, Long.MAX_VALUE, 3_600_000, 0, AppendOrigin.CLIENT);
        validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), METRICS, BUFFERS);
    }
}
