import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Asks Apache Kafka's own classes of MirrorMaker 2 about what a link wrote; prints `name=value` lines.
 * Arguments: target bootstrap, source alias, group, then for each topic to print: bootstrap, topic, formatter.
 * System properties that begin with `mirror.` are settings of its clients, for example
 * -Dmirror.replication.policy.separator=_
 */
public final class Judge {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", args[0]));
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("mirror.")) {
                settings.put(name.substring("mirror.".length()), System.getProperty(name));
            }
        }
        RemoteClusterUtils.translateOffsets(settings, args[1], args[2], Duration.ofSeconds(20))
            .forEach((tp, found) -> say("offset." + tp, found.offset() + "/" + found.metadata()));
        try (MirrorClient client = new MirrorClient(settings)) {
            say("heartbeats", new TreeSet<>(client.heartbeatTopics()));
            say("checkpoints", new TreeSet<>(client.checkpointTopics()));
            say("upstream", new TreeSet<>(client.upstreamClusters()));
            say("remote", new TreeSet<>(client.remoteTopics()));
            for (String alias : client.upstreamClusters()) {
                say("hops." + alias, client.replicationHops(alias));
            }
        }
        for (int at = 3; at < args.length; at += 3) {
            print(args[at], args[at + 1], args[at + 2]);
        }
    }

    private static void print(String bootstrap, String topic, String formatter) throws Exception {
        String name = "org.apache.kafka.connect.mirror.formatters." + formatter;
        MessageFormatter format = (MessageFormatter) Class.forName(name).getConstructor().newInstance();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false");
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        TopicPartition only = new TopicPartition(topic, 0);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.assign(List.of(only));
            consumer.seekToBeginning(List.of(only));
            long end = consumer.endOffsets(List.of(only)).get(only);
            while (consumer.position(only) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(5))) {
                    out.print(formatter + "=");
                    format.writeTo(record, out);
                }
            }
        }
    }

    private static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }
}
