// Replicas as Apache Kafka 3.9 places them (the last release whose brokers place them by this rule, with
// ZooKeeper). Reads lines "partitions factor start broker:rack broker:rack …" ("-" is no rack), prints one
// line for each: replicas of a partition joined by ",", partitions by " ".
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

public class Assignments {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.trim().split(" ");
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (int i = 3; i < words.length; i++) {
                String[] parts = words[i].split(":");
                Optional<String> rack = parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]);
                brokers.add(new BrokerMetadata(Integer.parseInt(parts[0]), rack));
            }
            Map<Integer, List<Integer>> placed = AdminUtils.assignReplicasToBrokers(
                brokers, Integer.parseInt(words[0]), Integer.parseInt(words[1]), Integer.parseInt(words[2]), 0);
            StringBuilder answer = new StringBuilder();
            for (int partition = 0; partition < placed.size(); partition++) {
                for (int replica : placed.get(partition)) {
                    answer.append(replica).append(',');
                }
                answer.setCharAt(answer.length() - 1, ' ');
            }
            System.out.println(answer.toString().trim());
        }
    }
}
