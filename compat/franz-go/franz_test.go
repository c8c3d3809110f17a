package franzgo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func numbers(count int) []string {
	values := make([]string, count)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	return values
}

func valuesOf(records []*kgo.Record) []string {
	values := make([]string, len(records))
	for i, record := range records {
		values[i] = string(record.Value)
	}
	return values
}

func TestAdminCreatesDescribesAndDeletesTopics(t *testing.T) {
	t.Parallel()
	retention := "123000"
	topic, adm := newTopic(t, "admin", 3, map[string]*string{"retention.ms": &retention}), admin(t)
	configs, err := adm.DescribeTopicConfigs(within(t), topic)
	must(t, err)
	found := slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool {
		return c.Key == "retention.ms" && c.MaybeValue() == retention
	})
	if !found {
		t.Fatalf("retention.ms is not %s: %v", retention, configs[0].Configs)
	}
	_, err = adm.CreateTopic(within(t), 1, 1, nil, topic)
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Fatalf("expected TOPIC_ALREADY_EXISTS, got %v", err)
	}
	deleted, err := adm.DeleteTopics(within(t), topic)
	must(t, err)
	must(t, deleted.Error())
	until(t, "the topic gone", func() bool {
		topics, err := adm.ListTopics(within(t))
		return err == nil && !topics.Has(topic)
	})
}

func TestAdminAltersConfigsAndPartitions(t *testing.T) {
	t.Parallel()
	topic, adm, value := newTopic(t, "alter", 1, nil), admin(t), "77000"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
	altered, err := adm.AlterTopicConfigs(within(t), set, topic)
	must(t, err)
	must(t, altered[0].Err)
	grown, err := adm.UpdatePartitions(within(t), 4, topic)
	must(t, err)
	must(t, grown.Error())
	until(t, "four partitions", func() bool {
		topics, err := adm.ListTopics(within(t), topic)
		return err == nil && len(topics[topic].Partitions) == 4
	})
}

func TestProducesAndConsumesEachCodec(t *testing.T) {
	t.Parallel()
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			topic, values := newTopic(t, name, 1, nil), numbers(2_000)
			for i := range values {
				values[i] += strings.Repeat(" words that repeat", 20)
			}
			produce(t, client(t, kgo.ProducerBatchCompression(codec)), topic, values...)
			if found := valuesOf(take(t, client(t, kgo.ConsumeTopics(topic)), len(values))); !slices.Equal(values, found) {
				t.Fatal("other values came back")
			}
		})
	}
}

func TestProducesWithEachAcks(t *testing.T) {
	t.Parallel()
	for name, acks := range map[string]kgo.Acks{"none": kgo.NoAck(), "leader": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
		t.Run(name, func(t *testing.T) {
			topic := newTopic(t, "acks", 1, nil)
			produce(t, client(t, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()), topic, "a", "b")
			if found := valuesOf(take(t, client(t, kgo.ConsumeTopics(topic)), 2)); !slices.Equal(found, []string{"a", "b"}) {
				t.Fatal(found)
			}
		})
	}
}

func TestKeysHeadersAndTimestamps(t *testing.T) {
	t.Parallel()
	topic, stamp := newTopic(t, "record", 1, nil), time.UnixMilli(1_600_000_000_123)
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "null", Value: nil}}
	sent := &kgo.Record{Topic: topic, Key: []byte("k"), Headers: headers, Timestamp: stamp}
	must(t, client(t).ProduceSync(within(t), sent).FirstErr())
	found := take(t, client(t, kgo.ConsumeTopics(topic)), 1)[0]
	if string(found.Key) != "k" || found.Value != nil || len(found.Headers) != 2 || !found.Timestamp.Equal(stamp) {
		t.Fatalf("%+v", found)
	}
}

func TestRefusesTooLargeRecords(t *testing.T) {
	t.Parallel()
	limit := "1000"
	topic := newTopic(t, "large", 1, map[string]*string{"max.message.bytes": &limit})
	record := &kgo.Record{Topic: topic, Value: make([]byte, 5_000)}
	err := client(t, kgo.ProducerBatchCompression(kgo.NoCompression())).ProduceSync(within(t), record).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		t.Fatalf("expected MESSAGE_TOO_LARGE, got %v", err)
	}
}

func TestConsumesFromAnOffsetAndATime(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "offsets", 1, nil)
	for i := range 10 {
		record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(i)), Timestamp: time.UnixMilli(1_600_000_000_000 + int64(i)*1_000)}
		must(t, client(t).ProduceSync(within(t), record).FirstErr())
	}
	for name, offset := range map[string]kgo.Offset{"at": kgo.NewOffset().At(6), "after": kgo.NewOffset().AfterMilli(1_600_000_005_001)} {
		start := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}})
		if found := take(t, client(t, start), 4); string(found[0].Value) != "6" {
			t.Fatalf("%s: starts with %s", name, found[0].Value)
		}
	}
	ends, err := admin(t).ListEndOffsets(within(t), topic)
	must(t, err)
	if end, _ := ends.Lookup(topic, 0); end.Offset != 10 {
		t.Fatalf("end offset %d", end.Offset)
	}
}

func TestDeletesRecords(t *testing.T) {
	t.Parallel()
	topic, adm := newTopic(t, "delete", 1, nil), admin(t)
	produce(t, client(t), topic, numbers(10)...)
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 4, -1)
	_, err := adm.DeleteRecords(within(t), offsets)
	must(t, err)
	if found := take(t, client(t, kgo.ConsumeTopics(topic)), 6); found[0].Offset != 4 {
		t.Fatalf("starts at %d", found[0].Offset)
	}
}

func TestGroupResumesWhereItCommitted(t *testing.T) {
	t.Parallel()
	topic, group := newTopic(t, "resume", 1, nil), unique("resume")
	produce(t, client(t), topic, "a", "b")
	member := func() *kgo.Client { return client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic)) }
	first := member()
	take(t, first, 2)
	must(t, first.CommitUncommittedOffsets(within(t)))
	first.Close()
	produce(t, client(t), topic, "c")
	if found := valuesOf(take(t, member(), 1)); found[0] != "c" {
		t.Fatal(found)
	}
}

func TestGroupRebalancesForEachBalancer(t *testing.T) {
	t.Parallel()
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "sticky": kgo.StickyBalancer(), "cooperative": kgo.CooperativeStickyBalancer(),
	}
	for name, balancer := range balancers {
		t.Run(name, func(t *testing.T) {
			topic, group, adm := newTopic(t, name, 4, nil), unique(name), admin(t)
			join := func() *kgo.Client {
				return client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(balancer))
			}
			holds := func(members, each int) {
				until(t, fmt.Sprintf("%d members with %d partitions", members, each), func() bool {
					described, err := adm.DescribeGroups(within(t), group)
					if err != nil || described[group].State != "Stable" || len(described[group].Members) != members {
						return false
					}
					for _, member := range described[group].Members {
						assigned, ok := member.Assigned.AsConsumer()
						if !ok || len(assigned.Topics) != 1 || len(assigned.Topics[0].Partitions) != each {
							return false
						}
					}
					return true
				})
			}
			first := join()
			holds(1, 4)
			join()
			holds(2, 2)
			first.Close()
			holds(1, 4)
		})
	}
}

func TestAdminMovesAndDeletesGroupOffsets(t *testing.T) {
	t.Parallel()
	topic, group, adm := newTopic(t, "moved", 1, nil), unique("moved"), admin(t)
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 3, -1)
	committed, err := adm.CommitOffsets(within(t), group, offsets)
	must(t, err)
	must(t, committed.Error())
	found, err := adm.FetchOffsets(within(t), group)
	must(t, err)
	if offset, ok := found.Lookup(topic, 0); !ok || offset.At != 3 {
		t.Fatalf("%+v", offset)
	}
	deleted, err := adm.DeleteGroup(within(t), group)
	must(t, err)
	must(t, deleted.Err)
	groups, err := adm.ListGroups(within(t))
	must(t, err)
	if slices.Contains(groups.Groups(), group) {
		t.Fatal("the group is still listed")
	}
}

func TestTransactionsCommitAndAbort(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "transactions", 1, nil)
	producer := client(t, kgo.TransactionalID(unique("tx")), kgo.DefaultProduceTopic(topic))
	var expected []string
	for round := range 8 {
		must(t, producer.BeginTransaction())
		var values []string
		for number := range 25 {
			values = append(values, fmt.Sprintf("%d-%d", round, number))
		}
		produce(t, producer, topic, values...)
		commits := kgo.TransactionEndTry(round%3 != 1)
		must(t, producer.EndTransaction(within(t), commits))
		if commits {
			expected = append(expected, values...)
		}
	}
	committed := client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if found := valuesOf(take(t, committed, len(expected))); !slices.Equal(found, expected) {
		t.Fatalf("read %v", found)
	}
}

func TestTransactSessionsMoveEveryRecordOnce(t *testing.T) {
	t.Parallel()
	source, sink, group := newTopic(t, "source", 2, nil), newTopic(t, "sink", 1, nil), unique("pipe")
	produce(t, client(t), source, numbers(300)...)
	options, err := connection()
	must(t, err)
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID(unique("tx")), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxPartitionBytes(512), kgo.DefaultProduceTopic(sink))...)
	must(t, err)
	defer session.Close()
	for moved, round := 0, 0; moved < 300; round++ {
		fetches := session.PollFetches(within(t))
		must(t, fetches.Err())
		must(t, session.Begin())
		for _, record := range fetches.Records() {
			session.Produce(within(t), kgo.StringRecord(string(record.Value)), nil)
		}
		committed, err := session.End(within(t), kgo.TransactionEndTry(round%2 == 1))
		must(t, err)
		if committed {
			moved += fetches.NumRecords()
		}
	}
	found := valuesOf(take(t, client(t, kgo.ConsumeTopics(sink), kgo.FetchIsolationLevel(kgo.ReadCommitted())), 300))
	expected := numbers(300)
	slices.Sort(found)
	slices.Sort(expected)
	if !slices.Equal(found, expected) {
		t.Fatalf("moved %v", found)
	}
}

func TestTransactionsAreListedAndDescribed(t *testing.T) {
	t.Parallel()
	topic, id, adm := newTopic(t, "listed", 1, nil), unique("listed"), admin(t)
	producer := client(t, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	must(t, producer.BeginTransaction())
	produce(t, producer, topic, "x")
	described, err := adm.DescribeTransactions(within(t), id)
	must(t, err)
	if found := described[id]; found.State != "Ongoing" || !found.Topics.Lookup(topic, 0) {
		t.Fatalf("described %+v", found)
	}
	listed, err := adm.ListTransactions(within(t), nil, []string{"Ongoing"})
	must(t, err)
	if _, found := listed[id]; !found {
		t.Fatalf("%s is not among %v", id, listed)
	}
	must(t, producer.EndTransaction(within(t), kgo.TryAbort))
}
