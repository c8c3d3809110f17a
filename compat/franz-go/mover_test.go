package franzgo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Moves records from a topic to another, each exactly once: reads, writes and commits offsets in one transaction.
// compat/confluent-kafka/mover.py is the same on librdkafka, and documents its arguments, in $MOVER here, and output.
// franz-go fixes an idempotent producer's requests in flight: five.
func TestMovesUntilItIsKilled(t *testing.T) {
	arguments := strings.Fields(os.Getenv("MOVER"))
	if len(arguments) == 0 {
		t.Skip("trials/faults runs it")
	}
	for {
		session, err := session(t, arguments)
		if err == nil {
			err = move(session, arguments[2])
			session.Close()
		}
		fmt.Println("renewed", err)
	}
}

func session(t *testing.T, arguments []string) (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(arguments[0], ",")...),
		kgo.ConsumeTopics(arguments[1]),
		kgo.ConsumerGroup(arguments[3]),
		kgo.TransactionalID(arguments[4]),
		kgo.TransactionTimeout(6*time.Second),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
}

// move moves until a fatal error. A transaction that fails is aborted, and the session goes
// back to where it was.
func move(session *kgo.GroupTransactSession, sink string) error {
	ctx := context.Background()
	for number := 1; ; {
		fetches := session.PollRecords(ctx, 500)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			moved := &kgo.Record{Topic: sink, Partition: record.Partition, Value: record.Value}
			session.Produce(ctx, moved, failed.Promise())
		})
		err := failed.Err()
		wants := err == nil && number%7 != 0
		committed, ended := session.End(ctx, kgo.TransactionEndTry(wants))
		if ended != nil {
			return ended
		}
		if committed {
			fmt.Println("committed", fetches.NumRecords())
		} else {
			fmt.Println("aborted", err)
		}
		number++
	}
}
