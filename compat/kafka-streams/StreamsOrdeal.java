/**
 * A word count exactly once while its broker is killed. Begins at once, prints how many lines are written, ends with its input,
 * waits for the last total, and prints the audit. An instance is restarted again and again meanwhile.
 */
public final class StreamsOrdeal {
    private StreamsOrdeal() {
    }

    public static void main(String[] arguments) throws Exception {
        try (Application words = new Application("processing.guarantee", "exactly_once_v2")) {
            words.start("one");
            words.start("two");
            words.settled(2);
            System.out.println("begun");
            int lines = 0;
            for (int round = 1; System.in.available() == 0; round++) {
                words.write(30);
                lines += 30;
                System.out.println("lines " + lines);
                if (round % 20 == 0) {
                    words.stop("two");
                    words.start("two");
                }
                Thread.sleep(100);
            }
            int totals = words.counted("read_committed");
            System.out.println("audit passed: lines " + lines + ", totals " + totals);
        }
        Runtime.getRuntime().halt(0);
    }
}
