// Reads lines of hexadecimal text and writes what Java and Kafka make of each:
//   D der        the name as X500Principal.getName() writes it
//   M rules name the user as SslPrincipalMapper maps it; "!" if no rule applies, "?" if the rules cannot be used

import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Names {
    static final HexFormat HEX = HexFormat.of();

    static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    static String answer(String[] parts) {
        if (parts[0].equals("D")) {
            try {
                return "=" + new X500Principal(HEX.parseHex(parts[1])).getName();
            } catch (IllegalArgumentException e) {
                return "?";
            }
        }
        try {
            return "=" + SslPrincipalMapper.fromRules(text(parts[1])).getName(text(parts[2]));
        } catch (java.io.IOException e) {
            return "!";
        } catch (RuntimeException e) {
            return "?";
        }
    }

    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String answer = answer(line.split(" ", -1));
            out.append(HEX.formatHex(answer.getBytes(StandardCharsets.UTF_8))).append('\n');
        }
        Files.writeString(Path.of(args[1]), out);
    }
}
