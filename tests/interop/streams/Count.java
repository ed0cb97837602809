import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words: topic `words` by value, through a repartition topic, with the counts in a store that a changelog
 * topic backs, to topic `counts`. Arguments: bootstrap, application id, processing guarantee, state folder.
 * Prints RUNNING when it runs, and runs until it is killed.
 */
public final class Count {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
            StreamsConfig.APPLICATION_ID_CONFIG, args[1],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[2],
            StreamsConfig.STATE_DIR_CONFIG, args[3],
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000,
            StreamsConfig.REPLICATION_FACTOR_CONFIG, 1,
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class));
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 1000);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", 200);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("seen"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled())
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        Thread.currentThread().join();
    }
}
