// Writes batches with Kafka's own classes, and lists batches as Kafka's own classes read them.
//
//   java -cp "$KAFKA_CLASSPATH" Golden.java write DIR        one file a case into DIR, and batches.txt, the listing of all
//   java -cp "$KAFKA_CLASSPATH" Golden.java list FILE...     the listing of the files on standard output
//
// KAFKA_CLASSPATH is the libs folder of a Kafka 4.3 distribution with a star: /path/to/kafka/libs/*
// The files beside this one were written by the first command; run it here to write them anew.

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.CRC32C;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class Golden {
    static final long T = 1_700_000_000_000L;
    static final byte MAGIC = RecordBatch.CURRENT_MAGIC_VALUE;

    public static void main(String[] args) throws Exception {
        if (args.length == 2 && args[0].equals("write")) {
            Path dir = Path.of(args[1]);
            List<Path> files = write(dir);
            try (PrintStream out = new PrintStream(dir.resolve("batches.txt").toFile(), StandardCharsets.UTF_8)) {
                for (Path file : files) list(file, out);
            }
        } else if (args.length >= 2 && args[0].equals("list")) {
            for (int i = 1; i < args.length; i++) list(Path.of(args[i]), System.out);
        } else {
            System.err.println("usage: Golden.java write DIR | list FILE...");
            System.exit(2);
        }
    }

    // ---- writing

    static List<Path> write(Path dir) throws Exception {
        List<Path> files = new ArrayList<>();
        Compression[] codecs = {Compression.NONE, Compression.gzip().build(), Compression.snappy().build(),
            Compression.lz4().build(), Compression.zstd().build()};
        for (Compression codec : codecs) {
            MemoryRecordsBuilder builder = builder(codec, TimestampType.CREATE_TIME, 1000, RecordBatch.NO_TIMESTAMP,
                RecordBatch.NO_PRODUCER_ID, (short) -1, -1, false, false, 7);
            shapes(builder);
            if (codec.type().id > 0) for (int i = 0; i < 4; i++) builder.append(T + 9, bytes("large-" + i), pattern(50_000 + i));
            files.add(save(dir, codec.type().name, builder.build()));

            builder = builder(codec, TimestampType.LOG_APPEND_TIME, 0, T + 500, RecordBatch.NO_PRODUCER_ID, (short) -1, -1,
                false, false, -1);
            shapes(builder);
            files.add(save(dir, codec.type().name + "-log-append-time", builder.build()));
        }
        MemoryRecordsBuilder builder = builder(Compression.NONE, TimestampType.CREATE_TIME, 5_000_000_000L, -1, 4711L, (short) 3,
            Integer.MAX_VALUE - 1, true, false, 12);
        shapes(builder);
        files.add(save(dir, "transactional-sequence-wraps", builder.build()));

        builder = builder(Compression.NONE, TimestampType.CREATE_TIME, 0, -1, -1L, (short) -1, -1, false, false, -1);
        builder.append(RecordBatch.NO_TIMESTAMP, bytes("k"), bytes("v"));
        files.add(save(dir, "no-timestamp", builder.build()));

        builder = builder(Compression.NONE, TimestampType.CREATE_TIME, 100, -1, -1L, (short) -1, -1, false, false, 4);
        for (long offset : new long[] {100, 103, 107, 1_000_000}) builder.appendWithOffset(offset, T + offset, bytes("k" + offset), null);
        builder.overrideLastOffset(1_000_009);
        files.add(save(dir, "compacted", builder.build()));

        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(empty, MAGIC, 99L, (short) 1, 40, 200, 209, 4, TimestampType.CREATE_TIME, T, false, false);
        empty.flip();
        files.add(save(dir, "empty", MemoryRecords.readableRecords(empty)));

        builder = new MemoryRecordsBuilder(new org.apache.kafka.common.utils.ByteBufferOutputStream(1024), MAGIC, Compression.NONE,
            TimestampType.CREATE_TIME, 300, -1, 8L, (short) 0, 0, false, false, 4, 1 << 20, T + 86_400_000L);
        shapes(builder);
        files.add(save(dir, "delete-horizon", builder.build()));

        files.add(save(dir, "control-commit", MemoryRecords.withEndTransactionMarker(50, T, 3, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 17))));
        files.add(save(dir, "control-abort", MemoryRecords.withEndTransactionMarker(51, T, 3, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 17))));
        files.add(save(dir, "control-leader-change", MemoryRecords.withLeaderChangeMessage(0, T, 1, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setLeaderId(1))));
        files.add(save(dir, "control-snapshot-header", MemoryRecords.withSnapshotHeaderRecord(0, T, 1, ByteBuffer.allocate(512),
            new SnapshotHeaderRecord().setLastContainedLogTimestamp(T))));
        files.add(save(dir, "control-snapshot-footer", MemoryRecords.withSnapshotFooterRecord(9, T, 1, ByteBuffer.allocate(512),
            new SnapshotFooterRecord())));
        files.add(save(dir, "control-kraft-version", MemoryRecords.withKRaftVersionRecord(1, T, 1, ByteBuffer.allocate(512),
            new KRaftVersionRecord().setKRaftVersion((short) 1))));
        files.add(save(dir, "control-kraft-voters", MemoryRecords.withVotersRecord(2, T, 1, ByteBuffer.allocate(512), new VotersRecord())));
        return files;
    }

    static MemoryRecordsBuilder builder(Compression codec, TimestampType type, long baseOffset, long logAppendTime, long producerId,
                                        short epoch, int sequence, boolean transactional, boolean control, int leaderEpoch) {
        return MemoryRecords.builder(ByteBuffer.allocate(1024), MAGIC, codec, type, baseOffset, logAppendTime, producerId, epoch,
            sequence, transactional, control, leaderEpoch);
    }

    /** Records of every shape: null, empty and present keys and values, headers, times that go back and far ahead. */
    static void shapes(MemoryRecordsBuilder builder) {
        builder.append(T, bytes("key"), bytes("value"));
        builder.append(T + 7, (byte[]) null, bytes("no key"));
        builder.append(T + 3, bytes("tombstone"), (byte[]) null);
        builder.append(T - 100, (byte[]) null, (byte[]) null);
        builder.append(T, new byte[0], new byte[0]);
        builder.append(T + 40_000_000_000L, bytes("k"), pattern(300), new Header[] {
            new RecordHeader("trace", bytes("abc")), new RecordHeader("null", (byte[]) null), new RecordHeader("", new byte[0]),
            new RecordHeader("trace", bytes("again")), new RecordHeader("schlüssel-鍵", pattern(100))});
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] pattern(int length) {
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) bytes[i] = (byte) (i * 31 % 251);
        return bytes;
    }

    static Path save(Path dir, String name, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Path file = dir.resolve(name + ".bin");
        Files.write(file, bytes);
        return file;
    }

    // ---- listing

    static void list(Path file, PrintStream out) throws Exception {
        out.println("# " + file.getFileName().toString().replace(".bin", ""));
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file))).batches()) {
            batch.ensureValid();
            out.printf("batch size=%d offsets=%d..%d epoch=%d codec=%s time=%s max=%d producer=%d/%d sequences=%d..%d "
                    + "transactional=%b control=%b horizon=%s count=%d crc=%08x%n",
                batch.sizeInBytes(), batch.baseOffset(), batch.lastOffset(), batch.partitionLeaderEpoch(),
                batch.compressionType().name, batch.timestampType().name, batch.maxTimestamp(), batch.producerId(),
                batch.producerEpoch(), batch.baseSequence(), batch.lastSequence(), batch.isTransactional(),
                batch.isControlBatch(),
                batch.deleteHorizonMs().isPresent() ? Long.toString(batch.deleteHorizonMs().getAsLong()) : "none",
                batch.countOrNull(), batch.checksum());
            for (var record : batch) {
                out.printf("record offset=%d time=%d sequence=%d key=%s value=%s", record.offset(), record.timestamp(),
                    record.sequence(), show(record.key()), show(record.value()));
                for (Header header : record.headers())
                    out.printf(" %s=%s", show(ByteBuffer.wrap(bytes(header.key()))),
                        show(header.value() == null ? null : ByteBuffer.wrap(header.value())));
                if (batch.isControlBatch()) out.printf(" kind=%d", ControlRecordType.parse(record.key()).type());
                out.println();
            }
        }
    }

    /** Hexadecimal digits; of what is longer than 16 bytes, length and CRC-32C. */
    static String show(ByteBuffer field) {
        if (field == null) return "null";
        byte[] bytes = new byte[field.remaining()];
        field.duplicate().get(bytes);
        if (bytes.length <= 16) return "'" + HexFormat.of().formatHex(bytes) + "'";
        CRC32C crc = new CRC32C();
        crc.update(bytes);
        return String.format("%d:%08x", bytes.length, crc.getValue());
    }
}
