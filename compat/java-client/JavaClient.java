/** Kafka's own Java client against the broker at $BOOTSTRAP: one virtual machine, several tests at a time. */
public final class JavaClient {
    private JavaClient() {
    }

    public static void main(String[] words) throws Exception {
        Suite.run(words, 4, new ProducerTests(), new ConsumerTests(), new GroupTests(), new ConsumerProtocolTests(),
                new TransactionTests(), new ShareTests(), new AdminTests());
    }
}
