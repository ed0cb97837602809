import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's Java client of any release from 2.8 on: arguments are bootstrap, then names of scenarios. Prints for each
 * `scenario ok` or `scenario WRONG reason`. Uses only what all these releases have.
 */
public final class Clients {
    private final String bootstrap;
    private final String prefix = "java-" + System.nanoTime() + "-";

    private Clients(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) {
        Clients clients = new Clients(args[0]);
        for (int i = 1; i < args.length; i++) {
            try {
                clients.run(args[i]);
                System.out.println(args[i] + " ok");
            } catch (Throwable e) {
                System.out.println(args[i] + " WRONG " + e.toString().replace('\n', ' '));
                e.printStackTrace();
            }
        }
    }

    private void run(String scenario) throws Exception {
        switch (scenario) {
            case "none", "gzip", "snappy", "lz4", "zstd" -> codec(scenario);
            case "group" -> group();
            case "admin" -> admin();
            case "transactions" -> transactions();
            default -> throw new IllegalArgumentException(scenario);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    private KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String... pairs) {
        Properties settings = settings(pairs);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Properties settings(String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            settings.put(pairs[i], pairs[i + 1]);
        }
        return settings;
    }

    private String topic(String name, int partitions) throws Exception {
        String topic = prefix + name;
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        return topic;
    }

    private void codec(String codec) throws Exception {
        String topic = topic(codec, 1);
        int count = 300;
        try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", "20")) {
            for (int i = 0; i < count; i++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, "k" + i, "value ".repeat(20) + i);
                record.headers().add("number", new byte[] {(byte) i});
                producer.send(record);
            }
            RecordMetadata last = producer.send(new ProducerRecord<>(topic, null, null)).get();
            check(last.offset() == count, "the last record is at offset " + last.offset());
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            List<ConsumerRecord<String, String>> found = read(consumer, topic, count + 1);
            for (int i = 0; i < count; i++) {
                ConsumerRecord<String, String> record = found.get(i);
                check(record.offset() == i && record.key().equals("k" + i), "record " + i);
                check(record.value().endsWith(" " + i), "value of " + i);
                check(record.headers().lastHeader("number").value()[0] == (byte) i, "header of " + i);
            }
            check(found.get(count).key() == null && found.get(count).value() == null, "nulls");
        }
    }

    private static List<ConsumerRecord<String, String>> read(
            KafkaConsumer<String, String> consumer, String topic, int count) {
        TopicPartition only = new TopicPartition(topic, 0);
        consumer.assign(List.of(only));
        consumer.seekToBeginning(List.of(only));
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long limit = System.nanoTime() + 60_000_000_000L;
        while (found.size() < count && System.nanoTime() < limit) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        check(found.size() == count, found.size() + " records of " + count);
        return found;
    }

    private void group() throws Exception {
        String topic = topic("group", 4);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>(topic, i % 4, "k", "v" + i));
            }
        }
        String group = prefix + "group";
        String[] base = {"group.id", group, "session.timeout.ms", "10000", "heartbeat.interval.ms", "300"};
        for (String assignor : List.of("RangeAssignor", "CooperativeStickyAssignor")) {
            String[] pairs = java.util.Arrays.copyOf(base, base.length + 2);
            pairs[1] = group + assignor;
            pairs[base.length] = "partition.assignment.strategy";
            pairs[base.length + 1] = "org.apache.kafka.clients.consumer." + assignor;
            try (KafkaConsumer<String, String> one = consumer(pairs)) {
                one.subscribe(List.of(topic));
                int read = 0;
                long limit = System.nanoTime() + 90_000_000_000L;
                while (read < 100 && System.nanoTime() < limit) {
                    read += one.poll(Duration.ofMillis(200)).count();
                }
                check(read == 100, read + " read");
                one.commitSync();
                try (KafkaConsumer<String, String> other = consumer(pairs)) {
                    other.subscribe(List.of(topic));
                    while (other.assignment().size() != 2 || one.assignment().size() != 2) {
                        check(System.nanoTime() < limit, "two members do not share: " + one.assignment());
                        check(other.poll(Duration.ofMillis(100)).isEmpty(), "committed records come again");
                        one.poll(Duration.ofMillis(100));
                    }
                    TopicPartition tp = new TopicPartition(topic, 1);
                    Map<TopicPartition, OffsetAndMetadata> committed = one.committed(Collections.singleton(tp));
                    check(committed.get(tp).offset() == 25, "committed " + committed);
                }
            }
        }
    }

    private void admin() throws Exception {
        String topic = topic("admin", 1);
        try (Admin admin = Admin.create(settings())) {
            check(admin.describeCluster().nodes().get().size() == 1, "nodes");
            check(admin.listTopics().names().get().contains(topic), "topic is not listed");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            check(described(admin, topic).partitions().size() == 3, "partitions");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "12345"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            String value = admin.describeConfigs(List.of(resource)).all().get().get(resource)
                .get("retention.ms").value();
            check(value.equals("12345"), "retention.ms is " + value);
            try (KafkaProducer<String, String> producer = producer()) {
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, "v")).get();
                }
            }
            TopicPartition tp = new TopicPartition(topic, 0);
            check(admin.listOffsets(Map.of(tp, OffsetSpec.latest())).all().get().get(tp).offset() == 10, "latest");
            admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(4))).all().get();
            check(admin.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset() == 4, "earliest");
            String group = prefix + "admin";
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            offsets.put(tp, new OffsetAndMetadata(7, "note"));
            admin.alterConsumerGroupOffsets(group, offsets).all().get();
            OffsetAndMetadata found = admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata().get().get(tp);
            check(found.offset() == 7 && found.metadata().equals("note"), "offsets " + found);
            check(admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "listed");
            admin.deleteConsumerGroupOffsets(group, Collections.singleton(tp)).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    /** The method has another name since 4.0. */
    @SuppressWarnings("unchecked")
    private static TopicDescription described(Admin admin, String topic) throws Exception {
        Object result = admin.describeTopics(List.of(topic));
        for (java.lang.reflect.Method method : result.getClass().getMethods()) {
            if (method.getName().equals("values") || method.getName().equals("topicNameValues")) {
                Object found = method.invoke(result);
                if (found != null) {
                    return ((Map<String, org.apache.kafka.common.KafkaFuture<TopicDescription>>) found)
                        .get(topic).get();
                }
            }
        }
        throw new IllegalStateException("DescribeTopicsResult has no such method");
    }

    private void transactions() throws Exception {
        String in = topic("in", 1);
        String out = topic("out", 1);
        try (KafkaProducer<String, String> plain = producer()) {
            for (int i = 0; i < 20; i++) {
                plain.send(new ProducerRecord<>(in, "v" + i));
            }
        }
        String group = prefix + "copy";
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group);
                KafkaProducer<String, String> producer = producer("transactional.id", prefix + "id")) {
            producer.initTransactions();
            consumer.subscribe(List.of(in));
            int copied = 0;
            boolean abort = true;
            long limit = System.nanoTime() + 60_000_000_000L;
            while (copied < 20 && System.nanoTime() < limit) {
                List<ConsumerRecord<String, String>> batch = new ArrayList<>();
                consumer.poll(Duration.ofMillis(300)).forEach(batch::add);
                if (batch.isEmpty()) {
                    continue;
                }
                for (boolean again = true; again; abort = false) {
                    producer.beginTransaction();
                    batch.forEach(record -> producer.send(new ProducerRecord<>(out, record.value())));
                    long next = batch.get(batch.size() - 1).offset() + 1;
                    producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(in, 0), new OffsetAndMetadata(next)), consumer.groupMetadata());
                    producer.flush();
                    again = abort;
                    if (abort) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
                copied += batch.size();
            }
            check(copied == 20, copied + " copied");
        }
        try (KafkaConsumer<String, String> judge = consumer("group.id", group, "isolation.level", "read_committed")) {
            List<ConsumerRecord<String, String>> found = read(judge, out, 20);
            for (int i = 0; i < 20; i++) {
                check(found.get(i).value().equals("v" + i), "record " + i + " is " + found.get(i).value());
            }
            TopicPartition tp = new TopicPartition(in, 0);
            check(judge.committed(Collections.singleton(tp)).get(tp).offset() == 20, "committed offset");
        }
    }
}
