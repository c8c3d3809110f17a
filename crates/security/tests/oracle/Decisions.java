// What Apache Kafka's own `StandardAuthorizer` decides. `tests/it/kafka.rs` runs it as
//
//   java -cp "$KAFKA_CLASSPATH" crates/security/tests/oracle/Decisions.java SCRIPT
//
// and compares. SCRIPT has a command per line, its fields separated by tabs:
//
//   new     SUPER_USERS ALLOW_EVERYONE                              an authorizer without ACLs
//   add     ID TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
//   remove  ID
//   ask     KIND PRINCIPAL HOST OPERATION TYPE NAME                 prints A or D
//   any     KIND PRINCIPAL HOST OPERATION TYPE                      prints A or D: authorizeByResourceType
//   filter  TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION   prints the ids that match; ~ is null
//   check   TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION   prints the controller's words for a new ACL, or -
//
// Kinds, patterns, operations and permissions are numbers.

import java.io.BufferedReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Decisions {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 3; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static StandardAuthorizer authorizer;
    static final Map<Integer, StandardAcl> ACLS = new TreeMap<>();
    static final Map<String, InetAddress> ADDRESSES = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        try (BufferedReader lines = Files.newBufferedReader(Path.of(args[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String answer = answer(line.split("\t", -1));
                if (answer != null) {
                    out.println(answer);
                }
            }
        }
        out.flush();
    }

    static String answer(String[] f) throws Exception {
        switch (f[0]) {
            case "new":
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of("super.users", f[1], "allow.everyone.if.no.acl.found", f[2]));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
                ACLS.clear();
                return null;
            case "add":
                StandardAcl acl = new StandardAcl(kind(f[2]), f[3], pattern(f[4]), f[5], f[6], operation(f[7]), permission(f[8]));
                ACLS.put(Integer.valueOf(f[1]), acl);
                authorizer.addAcl(new Uuid(1, Integer.parseInt(f[1])), acl);
                return null;
            case "remove":
                ACLS.remove(Integer.valueOf(f[1]));
                authorizer.removeAcl(new Uuid(1, Integer.parseInt(f[1])));
                return null;
            case "ask":
                Action action = new Action(operation(f[4]), new ResourcePattern(kind(f[5]), f[6], PatternType.LITERAL), 1, false, false);
                return letter(authorizer.authorize(context(f), List.of(action)).get(0));
            case "any":
                return letter(authorizer.authorizeByResourceType(context(f), operation(f[4]), kind(f[5])));
            case "filter":
                AclBindingFilter filter = new AclBindingFilter(
                    new ResourcePatternFilter(kind(f[1]), text(f[2]), pattern(f[3])),
                    new AccessControlEntryFilter(text(f[4]), text(f[5]), operation(f[6]), permission(f[7])));
                return ACLS.entrySet().stream().filter(e -> filter.matches(e.getValue().toBinding()))
                    .map(e -> e.getKey().toString()).collect(Collectors.joining(",", "[", "]"));
            case "check":
                return words(new AclBinding(
                    new ResourcePattern(kind(f[1]), f[2], pattern(f[3])),
                    new AccessControlEntry(f[4], f[5], operation(f[6]), permission(f[7]))));
            default:
                throw new IllegalArgumentException(f[0]);
        }
    }

    static String words(AclBinding binding) throws Exception {
        Method validate = Class.forName("org.apache.kafka.controller.AclControlManager")
            .getDeclaredMethod("validateNewAcl", AclBinding.class);
        validate.setAccessible(true);
        try {
            validate.invoke(null, binding);
            return "-";
        } catch (InvocationTargetException e) {
            return e.getCause().getMessage();
        }
    }

    static Context context(String[] f) throws Exception {
        if (!ADDRESSES.containsKey(f[3])) {
            ADDRESSES.put(f[3], InetAddress.getByName(f[3]));
        }
        return new Context(new KafkaPrincipal(f[1], f[2]), ADDRESSES.get(f[3]));
    }

    static String letter(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "A" : "D";
    }

    static String text(String field) {
        return field.equals("~") ? null : field;
    }

    static ResourceType kind(String code) { return ResourceType.fromCode(Byte.parseByte(code)); }
    static PatternType pattern(String code) { return PatternType.fromCode(Byte.parseByte(code)); }
    static AclOperation operation(String code) { return AclOperation.fromCode(Byte.parseByte(code)); }
    static AclPermissionType permission(String code) { return AclPermissionType.fromCode(Byte.parseByte(code)); }
}
