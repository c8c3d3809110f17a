package franzgo

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What compat/confluent-kafka/probe.py does, on franz-go: $PROBE has topic and seconds.
func TestProbesAConnection(t *testing.T) {
	arguments := strings.Fields(os.Getenv("PROBE"))
	if len(arguments) == 0 {
		t.Skip("compat/secured runs it")
	}
	seconds, err := strconv.ParseFloat(arguments[1], 64)
	must(t, err)
	if err := probe(arguments[0], time.Duration(seconds*float64(time.Second))); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("ok")
	}
}

func probe(topic string, duration time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second+duration)
	defer cancel()
	options, err := connection()
	if err != nil {
		return err
	}
	// Other errors of a connection are retried until the context ends.
	var last atomic.Value
	options = append(options, kgo.RetryTimeout(10*time.Second), kgo.RecordDeliveryTimeout(10*time.Second),
		kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic+"-group"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.WithHooks(failures{&last}))
	made, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer made.Close()
	sent, read := 0, 0
	for end := time.Now().Add(duration); sent == 0 || time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		record := &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(sent))}
		if err := made.ProduceSync(ctx, record).FirstErr(); err != nil {
			return fmt.Errorf("%w; %v", err, last.Load())
		}
		sent++
	}
	for read < sent {
		fetches := made.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%w; %v", err, last.Load())
		}
		read += fetches.NumRecords()
	}
	return made.CommitUncommittedOffsets(ctx)
}

// failures keeps why a connection could not be opened.
type failures struct{ last *atomic.Value }

func (f failures) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		f.last.Store(err.Error())
	}
}
