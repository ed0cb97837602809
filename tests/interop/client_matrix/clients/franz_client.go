// One scenario with franz-go: `client BOOTSTRAP SCENARIO TOPIC`.
//
// Exit code 0 done, anything else a failure whose last line says why.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const rows = 200

var bootstrap, topic string

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

func client(options ...kgo.Opt) *kgo.Client {
	all := append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation()}, options...)
	made, err := kgo.NewClient(all...)
	must(err)
	return made
}

func records(from, to int) []*kgo.Record {
	var made []*kgo.Record
	for number := from; number < to; number++ {
		made = append(made, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value(number))})
	}
	return made
}

func produce(ctx context.Context, from, to int, options ...kgo.Opt) {
	producer := client(options...)
	defer producer.Close()
	must(producer.ProduceSync(ctx, records(from, to)...).FirstErr())
}

func consume(ctx context.Context, count int, group string, options ...kgo.Opt) []string {
	all := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	consumer := client(append(all, options...)...)
	defer consumer.Close()
	var found []string
	for len(found) < count {
		fetches := consumer.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	must(consumer.CommitUncommittedOffsets(ctx))
	return found
}

func inOrder(found []string, from, to int) {
	check(len(found) == to-from, "%d records instead of %d", len(found), to-from)
	for n, text := range found {
		check(text == value(from+n), "record %d is %.20q", n, text)
	}
}

func codec(ctx context.Context, chosen kgo.CompressionCodec) {
	produce(ctx, 0, rows, kgo.ProducerBatchCompression(chosen), kgo.ProducerLinger(50*time.Millisecond))
	inOrder(consume(ctx, rows, topic), 0, rows)
}

func group(ctx context.Context) {
	admin := kadm.NewClient(client())
	defer admin.Close()
	_, err := admin.CreateTopic(ctx, 4, 1, nil, topic)
	must(err)
	held := make([]map[int32]bool, 2)
	changes := make(chan func(), 100)
	var members []*kgo.Client
	for n := range held {
		held[n] = map[int32]bool{}
		note := func(present bool) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
				changes <- func() {
					for _, partition := range partitions[topic] {
						if present {
							held[n][partition] = true
						} else {
							delete(held[n], partition)
						}
					}
				}
			}
		}
		member := client(kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.HeartbeatInterval(300*time.Millisecond),
			kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)))
		members = append(members, member)
		go func() {
			for ctx.Err() == nil && !member.PollFetches(ctx).IsClientClosed() {
			}
		}()
	}
	for len(held[0]) != 2 || len(held[1]) != 2 {
		select {
		case change := <-changes:
			change()
		case <-ctx.Done():
			must(fmt.Errorf("they hold %v", held))
		}
	}
	go func() {
		for range changes {
		}
	}()
	for _, member := range members {
		member.Close()
	}
	produce(ctx, 0, rows)
	check(len(consume(ctx, rows, topic)) == rows, "not all")
	produce(ctx, rows, rows+10)
	found := consume(ctx, 10, topic)
	sort.Strings(found)
	inOrder(found, rows, rows+10)
	committed, err := admin.FetchOffsets(ctx, topic)
	must(err)
	var sum int64
	committed.Each(func(offset kadm.OffsetResponse) { sum += offset.At })
	check(sum == rows+10, "committed are %d", sum)
}

func admin(ctx context.Context) {
	inner := client()
	admin := kadm.NewClient(inner)
	defer admin.Close()
	hour := "3600000"
	_, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &hour}, topic)
	must(err)
	grown, err := admin.UpdatePartitions(ctx, 3, topic)
	must(err)
	must(grown.Error())
	for {
		topics, err := admin.ListTopics(ctx, topic)
		must(err)
		if len(topics[topic].Partitions) == 3 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	must(err)
	described, err := configs.On(topic, nil)
	must(err)
	seen := false
	for _, config := range described.Configs {
		seen = seen || config.Key == "retention.ms" && config.MaybeValue() == hour
	}
	check(seen, "retention.ms is not an hour")
	produce(ctx, 0, 10)
	check(len(consume(ctx, 10, topic)) == 10, "not all")
	groups, err := admin.ListGroups(ctx)
	must(err)
	_, listed := groups[topic]
	check(listed, "the group is not listed")
	states, err := admin.DescribeGroups(ctx, topic)
	must(err)
	check(states[topic].State == "Empty", "the group is %q", states[topic].State)
	lag, err := admin.Lag(ctx, topic)
	must(err)
	check(lag[topic].Lag.Total() == 0, "lag is %d", lag[topic].Lag.Total())
	deleted, err := admin.DeleteGroups(ctx, topic)
	must(err)
	must(deleted.Error())
	gone, err := admin.DeleteTopics(ctx, topic)
	must(err)
	must(gone.Error())
}

func transactions(ctx context.Context) {
	produce(ctx, 0, 1)
	source, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(topic+"-id"),
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	must(err)
	defer source.Close()
	for {
		fetches := source.PollFetches(ctx)
		must(fetches.Err())
		if fetches.NumRecords() > 0 {
			break
		}
	}
	must(source.Begin())
	must(source.ProduceSync(ctx, records(100, 110)...).FirstErr())
	_, err = source.End(ctx, kgo.TryAbort)
	must(err)
	for {
		fetches := source.PollFetches(ctx)
		must(fetches.Err())
		if fetches.NumRecords() > 0 {
			break
		}
	}
	must(source.Begin())
	must(source.ProduceSync(ctx, records(1, 11)...).FirstErr())
	committed, err := source.End(ctx, kgo.TryCommit)
	must(err)
	check(committed, "the transaction was not committed")
	inOrder(consume(ctx, 11, topic+"-2", kgo.FetchIsolationLevel(kgo.ReadCommitted())), 0, 11)
	check(len(consume(ctx, 21, topic+"-3")) == 21, "uncommitted records are missing")
}

func main() {
	bootstrap, topic = os.Args[1], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	switch os.Args[2] {
	case "none":
		codec(ctx, kgo.NoCompression())
	case "gzip":
		codec(ctx, kgo.GzipCompression())
	case "snappy":
		codec(ctx, kgo.SnappyCompression())
	case "lz4":
		codec(ctx, kgo.Lz4Compression())
	case "zstd":
		codec(ctx, kgo.ZstdCompression())
	case "idempotent":
		produce(ctx, 0, rows)
		inOrder(consume(ctx, rows, topic), 0, rows)
	case "group":
		group(ctx)
	case "admin":
		admin(ctx)
	case "transactions":
		transactions(ctx)
	}
}
