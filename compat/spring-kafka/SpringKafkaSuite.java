/** Spring for Apache Kafka on the broker at $BOOTSTRAP: listeners, retries, transactions. */
public final class SpringKafkaSuite extends Suite {
    private SpringKafkaSuite() {
    }

    public static void main(String[] words) throws Exception {
        // A node of Apache Kafka that has just started is slow with more.
        run(words, 2, new ListenerTests(), new RetryTests(), new TransactionTests());
    }
}
