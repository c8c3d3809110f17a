package franzgo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Writes to $TOPIC and reads it as a group until its input ends, and prints a line for every commit. trials/faults runs
// it and restarts brokers meanwhile: no error that the client does not retry itself may occur.
func TestMeetsNoErrorUntilItsInputEnds(t *testing.T) {
	topic := os.Getenv("TOPIC")
	if topic == "" {
		t.Skip("trials/faults runs it")
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	var written int64
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		written = write(t, ctx, client(t, kgo.DefaultProduceTopic(topic)))
	}()
	consumer := client(t, kgo.ConsumerGroup(topic+"-readers"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	read := readAndCommit(t, ctx, consumer)
	writer.Wait()
	for int64(len(read)) < written {
		for _, record := range take(t, consumer, 1) {
			read[number(t, record)] = true
		}
	}
	for n := int64(0); n < written; n++ {
		if !read[n] {
			t.Fatalf("%d of %d was not read", n, written)
		}
	}
}

// write writes 0, 1, 2, ... until the context ends, and returns how many all in-sync replicas have.
func write(t *testing.T, ctx context.Context, producer *kgo.Client) int64 {
	n := int64(0)
	for ; ctx.Err() == nil; n++ {
		record := &kgo.Record{Value: []byte(strconv.FormatInt(n, 10))}
		producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("a record was not written: %v", err)
			}
		})
		time.Sleep(4 * time.Millisecond)
	}
	if err := producer.Flush(within(t)); err != nil {
		t.Errorf("the last records were not written: %v", err)
	}
	return n
}

// readAndCommit reads and commits until the context ends, and returns the numbers that were read.
func readAndCommit(t *testing.T, ctx context.Context, consumer *kgo.Client) map[int64]bool {
	read := make(map[int64]bool)
	for ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("partition %d could not be read: %v", partition, err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { read[number(t, record)] = true })
		if err := consumer.CommitUncommittedOffsets(context.Background()); err != nil {
			t.Errorf("offsets were not committed: %v", err)
		}
		fmt.Println("committed")
	}
	return read
}

func number(t *testing.T, record *kgo.Record) int64 {
	n, err := strconv.ParseInt(string(record.Value), 10, 64)
	must(t, err)
	return n
}
