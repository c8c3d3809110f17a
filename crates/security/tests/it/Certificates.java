// Reads lines "role trusted,... chain,...", with certificates in hexadecimal, and writes Java's verdict on each chain: "=" if the
// trust manager that Kafka's SslEngineFactory uses accepts it from a peer of that role (C, a client; S, a server), "?" if the
// certificates cannot be read, else "!" and the reason.

import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.KeyStore;
import java.security.cert.*;
import java.util.HexFormat;
import javax.net.ssl.*;

public class Certificates {
    static final HexFormat HEX = HexFormat.of();
    // Of TLS 1.3; with TLS 1.2 and ECDHE the trust manager requires the same.
    static final String SERVER = "UNKNOWN";
    static final String CLIENT = "EC";

    static X509Certificate[] certificates(String part) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        String[] all = part.isEmpty() ? new String[0] : part.split(",");
        X509Certificate[] read = new X509Certificate[all.length];
        for (int i = 0; i < all.length; i++) {
            read[i] = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(HEX.parseHex(all[i])));
        }
        return read;
    }

    static String verdict(String[] parts) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        X509Certificate[] chain;
        try {
            store.load(null, null);
            int i = 0;
            for (X509Certificate trusted : certificates(parts[1])) {
                store.setCertificateEntry("trusted" + i++, trusted);
            }
            chain = certificates(parts[2]);
        } catch (CertificateException e) {
            return "?";
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
        factory.init(store);
        X509TrustManager manager = (X509TrustManager) factory.getTrustManagers()[0];
        try {
            if (parts[0].equals("C")) {
                manager.checkClientTrusted(chain, CLIENT);
            } else {
                manager.checkServerTrusted(chain, SERVER);
            }
            return "=";
        } catch (CertificateException e) {
            return "!" + e.getMessage();
        }
    }

    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String verdict = verdict(line.split(" ", -1));
            out.append(HEX.formatHex(verdict.getBytes(StandardCharsets.UTF_8))).append('\n');
        }
        Files.writeString(Path.of(args[1]), out);
    }
}
