import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs one tool per line of its input, the name and the arguments separated by tabs, and answers with a line of exit status and
 * length in bytes, and the tool's output. Other suites run Kafka's tools by it: starting a JVM for each takes longer.
 */
final class ToolServer {
    private ToolServer() {
    }

    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Tool.Outcome done = Tool.run(words[0], Arrays.copyOfRange(words, 1, words.length));
            byte[] output = (done.out() + done.err()).getBytes(StandardCharsets.UTF_8);
            out.println(done.status() + " " + output.length);
            out.write(output);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
