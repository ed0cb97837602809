// One scenario with sarama: `client BOOTSTRAP SCENARIO TOPIC`.
//
// Exit code 0 done, anything else a failure whose last line says why.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	rows  = 200
	bound = 60 * time.Second
)

var (
	brokers []string
	topic   string
)

func value(number int) string {
	return fmt.Sprintf("value-%d ", number) + strings.Repeat("compressible ", 20)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(condition bool, format string, args ...any) {
	if !condition {
		must(fmt.Errorf(format, args...))
	}
}

func until(condition func() bool, what string) {
	for ends := time.Now().Add(bound); !condition(); time.Sleep(50 * time.Millisecond) {
		check(time.Now().Before(ends), "not in time: %s", what)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V2_8_0_0
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return made
}

func messages(from, to int) []*sarama.ProducerMessage {
	var made []*sarama.ProducerMessage
	for number := from; number < to; number++ {
		made = append(made, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"),
			Value: sarama.StringEncoder(value(number))})
	}
	return made
}

func produce(settings *sarama.Config, from, to int) {
	producer, err := sarama.NewSyncProducer(brokers, settings)
	must(err)
	must(producer.SendMessages(messages(from, to)))
	must(producer.Close())
}

type reader struct {
	sync.Mutex
	found []string
	held  int
}

func (r *reader) Setup(session sarama.ConsumerGroupSession) error {
	r.Lock()
	defer r.Unlock()
	r.held = len(session.Claims()[topic])
	return nil
}

func (r *reader) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.Lock()
		r.found = append(r.found, string(message.Value))
		r.Unlock()
		session.MarkMessage(message, "")
	}
	return nil
}

func (r *reader) count() (int, int) {
	r.Lock()
	defer r.Unlock()
	return len(r.found), r.held
}

// join returns a member of the group and what ends it.
func join(settings *sarama.Config, id string) (*reader, func()) {
	group, err := sarama.NewConsumerGroup(brokers, id, settings)
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	member, done := &reader{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = group.Consume(ctx, []string{topic}, member)
		}
	}()
	return member, func() {
		cancel()
		<-done
		must(group.Close())
	}
}

func consume(settings *sarama.Config, count int, id string) []string {
	member, end := join(settings, id)
	until(func() bool { found, _ := member.count(); return found >= count }, "records")
	end()
	return member.found
}

func inOrder(found []string, to int) {
	check(len(found) == to, "%d records instead of %d", len(found), to)
	for n, text := range found {
		check(text == value(n), "record %d is %.20q", n, text)
	}
}

func codec(chosen sarama.CompressionCodec) {
	settings := config()
	settings.Producer.Compression = chosen
	produce(settings, 0, rows)
	inOrder(consume(config(), rows, topic), rows)
}

func idempotentSettings() *sarama.Config {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	return settings
}

func administrator() sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin(brokers, config())
	must(err)
	return admin
}

func group() {
	admin := administrator()
	must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false))
	first, endFirst := join(config(), topic)
	second, endSecond := join(config(), topic)
	until(func() bool {
		_, one := first.count()
		_, two := second.count()
		return one == 2 && two == 2
	}, "two members share four partitions")
	endFirst()
	endSecond()
	produce(config(), 0, rows)
	check(len(consume(config(), rows, topic)) == rows, "not all")
	produce(config(), rows, rows+10)
	check(len(consume(config(), 10, topic)) == 10, "records twice")
	offsets, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0, 1, 2, 3}})
	must(err)
	var sum int64
	for _, block := range offsets.Blocks[topic] {
		sum += max(block.Offset, 0)
	}
	check(sum == rows+10, "committed are %d", sum)
	must(admin.Close())
}

func admin() {
	admin, hour := administrator(), "3600000"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &hour}}
	must(admin.CreateTopic(topic, detail, false))
	must(admin.CreatePartitions(topic, 3, nil, false))
	until(func() bool {
		described, err := admin.DescribeTopics([]string{topic})
		must(err)
		return len(described[0].Partitions) == 3
	}, "three partitions")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
		ConfigNames: []string{"retention.ms"}})
	must(err)
	check(len(entries) == 1 && entries[0].Value == hour, "retention.ms is not an hour: %v", entries)
	produce(config(), 0, 10)
	check(len(consume(config(), 10, topic)) == 10, "not all")
	groups, err := admin.ListConsumerGroups()
	must(err)
	_, listed := groups[topic]
	check(listed, "the group is not listed")
	described, err := admin.DescribeConsumerGroups([]string{topic})
	must(err)
	check(described[0].State == "Empty", "the group is %q", described[0].State)
	must(admin.DeleteConsumerGroup(topic))
	must(admin.DeleteRecords(topic, map[int32]int64{0: 0}))
	must(admin.DeleteTopic(topic))
	must(admin.Close())
}

func transactions() {
	produce(config(), 0, 1)
	settings := idempotentSettings()
	settings.Producer.Transaction.ID = topic + "-id"
	producer, err := sarama.NewSyncProducer(brokers, settings)
	must(err)
	must(producer.BeginTxn())
	must(producer.SendMessages(messages(100, 110)))
	must(producer.AbortTxn())
	must(producer.BeginTxn())
	must(producer.SendMessages(messages(1, 11)))
	offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: 1}}}
	must(producer.AddOffsetsToTxn(offsets, topic))
	must(producer.CommitTxn())
	must(producer.Close())
	committed := config()
	committed.Consumer.IsolationLevel = sarama.ReadCommitted
	inOrder(consume(committed, 11, topic+"-2"), 11)
	check(len(consume(config(), 21, topic+"-3")) == 21, "uncommitted records are missing")
}

func main() {
	brokers, topic = []string{os.Args[1]}, os.Args[3]
	switch os.Args[2] {
	case "none":
		codec(sarama.CompressionNone)
	case "gzip":
		codec(sarama.CompressionGZIP)
	case "snappy":
		codec(sarama.CompressionSnappy)
	case "lz4":
		codec(sarama.CompressionLZ4)
	case "zstd":
		codec(sarama.CompressionZSTD)
	case "idempotent":
		produce(idempotentSettings(), 0, rows)
		inOrder(consume(config(), rows, topic), rows)
	case "group":
		group()
	case "admin":
		admin()
	case "transactions":
		transactions()
	}
}
