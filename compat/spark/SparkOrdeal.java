import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryException;

/**
 * Two streaming queries of a Spark in this process copy numbers from a topic: one to a topic, at least once, and one to files,
 * exactly once. A query that fails is started again from its checkpoint. Then a batch query reads the topic.
 */
public final class SparkOrdeal {
    /** By the name of a query: its next record fails it. */
    private static final Map<String, AtomicBoolean> FAILURES_DUE =
            Map.of("topic", new AtomicBoolean(), "files", new AtomicBoolean());
    private static final long DRAIN_MS = 60_000;

    private final SparkSession spark;
    private final Ledger ledger;
    private final String place = System.getenv("WORK");
    private volatile boolean running = true;

    private SparkOrdeal(SparkSession spark, Ledger ledger) {
        this.spark = spark;
        this.ledger = ledger;
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder()
                .master("local[2]")
                .config("spark.ui.enabled", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.streaming.minBatchesToRetain", "10")
                .getOrCreate();
        SparkOrdeal ordeal = new SparkOrdeal(spark, new Ledger("spark"));
        ordeal.keepRunning("topic");
        ordeal.keepRunning("files");
        ordeal.ledger.run(() -> FAILURES_DUE.values().forEach(due -> due.set(true)), false);
        ordeal.auditFiles();
        ordeal.auditBatch();
        Runtime.getRuntime().halt(0);
    }

    /** Starts a query again and again, until the ordeal ends. */
    private void keepRunning(String name) {
        Thread thread = new Thread(() -> {
            while (running) {
                try {
                    query(name).awaitTermination();
                } catch (StreamingQueryException failed) {
                    System.err.println(name + " failed: " + failed.getMessage());
                } catch (Exception failed) {
                    failed.printStackTrace();
                }
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private StreamingQuery query(String name) throws Exception {
        Dataset<String> numbers = spark.readStream().format("kafka").options(topic(ledger.input)).load()
                .selectExpr("CAST(value AS STRING)").as(Encoders.STRING())
                .map((MapFunction<String, String>) number -> copy(name, number), Encoders.STRING());
        DataStreamWriter<Row> writer = numbers.selectExpr("value AS key", "value").writeStream()
                .queryName(name).option("checkpointLocation", place + "/checkpoint-" + name);
        if (name.equals("files")) {
            return writer.format("json").option("path", place + "/files").start();
        }
        return writer.format("kafka").option("kafka.bootstrap.servers", System.getenv("BOOTSTRAP")).option("topic", ledger.output).start();
    }

    private static String copy(String query, String number) {
        if (FAILURES_DUE.get(query).compareAndSet(true, false)) {
            throw new IllegalStateException("a failure on purpose");
        }
        return number;
    }

    private static Map<String, String> topic(String topic) {
        Map<String, String> options = new HashMap<>(Map.of("subscribe", topic, "startingOffsets", "earliest", "failOnDataLoss", "true"));
        options.put("kafka.bootstrap.servers", System.getenv("BOOTSTRAP"));
        return options;
    }

    private void auditFiles() throws InterruptedException {
        long deadline = System.currentTimeMillis() + DRAIN_MS;
        while (spark.read().json(place + "/files").select("value").distinct().count() < ledger.written() && System.currentTimeMillis() < deadline) {
            Thread.sleep(500);
        }
        running = false;
        Dataset<Row> files = spark.read().json(place + "/files").select("value");
        say("files", files.count(), files.distinct().count());
    }

    private void auditBatch() {
        Dataset<Row> records = spark.read().format("kafka").options(topic(ledger.input)).load().selectExpr("CAST(value AS STRING)");
        say("batch", records.count(), records.distinct().count());
    }

    private void say(String what, long all, long distinct) {
        boolean good = all == ledger.written() && distinct == all;
        System.out.println(what + (good ? " passed" : " failed") + ": " + all + " records, " + distinct + " numbers of " + ledger.written());
    }
}
