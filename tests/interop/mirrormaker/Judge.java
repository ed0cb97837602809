import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Asks Apache Kafka's own client of MirrorMaker 2 about a target cluster; prints one `name=value` per line. */
public final class Judge {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        String source = args[1];
        String group = args[2];
        Map<TopicPartition, OffsetAndMetadata> offsets =
            RemoteClusterUtils.translateOffsets(settings, source, group, Duration.ofSeconds(20));
        TreeMap<String, String> lines = new TreeMap<>();
        offsets.forEach((tp, found) -> lines.put("offset." + tp, found.offset() + " " + found.metadata()));
        try (MirrorClient client = new MirrorClient(settings)) {
            lines.put("heartbeats", new TreeSet<>(client.heartbeatTopics()).toString());
            lines.put("checkpoints", new TreeSet<>(client.checkpointTopics()).toString());
            lines.put("upstream", new TreeSet<>(client.upstreamClusters()).toString());
            lines.put("remote", new TreeSet<>(client.remoteTopics()).toString());
            lines.put("hops", String.valueOf(client.replicationHops(source)));
        }
        lines.forEach((name, value) -> System.out.println(name + "=" + value));
    }
}
