// Package saramasuite is the suite of sarama against the broker at $BOOTSTRAP.
package saramasuite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

var brokers = strings.Split(os.Getenv("BOOTSTRAP"), ",")

// unique makes a name that no other test uses, for a topic or a group.
func unique(stem string) string {
	bytes := make([]byte, 4)
	rand.Read(bytes)
	return stem + "-" + hex.EncodeToString(bytes)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s: " + what)
		}
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V4_1_0_0
	made.Producer.Return.Successes = true
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	if err := secure(made); err != nil {
		panic(err)
	}
	return made
}

func admin(t *testing.T) sarama.ClusterAdmin {
	t.Helper()
	made, err := sarama.NewClusterAdmin(brokers, config())
	must(t, err)
	t.Cleanup(func() { made.Close() })
	return made
}

func newTopic(t *testing.T, stem string, partitions int32, configs map[string]*string) string {
	t.Helper()
	topic, adm := unique(stem), admin(t)
	must(t, adm.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs}, false))
	until(t, "leaders of "+topic, func() bool {
		found, err := adm.DescribeTopics([]string{topic})
		return err == nil && found[0].Err == sarama.ErrNoError && len(found[0].Partitions) == int(partitions)
	})
	return topic
}

func send(t *testing.T, settings *sarama.Config, messages ...*sarama.ProducerMessage) error {
	t.Helper()
	producer, err := sarama.NewSyncProducer(brokers, settings)
	must(t, err)
	defer producer.Close()
	return producer.SendMessages(messages)
}

func values(topic string, texts ...string) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, len(texts))
	for i, text := range texts {
		messages[i] = &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(text)}
	}
	return messages
}

func read(t *testing.T, topic string, offset int64, count int) []*sarama.ConsumerMessage {
	t.Helper()
	consumer, err := sarama.NewConsumer(brokers, config())
	must(t, err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, offset)
	must(t, err)
	defer partition.Close()
	var messages []*sarama.ConsumerMessage
	for timeout := time.After(30 * time.Second); len(messages) < count; {
		select {
		case message := <-partition.Messages():
			messages = append(messages, message)
		case <-timeout:
			t.Fatalf("%d of %d messages within 30 s", len(messages), count)
		}
	}
	return messages
}

func TestProducesAndConsumesEachCodec(t *testing.T) {
	t.Parallel()
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			topic, settings := newTopic(t, name, 1, nil), config()
			settings.Producer.Compression = codec
			texts := make([]string, 1_000)
			for i := range texts {
				texts[i] = fmt.Sprint(i) + strings.Repeat(" words that repeat", 20)
			}
			must(t, send(t, settings, values(topic, texts...)...))
			for i, message := range read(t, topic, 0, len(texts)) {
				if string(message.Value) != texts[i] {
					t.Fatalf("at %d: %s", i, message.Value)
				}
			}
		})
	}
}

func TestIdempotentProducer(t *testing.T) {
	t.Parallel()
	topic, settings := newTopic(t, "idempotent", 1, nil), config()
	settings.Producer.Idempotent, settings.Net.MaxOpenRequests = true, 1
	settings.Producer.RequiredAcks = sarama.WaitForAll
	must(t, send(t, settings, values(topic, "a", "b", "c")...))
	if found := read(t, topic, 0, 3); string(found[2].Value) != "c" {
		t.Fatalf("%s", found[2].Value)
	}
}

func TestKeysHeadersAndTimestamps(t *testing.T) {
	t.Parallel()
	topic, stamp := newTopic(t, "record", 1, nil), time.UnixMilli(1_600_000_000_123)
	headers := []sarama.RecordHeader{{Key: []byte("a"), Value: []byte("1")}}
	sent := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Headers: headers, Timestamp: stamp}
	must(t, send(t, config(), sent))
	found := read(t, topic, 0, 1)[0]
	if string(found.Key) != "k" || found.Value != nil || len(found.Headers) != 1 || !found.Timestamp.Equal(stamp) {
		t.Fatalf("%+v", found)
	}
}

func TestRefusesTooLargeMessages(t *testing.T) {
	t.Parallel()
	limit := "1000"
	topic := newTopic(t, "large", 1, map[string]*string{"max.message.bytes": &limit})
	var failures sarama.ProducerErrors
	err := send(t, config(), values(topic, strings.Repeat("x", 5_000))...)
	if !errors.As(err, &failures) || !errors.Is(failures[0].Err, sarama.ErrMessageSizeTooLarge) {
		t.Fatalf("expected MESSAGE_TOO_LARGE, got %v", err)
	}
}

func TestOffsetsByTimeAndEnds(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "offsets", 1, nil)
	for i := range 5 {
		stamp := time.UnixMilli(1_600_000_000_000 + int64(i)*1_000)
		must(t, send(t, config(), &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x"), Timestamp: stamp}))
	}
	client, err := sarama.NewClient(brokers, config())
	must(t, err)
	defer client.Close()
	for time, expected := range map[int64]int64{sarama.OffsetOldest: 0, sarama.OffsetNewest: 5, 1_600_000_001_500: 2} {
		if found, err := client.GetOffset(topic, 0, time); err != nil || found != expected {
			t.Fatalf("at %d: %d, %v", time, found, err)
		}
	}
}

func TestAdminTopicsPartitionsAndConfigs(t *testing.T) {
	t.Parallel()
	topic, adm, value := newTopic(t, "admin", 2, nil), admin(t), "88000"
	must(t, adm.CreatePartitions(topic, 4, nil, false))
	must(t, adm.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}, false))
	until(t, "the value", func() bool {
		found, err := adm.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
		return err == nil && slices.ContainsFunc(found, func(entry sarama.ConfigEntry) bool {
			return entry.Name == "retention.ms" && entry.Value == value
		})
	})
	must(t, adm.DeleteTopic(topic))
	until(t, "the topic gone", func() bool {
		topics, err := adm.ListTopics()
		_, there := topics[topic]
		return err == nil && !there
	})
}

func TestAdminDeletesRecords(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "delete", 1, nil)
	must(t, send(t, config(), values(topic, "a", "b", "c")...))
	must(t, admin(t).DeleteRecords(topic, map[int32]int64{0: 2}))
	if found := read(t, topic, sarama.OffsetOldest, 1); found[0].Offset != 2 {
		t.Fatalf("starts at %d", found[0].Offset)
	}
}

// member collects its records and the number of its partitions.
type member struct {
	sync.Mutex
	held     int
	messages []string
	stop     func()
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Lock()
	defer m.Unlock()
	m.held = 0
	for _, partitions := range session.Claims() {
		m.held += len(partitions)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.Lock()
			m.messages = append(m.messages, string(message.Value))
			m.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) holds(partitions int) bool {
	m.Lock()
	defer m.Unlock()
	return m.held == partitions
}

func (m *member) got(messages ...string) bool {
	m.Lock()
	defer m.Unlock()
	return slices.Equal(m.messages, messages)
}

func join(t *testing.T, group, topic string, strategy sarama.BalanceStrategy) *member {
	t.Helper()
	settings := config()
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	settings.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	joined, err := sarama.NewConsumerGroup(brokers, group, settings)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	made, done := &member{}, make(chan struct{})
	made.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		joined.Close()
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := joined.Consume(ctx, []string{topic}, made); err != nil {
				return
			}
		}
	}()
	t.Cleanup(made.stop)
	return made
}

func TestGroupRebalancesForEachStrategy(t *testing.T) {
	t.Parallel()
	strategies := map[string]sarama.BalanceStrategy{
		"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky": sarama.NewBalanceStrategySticky(),
	}
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			topic, group := newTopic(t, name, 4, nil), unique(name)
			first := join(t, group, topic, strategy)
			until(t, "all to the first", func() bool { return first.holds(4) })
			second := join(t, group, topic, strategy)
			until(t, "two to each", func() bool { return first.holds(2) && second.holds(2) })
			first.stop()
			until(t, "all to the second", func() bool { return second.holds(4) })
		})
	}
}

func TestGroupResumesWhereItCommitted(t *testing.T) {
	t.Parallel()
	topic, group := newTopic(t, "resume", 1, nil), unique("resume")
	must(t, send(t, config(), values(topic, "a")...))
	first := join(t, group, topic, sarama.NewBalanceStrategyRange())
	until(t, "the first message", func() bool { return first.got("a") })
	first.stop()
	must(t, send(t, config(), values(topic, "b")...))
	second := join(t, group, topic, sarama.NewBalanceStrategyRange())
	until(t, "the second message", func() bool { return second.got("b") })
	second.stop()
	must(t, admin(t).DeleteConsumerGroup(group))
}

func TestTransactionsCommitAndAbort(t *testing.T) {
	t.Parallel()
	topic, settings := newTopic(t, "transactions", 1, nil), config()
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Transaction.ID = unique("tx")
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers, settings)
	must(t, err)
	defer producer.Close()
	var expected []string
	for round := range 6 {
		must(t, producer.BeginTxn())
		texts := []string{fmt.Sprintf("%d-a", round), fmt.Sprintf("%d-b", round)}
		must(t, producer.SendMessages(values(topic, texts...)))
		if round%2 == 1 {
			must(t, producer.AbortTxn())
		} else {
			must(t, producer.CommitTxn())
			expected = append(expected, texts...)
		}
	}
	reading := config()
	reading.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(brokers, reading)
	must(t, err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(t, err)
	defer partition.Close()
	for _, text := range expected {
		select {
		case message := <-partition.Messages():
			if string(message.Value) != text {
				t.Fatalf("read %s, expected %s", message.Value, text)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("not within 30 s: " + text)
		}
	}
}
