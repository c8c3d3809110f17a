/** Kafka Streams with the streams protocol (KIP-1071) and with the classic one against the broker at $BOOTSTRAP. */
public final class KafkaStreamsSuite {
    private KafkaStreamsSuite() {
    }

    public static void main(String[] words) throws Exception {
        Suite.run(words, 2, new StreamsTests(), new StreamsToolTests(), new ClassicTests());
    }
}
