import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.zip.GZIPOutputStream;

import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Writes the golden bytes of crates/wire: every message at every version that Apache Kafka still serves, filled with
 * seeded values and serialized by Kafka's own classes. Which fields a version has, and which may be null, comes from
 * the schema files inside the same jars.
 *
 * <pre>java -cp "$(compat/kafka-jars/fetch)" crates/wire/tests/golden/GoldenWriter.java OUTDIR</pre>
 *
 * OUTDIR/messages.bin.gz is a gzip stream of entries ordered by name, version, sample; big-endian:
 * <pre>
 *   u8   length of the name
 *   ...  name, as in the schema file: FetchRequest, TopicRecord, OffsetCommitValue
 *   i16  version
 *   u8   sample: 0 = every field at its default
 *                1 = random values; every tagged field set, nothing null, no array empty
 *                2, 3 = random values
 *                4 = the values of 1 and unknown tagged fields in every struct (flexible versions only)
 *   u32  length of the message
 *   ...  message
 * </pre>
 * OUTDIR/conversions.bin.gz has a like form and says what becomes of a message that is read at one version and written
 * at another: of samples 1 and 2, at the versions beside their own and at the first and the last of all.
 * <pre>
 *   u8   length of the name
 *   ...  name
 *   i16  version at which it is read, as in messages.bin.gz
 *   u8   sample
 *   i16  version at which it is written
 *   u8   1: written, 0: refused, because that version lacks a field that is set or does not allow it to be null
 *   u32  length of what is written
 *   ...  what is written
 * </pre>
 * OUTDIR/tables.txt is text of two kinds of lines; header versions are listed for each version of the API:
 * <pre>
 *   error CODE NAME [retriable] [refresh]
 *   api KEY NAME versions=LOWEST-HIGHEST request_headers=V,V,... response_headers=V,V,... listeners=NAME,... [unstable]
 * </pre>
 * The same jars write the same bytes: values depend on name, version and sample alone.
 */
public final class GoldenWriter {
    /** Where the schema files of a jar are, and the package of the classes generated from them. */
    private record Family(String artifact, String directory, String javaPackage) { }

    private static final List<Family> FAMILIES = List.of(
        new Family("kafka-clients", "common/message/", "org.apache.kafka.common.message"),
        new Family("kafka-metadata", "common/metadata/", "org.apache.kafka.common.metadata"),
        new Family("kafka-group-coordinator", "common/message/", "org.apache.kafka.coordinator.group.generated"),
        new Family("kafka-share-coordinator", "common/message/", "org.apache.kafka.coordinator.share.generated"),
        new Family("kafka-transaction-coordinator", "common/message/",
            "org.apache.kafka.coordinator.transaction.generated"));

    /** The type of a control record, its key, is part of the record format, which is not crates/wire's. */
    private static final Set<String> LEFT_OUT = Set.of("ControlRecordTypeSchema");

    private static final int SAMPLE_DEFAULT = 0;
    private static final int SAMPLE_FULL = 1;
    private static final int SAMPLE_UNKNOWN_TAGS = 4;

    /** Beyond every tag that Kafka has given out, so that they stay unknown; one and three bytes long as varints. */
    private static final int[] UNKNOWN_TAGS = {100, 20_000};

    private static final String[] LETTERS = {"a", "Z", "7", "-", ".", " ", "\0", "é", "ß", "水", "\uD834\uDD1E"};

    public static void main(String[] args) throws Exception {
        if (args.length != 1) {
            System.err.println("usage: GoldenWriter OUTDIR");
            System.exit(2);
        }
        Map<String, Schema> schemas = new TreeMap<>();
        for (Family family : FAMILIES) {
            for (Schema schema : read(family)) {
                if (schemas.put(schema.name, schema) != null) {
                    throw new IllegalStateException("two schemas are named " + schema.name);
                }
            }
        }
        for (ApiKeys key : ApiKeys.values()) {
            // Kafka keeps the keys of requests that it serves no more.
            if (key.hasValidVersion()) {
                require(key.messageType.newRequest().getClass(), schemas);
                require(key.messageType.newResponse().getClass(), schemas);
            }
        }
        ByteArrayOutputStream entries = new ByteArrayOutputStream();
        ByteArrayOutputStream conversions = new ByteArrayOutputStream();
        for (Schema schema : schemas.values()) {
            schema.writeAll(new DataOutputStream(entries));
            schema.convertAll(new DataOutputStream(conversions));
        }
        Path folder = Files.createDirectories(Path.of(args[0]));
        compress(entries, folder.resolve("messages.bin.gz"));
        compress(conversions, folder.resolve("conversions.bin.gz"));
        Files.writeString(folder.resolve("tables.txt"), errors() + apis());
        System.out.printf("wrote %d messages to %s%n", schemas.size(), folder);
    }

    private static void compress(ByteArrayOutputStream bytes, Path path) throws IOException {
        try (OutputStream out = new GZIPOutputStream(Files.newOutputStream(path)) {{ def.setLevel(9); }}) {
            bytes.writeTo(out);
        }
    }

    private static String errors() {
        StringBuilder out = new StringBuilder();
        for (Errors error : Errors.values()) {
            out.append("error ").append(error.code()).append(' ').append(error.name());
            out.append(error.exception() instanceof RetriableException ? " retriable" : "");
            out.append(error.exception() instanceof InvalidMetadataException ? " refresh" : "").append('\n');
        }
        return out.toString();
    }

    private static String apis() {
        StringBuilder out = new StringBuilder();
        for (ApiKeys key : ApiKeys.values()) {
            if (!key.hasValidVersion()) {
                continue;
            }
            ApiMessageType type = key.messageType;
            short lowest = type.lowestSupportedVersion();
            short highest = type.highestSupportedVersion(true);
            List<String> requestHeaders = new ArrayList<>();
            List<String> responseHeaders = new ArrayList<>();
            for (short version = lowest; version <= highest; version++) {
                requestHeaders.add(Short.toString(type.requestHeaderVersion(version)));
                responseHeaders.add(Short.toString(type.responseHeaderVersion(version)));
            }
            List<String> listeners = type.listeners().stream().map(l -> l.name().toLowerCase(Locale.ROOT)).toList();
            out.append("api %d %s versions=%d-%d request_headers=%s response_headers=%s listeners=%s%s\n".formatted(
                key.id, type.name, lowest, highest, String.join(",", requestHeaders),
                String.join(",", responseHeaders), String.join(",", listeners),
                type.highestSupportedVersion(false) < highest ? " unstable" : ""));
        }
        return out.toString();
    }

    private static void require(Class<?> served, Map<String, Schema> schemas) {
        if (schemas.values().stream().noneMatch(schema -> schema.type == served)) {
            throw new IllegalStateException("no schema was found for " + served);
        }
    }

    /** Reads every schema file of a family that still has versions. */
    private static List<Schema> read(Family family) throws Exception {
        JsonMapper mapper = JsonMapper.builder().enable(JsonReadFeature.ALLOW_JAVA_COMMENTS).build();
        List<Schema> schemas = new ArrayList<>();
        try (JarFile jar = new JarFile(jarOf(family.artifact))) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
                JarEntry entry = entries.nextElement();
                if (!entry.getName().startsWith(family.directory) || !entry.getName().endsWith(".json")) {
                    continue;
                }
                JsonNode json = mapper.readTree(jar.getInputStream(entry));
                String name = json.get("name").asText();
                if (!LEFT_OUT.contains(name) && !json.get("validVersions").asText().equals("none")) {
                    schemas.add(new Schema(json, family.javaPackage));
                }
            }
        }
        if (schemas.isEmpty()) {
            throw new IllegalStateException("no schema in " + family.directory + " of " + family.artifact);
        }
        return schemas;
    }

    private static String jarOf(String artifact) {
        for (String path : System.getProperty("java.class.path").split(java.io.File.pathSeparator)) {
            if (Path.of(path).getFileName().toString().matches(artifact + "-[0-9].*\\.jar")) {
                return path;
            }
        }
        throw new IllegalStateException("the class path has no " + artifact);
    }

    /** A range of versions as the schema files write it: "3", "1-4", "2+", "none". */
    private record Versions(int lowest, int highest) {
        static Versions of(JsonNode text, Versions otherwise) {
            return text == null ? otherwise : parse(text.asText());
        }

        static Versions parse(String text) {
            if (text.equals("none")) {
                return new Versions(0, -1);
            } else if (text.endsWith("+")) {
                return new Versions(Integer.parseInt(text.substring(0, text.length() - 1)), Short.MAX_VALUE);
            }
            int dash = text.indexOf('-');
            int lowest = Integer.parseInt(dash < 0 ? text : text.substring(0, dash));
            return new Versions(lowest, dash < 0 ? lowest : Integer.parseInt(text.substring(dash + 1)));
        }

        boolean contain(int version) {
            return lowest <= version && version <= highest;
        }
    }

    private static final Versions NONE = Versions.parse("none");

    /** One schema file and the class generated from it. */
    private static final class Schema {
        final String name;
        final Class<?> type;
        private final JsonNode json;
        private final Versions flexible;
        private final Map<String, JsonNode> commonStructs = new HashMap<>();

        Schema(JsonNode json, String javaPackage) throws ClassNotFoundException {
            this.json = json;
            this.name = json.get("name").asText();
            this.flexible = Versions.of(json.get("flexibleVersions"), NONE);
            String suffix = switch (json.get("type").asText()) {
                case "request", "response", "header" -> "Data";
                default -> "";
            };
            this.type = Class.forName(javaPackage + "." + name + suffix);
            if (json.has("commonStructs")) {
                json.get("commonStructs").forEach(struct -> commonStructs.put(struct.get("name").asText(), struct));
            }
        }

        void writeAll(DataOutputStream out) throws Exception {
            Message prototype = create(type);
            for (int v = prototype.lowestSupportedVersion(); v <= prototype.highestSupportedVersion(); v++) {
                short version = (short) v;
                int last = flexible.contain(version) ? SAMPLE_UNKNOWN_TAGS : SAMPLE_UNKNOWN_TAGS - 1;
                for (int sample = SAMPLE_DEFAULT; sample <= last; sample++) {
                    byte[] bytes;
                    try {
                        bytes = sample(version, sample);
                    } catch (Exception e) {
                        throw new IllegalStateException(name + " version " + v + " sample " + sample, e);
                    }
                    writeHead(out, version, sample);
                    out.writeInt(bytes.length);
                    out.write(bytes);
                }
            }
        }

        void convertAll(DataOutputStream out) throws Exception {
            Message prototype = create(type);
            short lowest = prototype.lowestSupportedVersion();
            short highest = prototype.highestSupportedVersion();
            for (short from = lowest; from <= highest; from++) {
                TreeSet<Integer> others = new TreeSet<>(List.of((int) lowest, from - 1, from + 1, (int) highest));
                others.removeIf(version -> version < lowest || version > highest);
                others.remove((int) from);
                for (int to : others) {
                    for (int sample = SAMPLE_FULL; sample <= SAMPLE_FULL + 1; sample++) {
                        writeHead(out, from, sample);
                        out.writeShort(to);
                        byte[] bytes = convert(sample(from, sample), from, (short) to);
                        out.writeByte(bytes == null ? 0 : 1);
                        out.writeInt(bytes == null ? 0 : bytes.length);
                        out.write(bytes == null ? new byte[0] : bytes);
                    }
                }
            }
        }

        /** What Kafka writes, or null where it refuses to. */
        private byte[] convert(byte[] bytes, short from, short to) throws Exception {
            Message message = create(type);
            message.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), from);
            try {
                return serialize(message, to);
            } catch (UnsupportedVersionException | NullPointerException refused) {
                return null;
            }
        }

        private void writeHead(DataOutputStream out, short version, int sample) throws IOException {
            byte[] utf8 = name.getBytes(StandardCharsets.UTF_8);
            out.writeByte(utf8.length);
            out.write(utf8);
            out.writeShort(version);
            out.writeByte(sample);
        }

        private byte[] sample(short version, int sample) throws Exception {
            Message message = create(type);
            if (sample != SAMPLE_DEFAULT) {
                // The values of these two are the same, so that a decoder may also drop what it does not know.
                int values = sample == SAMPLE_UNKNOWN_TAGS ? SAMPLE_FULL : sample;
                Random random = new Random(((long) name.hashCode() << 32) + version * 16L + values);
                new Filler(this, version, values == SAMPLE_FULL, random).fill(message, json.get("fields"));
                if (sample == SAMPLE_UNKNOWN_TAGS) {
                    addUnknownTags(message, json.get("fields"), version, new Random(version));
                }
            }
            byte[] bytes = serialize(message, version);
            Message again = create(type);
            again.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
            if (!Arrays.equals(bytes, serialize(again, version))) {
                throw new IllegalStateException("Kafka itself does not write again what it read");
            }
            return bytes;
        }

        JsonNode fieldsOf(JsonNode field) {
            if (field.has("fields")) {
                return field.get("fields");
            }
            JsonNode struct = commonStructs.get(elementType(field));
            return struct == null ? null : struct.get("fields");
        }

        /** Adds unknown tagged fields to a struct and to all that it holds. */
        private void addUnknownTags(Message message, JsonNode fields, short version, Random random) throws Exception {
            for (int tag : UNKNOWN_TAGS) {
                byte[] data = new byte[random.nextInt(4)];
                random.nextBytes(data);
                message.unknownTaggedFields().add(new RawTaggedField(tag, data));
            }
            for (JsonNode field : fields) {
                if (!present(field, version) || fieldsOf(field) == null) {
                    continue;
                }
                String name = field.get("name").asText();
                Object value = message.getClass().getMethod(uncapitalized(name)).invoke(message);
                if (value instanceof Message struct) {
                    // A tagged struct at its default is not written at all: it must not appear because of us.
                    if (!field.has("tag") || !struct.equals(create(struct.getClass()))) {
                        addUnknownTags(struct, fieldsOf(field), version, random);
                    }
                } else if (value instanceof Collection<?> structs) {
                    for (Object struct : structs) {
                        addUnknownTags((Message) struct, fieldsOf(field), version, random);
                    }
                }
            }
        }
    }

    private static byte[] serialize(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("Kafka wrote less than it announced");
        }
        return buffer.array();
    }

    private static Message create(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return (Message) constructor.newInstance();
    }

    /** A field that is always tagged need not say in which versions it exists. */
    private static boolean present(JsonNode field, short version) {
        return Versions.of(field.get("versions"), Versions.of(field.get("taggedVersions"), NONE)).contain(version);
    }

    private static String elementType(JsonNode field) {
        String type = field.get("type").asText();
        return type.startsWith("[]") ? type.substring(2) : type;
    }

    private static String uncapitalized(String name) {
        return name.substring(0, 1).toLowerCase(Locale.ROOT) + name.substring(1);
    }

    private static String capitalized(String name) {
        return name.substring(0, 1).toUpperCase(Locale.ROOT) + name.substring(1);
    }

    /** Gives the fields of one message values that its version can carry. */
    private record Filler(Schema schema, short version, boolean full, Random random) {
        void fill(Message message, JsonNode fields) throws Exception {
            for (JsonNode field : fields) {
                boolean tagged = Versions.of(field.get("taggedVersions"), NONE).contain(version);
                if (!present(field, version) || (tagged && !full && random.nextInt(3) == 0)) {
                    continue;
                }
                set(message, field);
            }
        }

        private void set(Message message, JsonNode field) throws Exception {
            Method setter = setter(message, field);
            Class<?> parameter = setter.getParameterTypes()[0];
            boolean nullable = Versions.of(field.get("nullableVersions"), NONE).contain(version);
            Object value = null;
            if (!nullable || full || random.nextInt(4) != 0) {
                boolean array = field.get("type").asText().startsWith("[]");
                value = array ? array(message.getClass(), parameter, field) : one(parameter, elementType(field), field);
            }
            try {
                setter.invoke(message, value);
            } catch (InvocationTargetException e) {
                throw new IllegalStateException("cannot set " + field.get("name") + " to " + value, e);
            }
        }

        private static Method setter(Message message, JsonNode field) {
            String name = "set" + capitalized(field.get("name").asText());
            for (Method method : message.getClass().getMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 1) {
                    return method;
                }
            }
            throw new IllegalStateException(message.getClass() + " has no " + name);
        }

        @SuppressWarnings("unchecked")
        private Object array(Class<?> owner, Class<?> parameter, JsonNode field) throws Exception {
            String type = elementType(field);
            boolean structs = schema.fieldsOf(field) != null;
            // 127 elements is where the count of a compact array takes a second byte.
            int count = !structs && random.nextInt(30) == 0
                ? 126 + random.nextInt(4)
                : full ? 1 + random.nextInt(2) : random.nextInt(4);
            // Arrays with keys are collections of their own class, everything else is a List.
            Collection<Object> collection = parameter.isAssignableFrom(ArrayList.class)
                ? new ArrayList<>()
                : (Collection<Object>) parameter.getDeclaredConstructor().newInstance();
            Class<?> element = structs ? structClass(type) : null;
            for (int i = 0; i < count; i++) {
                collection.add(one(element, type, field));
            }
            return collection;
        }

        private Class<?> structClass(String type) throws ClassNotFoundException {
            return Class.forName(schema.type.getName() + "$" + type);
        }

        private Object one(Class<?> javaType, String type, JsonNode field) throws Exception {
            return switch (type) {
                case "bool" -> random.nextBoolean();
                case "int8" -> (byte) integer(Byte.MIN_VALUE, Byte.MAX_VALUE);
                case "int16" -> (short) integer(Short.MIN_VALUE, Short.MAX_VALUE);
                case "uint16" -> (int) integer(0, 0xffff);
                case "int32" -> (int) integer(Integer.MIN_VALUE, Integer.MAX_VALUE);
                case "uint32" -> integer(0, 0xffff_ffffL);
                case "int64" -> integer(Long.MIN_VALUE, Long.MAX_VALUE);
                case "float64" -> number();
                case "uuid" -> random.nextInt(4) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
                case "string" -> string();
                case "bytes" -> javaType == ByteBuffer.class ? ByteBuffer.wrap(bytes()) : bytes();
                case "records" -> records(javaType);
                default -> struct(type, field);
            };
        }

        private Object struct(String type, JsonNode field) throws Exception {
            Message message = create(structClass(type));
            fill(message, schema.fieldsOf(field));
            return message;
        }

        private long integer(long lowest, long highest) {
            return switch (random.nextInt(8)) {
                case 0 -> 0;
                case 1 -> lowest;
                case 2 -> highest;
                case 3 -> lowest < 0 ? -1 : highest - 1;
                case 4, 5 -> random.nextInt(128);
                default -> highest == Long.MAX_VALUE
                    ? random.nextLong()
                    : lowest + (long) (random.nextDouble() * (highest - lowest));
            };
        }

        private double number() {
            double[] special = {0.0, -0.0, Double.MAX_VALUE, Double.MIN_VALUE, Double.NEGATIVE_INFINITY, Double.NaN};
            return random.nextBoolean() ? special[random.nextInt(special.length)] : random.nextGaussian() * 1e6;
        }

        private String string() {
            StringBuilder text = new StringBuilder();
            // 127 bytes is where the length of a compact string takes a second byte.
            int length = random.nextInt(40) == 0 ? 120 + random.nextInt(10) : random.nextInt(7);
            for (int i = 0; i < length; i++) {
                text.append(LETTERS[random.nextInt(length > 100 ? 4 : LETTERS.length)]);
            }
            return text.toString();
        }

        private byte[] bytes() {
            byte[] bytes = new byte[random.nextInt(30) == 0 ? 124 + random.nextInt(8) : random.nextInt(7)];
            random.nextBytes(bytes);
            return bytes;
        }

        /** To the protocol, records are bytes: any will do. */
        private Object records(Class<?> javaType) {
            if (!javaType.isAssignableFrom(MemoryRecords.class) || !BaseRecords.class.isAssignableFrom(javaType)) {
                throw new IllegalStateException("records are set as " + javaType);
            }
            return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
        }
    }
}
