import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.requests.RequestUtils;

/** Writes what Java's own classes put on the wire, with the values as JSON: see README.md beside this file. */
public final class Golden {
    private static final String MESSAGES = "org.apache.kafka.common.message.";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final int CORRELATION_ID = 0x01020304;
    private static final String CLIENT_ID = "golden-\u00e9";
    private static final List<String> CLIENTS =
        List.of("1", "2", "3", "8", "9", "10", "11", "12", "13", "14", "15", "16", "18", "23");

    private final String variant;
    private int next = 1;

    private Golden(String variant) {
        this.variant = variant;
    }

    /** One API and the versions of it that are wanted: "22" for all that Java has, "22:0-5" for some. */
    private record Wanted(ApiKeys key, short first, short last) {
        static Wanted of(String text) {
            String[] parts = text.split("[:-]");
            ApiKeys key = ApiKeys.forId(Integer.parseInt(parts[0]));
            return parts.length == 1 ? new Wanted(key, key.oldestVersion(), key.latestVersion())
                : new Wanted(key, Short.parseShort(parts[1]), Short.parseShort(parts[2]));
        }
    }

    /** Golden FOLDER [API:FIRST-LAST ...]: without APIs those of a consumer, its embedded protocol and all errors. */
    public static void main(String[] args) throws Exception {
        boolean isClients = args.length == 1;
        List<Wanted> all = (isClients ? CLIENTS : List.of(args).subList(1, args.length)).stream().map(Wanted::of).toList();
        try (PrintWriter out = new PrintWriter(args[0] + "/java_messages.jsonl", "UTF-8")) {
            for (Wanted each : all) {
                for (short v = each.first; v <= each.last; v++) {
                    for (String variant : List.of("full", "empty", "long", "unknown-tags")) {
                        // Long strings and arrays need two-byte lengths; the two kinds of encoding show it.
                        boolean isEdge = v == each.last || v == each.first && variant.equals("long");
                        if (isClients ? !variant.equals("long") || isEdge : List.of("full", "empty").contains(variant)
                            || variant.equals("unknown-tags") && isEdge) {
                            rows(out, each.key, v, variant);
                        }
                    }
                }
            }
            for (String name : List.of("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")) {
                for (short v = 0; v <= 3 && isClients; v++) {
                    for (String variant : List.of("full", "empty", "long")) {
                        blob(out, name, v, variant);
                    }
                }
            }
        }
        try (PrintWriter out = new PrintWriter(args[0] + "/java_fields.json", "UTF-8")) {
            out.println(fields(all));
        }
        if (isClients) {
            try (PrintWriter out = new PrintWriter(args[0] + "/java_errors.json", "UTF-8")) {
                out.println(errors());
            }
        }
    }

    private static void rows(PrintWriter out, ApiKeys key, short v, String variant) throws Exception {
        for (String kind : List.of("Request", "Response")) {
            Message header;
            short headerVersion;
            if (kind.equals("Request")) {
                header = new RequestHeaderData().setRequestApiKey(key.id).setRequestApiVersion(v)
                    .setCorrelationId(CORRELATION_ID).setClientId(variant.equals("empty") ? null : CLIENT_ID);
                headerVersion = key.requestHeaderVersion(v);
            } else {
                header = new ResponseHeaderData().setCorrelationId(CORRELATION_ID);
                headerVersion = key.responseHeaderVersion(v);
            }
            boolean flexible = headerVersion >= 2 || kind.equals("Response") && headerVersion >= 1;
            if (variant.equals("unknown-tags")) {
                if (!flexible) {
                    continue;
                }
                header.unknownTaggedFields().add(new RawTaggedField(77, new byte[] {1, 2, 3}));
            }
            ObjectNode row = row(key.name + kind, v, variant);
            Made made = make(key.name + kind + "Data", v, variant);
            row.put("hex", hex(RequestUtils.serialize(header, headerVersion, made.data, v)));
            row.set("json", made.json);
            out.println(JSON.writeValueAsString(row));
        }
    }

    private static void blob(PrintWriter out, String name, short v, String variant) throws Exception {
        Made made = make(name, v, variant);
        ObjectNode row = row(name, v, variant);
        row.put("hex", hex(MessageUtil.toVersionPrefixedByteBuffer(v, made.data)));
        row.set("json", made.json);
        out.println(JSON.writeValueAsString(row));
    }

    private static ObjectNode row(String message, short v, String variant) {
        return NODES.objectNode().put("message", message).put("version", v).put("variant", variant);
    }

    private record Made(Message data, JsonNode json) { }

    private static Made make(String name, short v, String variant) throws Exception {
        Class<?> type = Class.forName(MESSAGES + name);
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[v];
        JsonNode json = new Golden(variant).struct(schema);
        Class<?> converter = Class.forName(MESSAGES + name + "JsonConverter");
        Message data = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, v);
        if (variant.equals("unknown-tags")) {
            tag(data);
        }
        return new Made(data, json);
    }

    private static void tag(Object value) throws Exception {
        if (value instanceof Collection<?> many) {
            for (Object each : many) {
                tag(each);
            }
        } else if (value instanceof Message message) {
            for (Field field : value.getClass().getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_")
                    || field.getName().equals("next") || field.getName().equals("prev")) {
                    continue;
                }
                Object inner = value.getClass().getMethod(field.getName()).invoke(value);
                // A structure at its default is not written, and in some versions must not be.
                if (inner != null && !(inner instanceof Message && inner.equals(fresh(inner)))) {
                    tag(inner);
                }
            }
            message.unknownTaggedFields().add(new RawTaggedField(200, new byte[] {9, 8}));
        }
    }

    private static Object fresh(Object like) throws Exception {
        return like.getClass().getConstructor().newInstance();
    }

    private ObjectNode struct(Schema schema) {
        ObjectNode node = NODES.objectNode();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                tagged.fields().forEach((tag, each) -> {
                    if (!variant.equals("empty")) {
                        node.set(camel(each.name), value(each.type));
                    }
                });
            } else {
                node.set(camel(field.def.name), value(field.def.type));
            }
        }
        return node;
    }

    private JsonNode value(org.apache.kafka.common.protocol.types.Type type) {
        boolean empty = variant.equals("empty");
        if (empty && type.isNullable()) {
            return NullNode.instance;
        }
        if (type instanceof Schema schema) {
            return struct(schema);
        }
        if (type.arrayElementType().isPresent()) {
            ArrayNode array = NODES.arrayNode();
            for (int i = 0, n = empty ? 0 : count(type.arrayElementType().get()); i < n; i++) {
                array.add(value(type.arrayElementType().get()));
            }
            return array;
        }
        int n = next++;
        return switch (type.toString().replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN" -> NODES.booleanNode(!empty);
            case "INT8" -> NODES.numberNode((byte) (empty ? Byte.MIN_VALUE : n % 100 + 1));
            case "INT16" -> NODES.numberNode((short) (empty ? -1 : n + 300));
            case "INT32" -> NODES.numberNode(empty ? Integer.MIN_VALUE : n + 70000);
            case "INT64" -> NODES.numberNode(empty ? Long.MIN_VALUE : n + 5_000_000_000L);
            case "UUID" -> NODES.textNode(new Uuid(0x1111_2222_3333_4444L, n).toString());
            case "STRING" -> NODES.textNode(empty ? "" : "text-\u00e9\u6f22-" + n + filling());
            case "BYTES", "RECORDS" -> NODES.binaryNode(empty ? new byte[0] : ("bytes-" + n + filling()).getBytes());
            default -> throw new IllegalArgumentException(type.toString());
        };
    }

    private int count(org.apache.kafka.common.protocol.types.Type element) {
        return variant.equals("long") && !(element instanceof Schema) ? 130 : 2;
    }

    private String filling() {
        return variant.equals("long") ? "-".repeat(120) : "";
    }

    private static String camel(String name) {
        StringBuilder out = new StringBuilder();
        for (String word : name.split("_")) {
            out.append(out.isEmpty() ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
        }
        return out.toString();
    }

    private static String hex(ByteBuffer buffer) {
        StringBuilder out = new StringBuilder();
        while (buffer.hasRemaining()) {
            out.append(String.format("%02x", buffer.get()));
        }
        return out.toString();
    }

    /** Per field the first version; c carried, d dropped, r refused per version; the default. */
    private static String fields(List<Wanted> all) throws Exception {
        List<String> lines = new ArrayList<>();
        for (Wanted each : all) {
            for (String kind : List.of("Request", "Response")) {
                Class<?> type = Class.forName(MESSAGES + each.key.name + kind + "Data");
                walk(each, type, type, List.of(), each.key.name + kind, lines);
            }
        }
        return "{\n" + String.join(",\n", lines) + "\n}";
    }

    private static void walk(Wanted wanted, Class<?> root, Class<?> type, List<Field> path, String name,
                             List<String> lines) throws Exception {
        for (Field field : type.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_")
                || field.getName().equals("next") || field.getName().equals("prev")) {
                continue;
            }
            String here = name + "." + field.getName();
            StringBuilder verdicts = new StringBuilder();
            for (short v = wanted.first; v <= wanted.last; v++) {
                verdicts.append(verdict(root, path, field, v));
            }
            Object initial = type.getMethod(field.getName()).invoke(type.getConstructor().newInstance());
            if (initial instanceof Message || initial instanceof Collection || initial instanceof byte[]) {
                initial = "empty";
            } else if (initial instanceof Uuid id) {
                initial = id.toString();
            }
            lines.add(JSON.writeValueAsString(here) + ": [" + wanted.first + ", \"" + verdicts + "\", "
                + JSON.writeValueAsString(initial) + "]");
            Class<?> inner = structure(field);
            if (inner != null) {
                List<Field> deeper = new ArrayList<>(path);
                deeper.add(field);
                walk(wanted, root, inner, deeper, here, lines);
            }
        }
    }

    private static char verdict(Class<?> root, List<Field> path, Field field, short v) throws Exception {
        String without;
        try {
            without = hex(MessageUtil.toByteBufferAccessor(nested(root, path, null), v).buffer());
        } catch (UnsupportedVersionException error) {
            return '-';
        }
        try {
            String with = hex(MessageUtil.toByteBufferAccessor(nested(root, path, field), v).buffer());
            return with.equals(without) ? 'd' : 'c';
        } catch (UnsupportedVersionException error) {
            return 'r';
        }
    }

    private static Message nested(Class<?> root, List<Field> path, Field leaf) throws Exception {
        Message message = (Message) root.getConstructor().newInstance();
        Object at = message;
        for (Field step : path) {
            Object inner = structure(step).getConstructor().newInstance();
            Object value = inner;
            if (Collection.class.isAssignableFrom(step.getType())) {
                Object many = step.getType() == List.class ? new ArrayList<>() : step.getType().getConstructor().newInstance();
                ((Collection<Object>) many).add(inner);
                value = many;
            }
            set(at, step, value);
            at = inner;
        }
        if (leaf != null) {
            set(at, leaf, other(leaf));
        }
        return message;
    }

    private static void set(Object target, Field field, Object value) throws Exception {
        String setter = "set" + Character.toUpperCase(field.getName().charAt(0)) + field.getName().substring(1);
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(setter)) {
                method.invoke(target, value);
                return;
            }
        }
        throw new NoSuchMethodException(setter);
    }

    private static Object other(Field field) throws Exception {
        Class<?> type = field.getType();
        Class<?> inner = structure(field);
        if (type == byte.class) return (byte) 7;
        if (type == short.class) return (short) 7;
        if (type == int.class) return 7;
        if (type == long.class) return 7L;
        if (type == boolean.class) return !field.getName().equals("allowAutoTopicCreation");
        if (type == String.class) return "x";
        if (type == Uuid.class) return new Uuid(1, 2);
        if (type == byte[].class) return new byte[] {1};
        if (type == List.class && inner == null) {
            Type element = ((ParameterizedType) field.getGenericType()).getActualTypeArguments()[0];
            return List.of(element == String.class ? "x" : element == Long.class ? (Object) 7L
                : element == Byte.class ? (Object) (byte) 7 : (Object) 7);
        }
        if (Collection.class.isAssignableFrom(type)) {
            Object many = type == List.class ? new ArrayList<>() : type.getConstructor().newInstance();
            ((Collection<Object>) many).add(inner.getConstructor().newInstance());
            return many;
        }
        if (inner != null) {
            Object changed = inner.getConstructor().newInstance();
            for (Field each : inner.getDeclaredFields()) {
                boolean isPlain = each.getType() == int.class || each.getType() == List.class;
                if (isPlain && !Modifier.isStatic(each.getModifiers()) && !each.getName().startsWith("_")
                    && !each.getName().equals("next") && !each.getName().equals("prev")) {
                    set(changed, each, other(each));
                }
            }
            return changed;
        }
        return org.apache.kafka.common.record.internal.MemoryRecords.readableRecords(ByteBuffer.wrap(new byte[] {1}));
    }

    private static Class<?> structure(Field field) {
        Class<?> type = field.getType();
        if (Collection.class.isAssignableFrom(type)) {
            Type generic = type == List.class ? field.getGenericType() : type.getGenericSuperclass();
            Type element = ((ParameterizedType) generic).getActualTypeArguments()[0];
            type = (Class<?>) element;
        }
        return Message.class.isAssignableFrom(type) ? type : null;
    }

    private static String errors() throws Exception {
        Map<Integer, ObjectNode> rows = new TreeMap<>();
        for (Errors error : Errors.values()) {
            rows.put((int) error.code(), NODES.objectNode().put("name", error.name())
                .put("retriable", error.exception() instanceof RetriableException)
                .put("invalid_metadata", error.exception() instanceof InvalidMetadataException));
        }
        List<String> lines = new ArrayList<>();
        for (Map.Entry<Integer, ObjectNode> each : rows.entrySet()) {
            lines.add("\"" + each.getKey() + "\": " + JSON.writeValueAsString(each.getValue()));
        }
        return "{\n" + String.join(",\n", lines) + "\n}";
    }
}
