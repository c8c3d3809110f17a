import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Says of each pattern on standard input which of the arguments RE2/J matches as a whole, by a 1 or 0 for each, or why the
 * pattern is not valid; for src/group/regex/tests.rs:
 *
 *     java -cp "$(compat/kafka-jars/fetch)" crates/groups/tests/golden/Patterns.java orders payments
 */
public class Patterns {
    public static void main(String[] topics) throws Exception {
        String patterns = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String text : patterns.split("\n", -1)) {
            try {
                Pattern pattern = Pattern.compile(text);
                StringBuilder line = new StringBuilder();
                for (String topic : topics) {
                    line.append(pattern.matcher(topic).matches() ? '1' : '0');
                }
                out.println(line);
            } catch (PatternSyntaxException error) {
                out.println(error.getDescription());
            }
        }
    }
}
