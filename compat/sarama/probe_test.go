package saramasuite

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// What compat/confluent-kafka/probe.py does, on sarama: $PROBE has topic and seconds.
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
	settings := config()
	settings.Producer.RequiredAcks = sarama.WaitForAll
	producer, err := sarama.NewSyncProducer(brokers, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	sent := 0
	for end := time.Now().Add(duration); sent == 0 || time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(sent))}); err != nil {
			return err
		}
		sent++
	}
	group, err := sarama.NewConsumerGroup(brokers, topic+"-group", settings)
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	reader := &counter{enough: sent, done: cancel}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, reader); err != nil {
			return err
		}
	}
	if reader.read < sent {
		return fmt.Errorf("%d of %d records read", reader.read, sent)
	}
	return nil
}

// counter reads until it has enough.
type counter struct {
	lock         sync.Mutex
	read, enough int
	done         func()
}

func (c *counter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *counter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		c.lock.Lock()
		c.read++
		if c.read == c.enough {
			session.Commit()
			c.done()
		}
		c.lock.Unlock()
	}
	return nil
}
