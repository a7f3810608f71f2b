import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Runs Java's own assignors: a case as a line of JSON in, what Java says and does as a line out. See README.md. */
public final class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // where logs go
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static ObjectNode answer(JsonNode given) {
        String name = given.get("assignor").asText();
        ObjectNode answer = JSON.createObjectNode();
        ObjectNode said = answer.putObject("said");
        Map<String, Subscription> subscriptions = new HashMap<>();
        given.get("members").fields().forEachRemaining(entry -> {
            Subscription subscription = subscription(name, entry.getValue());
            ByteBuffer blob = ConsumerProtocol.serializeSubscription(subscription);
            ObjectNode what = said.putObject(entry.getKey());
            what.put("user_data", hex(subscription.userData()));
            what.put("blob", hex(blob));
            Subscription read = ConsumerProtocol.deserializeSubscription(blob);
            read.setGroupInstanceId(Optional.ofNullable(text(entry.getValue(), "instance")));
            subscriptions.put(entry.getKey(), read);
        });
        try {
            Map<String, Assignment> assigned =
                assignor(name).assign(cluster(given.get("partitions")), new GroupSubscription(subscriptions)).groupAssignment();
            ObjectNode assignment = answer.putObject("assignment");
            new TreeMap<>(assigned).forEach((member, each) -> write(assignment.putObject(member), each.partitions()));
        } catch (RuntimeException error) {
            answer.put("error", error.toString());
        }
        return answer;
    }

    private static Subscription subscription(String name, JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        ConsumerPartitionAssignor assignor = assignor(name);
        int generation = member.path("generation").asInt(-1);
        List<TopicPartition> held = partitions(member.path("held"));
        if (generation >= 0) {
            assignor.onAssignment(new Assignment(held), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        }
        ByteBuffer userData = assignor.subscriptionUserData(Set.copyOf(topics));
        if (member.has("user_data")) {
            userData = ByteBuffer.wrap(HexFormat.of().parseHex(member.get("user_data").asText()));
        }
        boolean cooperates = name.equals("cooperative-sticky");
        return new Subscription(
            topics, userData, cooperates ? held : List.of(),
            member.has("generation_field") ? member.get("generation_field").asInt() : generation,
            Optional.ofNullable(text(member, "rack")));
    }

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks) {
                    replicas.add(nodes.computeIfAbsent(rack.asText(), r -> new Node(nodes.size(), "h", 9092, r)));
                }
                Node[] each = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(topic.getKey(), number++, each.length > 0 ? each[0] : null, each, each));
            }
        });
        return new Cluster("c", nodes.values(), infos, Set.of(), Set.of());
    }

    private static List<TopicPartition> partitions(JsonNode byTopic) {
        List<TopicPartition> all = new ArrayList<>();
        byTopic.fields().forEachRemaining(entry ->
            entry.getValue().forEach(number -> all.add(new TopicPartition(entry.getKey(), number.asInt()))));
        return all;
    }

    private static void write(ObjectNode into, List<TopicPartition> partitions) {
        Map<String, List<Integer>> byTopic = new TreeMap<>();
        partitions.forEach(tp -> byTopic.computeIfAbsent(tp.topic(), t -> new ArrayList<>()).add(tp.partition()));
        byTopic.forEach((topic, numbers) -> {
            Collections.sort(numbers);
            ArrayNode array = into.putArray(topic);
            numbers.forEach(array::add);
        });
    }

    private static String text(JsonNode node, String name) {
        return node.has(name) ? node.get(name).asText() : null;
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return null;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }
}
