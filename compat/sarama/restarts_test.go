package saramasuite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
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
	readers := &readers{read: make(map[int64]bool)}
	stopped := make(chan struct{})
	group, err := sarama.NewConsumerGroup(brokers, topic+"-readers", readingConfig())
	must(t, err)
	go func() {
		for err := range group.Errors() {
			if !isTriedAgain(err) {
				t.Errorf("an error came through to the group: %v", err)
			}
		}
		close(stopped)
	}()
	reading, stop := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Add(1)
	go func() {
		defer reader.Done()
		for reading.Err() == nil {
			err := group.Consume(reading, []string{topic}, readers)
			if err != nil && !errors.Is(err, context.Canceled) && !hasMoved(err) {
				t.Errorf("the group ended: %v", err)
			}
		}
	}()
	written := write(t, ctx, topic)
	until(t, fmt.Sprintf("%d read", written), func() bool { return readers.count() >= written })
	stop()
	reader.Wait()
	must(t, group.Close())
	<-stopped
}

// isTriedAgain reports whether an error is of a connection that is reopened, or says that the coordinator has moved.
func isTriedAgain(err error) bool {
	var answer sarama.KError
	return !errors.As(err, &answer) || hasMoved(answer)
}

// hasMoved reports whether an error says that the coordinator has moved. Consume returns then, at times with the error:
// it looks three times within 0.75 s for the coordinator that has the offsets. Its loop joins again.
func hasMoved(err error) bool {
	var answer sarama.KError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer {
	case sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrOffsetsLoadInProgress:
		return true
	}
	return false
}

func readingConfig() *sarama.Config {
	made := config()
	made.Consumer.Return.Errors = true
	made.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	made.Consumer.Group.Session.Timeout = 6 * time.Second
	made.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return made
}

// write writes 0, 1, 2, ... until the context ends, and returns how many all in-sync replicas have.
func write(t *testing.T, ctx context.Context, topic string) int {
	settings := config()
	settings.Producer.Idempotent, settings.Net.MaxOpenRequests = true, 1
	settings.Producer.RequiredAcks = sarama.WaitForAll
	producer, err := sarama.NewAsyncProducer(brokers, settings)
	must(t, err)
	var answers sync.WaitGroup
	var answered atomic.Int64
	answers.Add(2)
	go func() {
		defer answers.Done()
		for range producer.Successes() {
			answered.Add(1)
		}
	}()
	go func() {
		defer answers.Done()
		for err := range producer.Errors() {
			t.Errorf("a record was not written: %v", err.Err)
			answered.Add(1)
		}
	}()
	n := 0
	for ; ctx.Err() == nil; n++ {
		producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(n))}
		time.Sleep(4 * time.Millisecond)
	}
	// A closed producer drops what it would have retried.
	until(t, fmt.Sprintf("%d answered", n), func() bool { return answered.Load() == int64(n) })
	producer.AsyncClose()
	answers.Wait()
	return n
}

// readers tracks what the member of a group has read.
type readers struct {
	lock sync.Mutex
	read map[int64]bool
}

func (r *readers) count() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return len(r.read)
}

func (r *readers) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *readers) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *readers) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		n, err := strconv.ParseInt(string(message.Value), 10, 64)
		if err != nil {
			return err
		}
		r.lock.Lock()
		r.read[n] = true
		r.lock.Unlock()
		session.MarkMessage(message, "")
		if n%50 == 0 {
			session.Commit()
			fmt.Println("committed")
		}
	}
	return nil
}
