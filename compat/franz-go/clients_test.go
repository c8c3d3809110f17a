// Package franzgo is the suite of franz-go against the broker at $BOOTSTRAP.
package franzgo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// unique makes a name that no other test uses, for a topic or a group.
func unique(stem string) string {
	bytes := make([]byte, 4)
	rand.Read(bytes)
	return stem + "-" + hex.EncodeToString(bytes)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	all, err := connection()
	must(t, err)
	made, err := kgo.NewClient(append(all, options...)...)
	must(t, err)
	t.Cleanup(made.Close)
	return made
}

func admin(t *testing.T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(client(t))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTopic creates a topic and waits until its partitions have leaders.
func newTopic(t *testing.T, stem string, partitions int32, configs map[string]*string) string {
	t.Helper()
	topic, adm := unique(stem), admin(t)
	_, err := adm.CreateTopic(within(t), partitions, 1, configs, topic)
	must(t, err)
	until(t, "leaders of "+topic, func() bool {
		details, err := adm.ListTopics(within(t), topic)
		if err != nil || details.Error() != nil || len(details[topic].Partitions) != int(partitions) {
			return false
		}
		for _, partition := range details[topic].Partitions {
			if partition.Leader < 0 {
				return false
			}
		}
		return true
	})
	return topic
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s: " + what)
		}
	}
}

func produce(t *testing.T, producer *kgo.Client, topic string, values ...string) {
	t.Helper()
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		records[i] = &kgo.Record{Topic: topic, Value: []byte(value)}
	}
	must(t, producer.ProduceSync(within(t), records...).FirstErr())
}

// take polls that many records.
func take(t *testing.T, consumer *kgo.Client, count int) []*kgo.Record {
	t.Helper()
	ctx, records := within(t), []*kgo.Record(nil)
	for len(records) < count {
		fetches := consumer.PollFetches(ctx)
		must(t, fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}
