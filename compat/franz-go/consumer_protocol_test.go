package franzgo

import (
	"context"
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

// member makes a client that joins a group by the consumer protocol (KIP-848), which franz-go has behind a key of its
// context. It sends the name of the server's assignor by its balancer: sticky ones are "uniform".
func member(t *testing.T, group string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	ctx := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck // franz-go's key
	return client(t, append([]kgo.Opt{kgo.WithContext(ctx), kgo.ConsumerGroup(group)}, options...)...)
}

// shares waits until the group has that many members, with that many partitions each, and returns it.
func shares(t *testing.T, group string, members, each int) kadm.DescribedConsumerGroup {
	t.Helper()
	adm := admin(t)
	var found kadm.DescribedConsumerGroup
	until(t, fmt.Sprintf("%d members with %d partitions", members, each), func() bool {
		described, err := adm.DescribeConsumerGroups(within(t), group)
		if err != nil {
			return false
		}
		found = described[group]
		if found.Err != nil || found.State != "Stable" || len(found.Members) != members {
			return false
		}
		for _, member := range found.Members {
			count := 0
			for _, partitions := range member.Assignment {
				count += len(partitions)
			}
			if count != each {
				return false
			}
		}
		return true
	})
	return found
}

func TestConsumerProtocolRebalancesForEachAssignor(t *testing.T) {
	t.Parallel()
	for name, balancer := range map[string]kgo.GroupBalancer{"uniform": kgo.CooperativeStickyBalancer(), "range": kgo.RangeBalancer()} {
		t.Run(name, func(t *testing.T) {
			topic, group := newTopic(t, name, 4, nil), unique(name)
			join := func() *kgo.Client { return member(t, group, kgo.ConsumeTopics(topic), kgo.Balancers(balancer)) }
			first := join()
			if found := shares(t, group, 1, 4); found.AssignorName != name {
				t.Fatalf("assignor %s", found.AssignorName)
			}
			join()
			shares(t, group, 2, 2)
			first.Close()
			shares(t, group, 1, 4)
		})
	}
}

// A member that loses a partition may have read more than it has committed: another reads it again.
func TestConsumerProtocolSharesEveryRecord(t *testing.T) {
	t.Parallel()
	topic, group := newTopic(t, "shares", 4, nil), unique("shares")
	producer := client(t, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	seen, written := map[string]bool{}, 0
	passOn := func(members ...*kgo.Client) {
		values := make([]string, 400)
		for i := range values {
			values[i] = fmt.Sprint(written + i)
		}
		produce(t, producer, topic, values...)
		written += len(values)
		until(t, fmt.Sprintf("%d records", written), func() bool {
			for _, member := range members {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				fetches := member.PollFetches(ctx)
				cancel()
				for _, record := range fetches.Records() {
					seen[string(record.Value)] = true
				}
				member.AllowRebalance()
			}
			return len(seen) >= written
		})
	}
	join := func() *kgo.Client { return member(t, group, kgo.ConsumeTopics(topic), kgo.BlockRebalanceOnPoll()) }
	first := join()
	passOn(first)
	second := join()
	passOn(first, second)
	shares(t, group, 2, 2)
	passOn(first, second)
	must(t, first.CommitUncommittedOffsets(within(t)))
	first.AllowRebalance()
	first.Close()
	passOn(second)
}

func TestConsumerProtocolResumesWhereItCommitted(t *testing.T) {
	t.Parallel()
	topic, group := newTopic(t, "resumes", 1, nil), unique("resumes")
	produce(t, client(t), topic, "a", "b")
	first := member(t, group, kgo.ConsumeTopics(topic))
	take(t, first, 2)
	must(t, first.CommitUncommittedOffsets(within(t)))
	first.Close()
	produce(t, client(t), topic, "c")
	if found := valuesOf(take(t, member(t, group, kgo.ConsumeTopics(topic)), 1)); found[0] != "c" {
		t.Fatal(found)
	}
}

func TestConsumerProtocolStaticMemberReturnsWithItsPartitions(t *testing.T) {
	t.Parallel()
	topic, group := newTopic(t, "returns", 4, nil), unique("returns")
	join := func(instance string) *kgo.Client {
		return member(t, group, kgo.ConsumeTopics(topic), kgo.InstanceID(instance))
	}
	held := func(group kadm.DescribedConsumerGroup, instance string) string {
		for _, member := range group.Members {
			if member.InstanceID != nil && *member.InstanceID == instance {
				return fmt.Sprint(member.Assignment)
			}
		}
		t.Fatalf("%s is no member: %+v", instance, group)
		return ""
	}
	join("stays")
	leaves := join("leaves")
	before := shares(t, group, 2, 2)
	leaves.Close()
	join("leaves")
	after := shares(t, group, 2, 2)
	if held(before, "leaves") != held(after, "leaves") || before.Epoch != after.Epoch {
		t.Fatalf("before %+v, after %+v", before, after)
	}
}

func TestConsumerProtocolFollowsARegularExpression(t *testing.T) {
	t.Parallel()
	stem := unique("pattern")
	newTopic(t, stem+"-0", 1, nil)
	newTopic(t, stem+"-1", 1, nil)
	group := unique("pattern")
	member(t, group, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+stem+"-[0-9]-.*"))
	shares(t, group, 1, 2)
	newTopic(t, stem+"-2", 1, nil)
	found := shares(t, group, 1, 3)
	if regex := found.Members[0].SubscribedTopicRegex; regex == nil || !strings.Contains(*regex, stem) {
		t.Fatalf("%+v", found.Members[0])
	}
}

func TestConsumerProtocolMigratesAndReturnsWhileMembersRun(t *testing.T) {
	t.Parallel()
	topic, group, adm := newTopic(t, "migrates", 4, nil), unique("migrates"), admin(t)
	classic := func() *kgo.Client {
		return client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	kind := func(expected string) {
		until(t, "a group of type "+expected, func() bool {
			listed, err := adm.ListGroupsByType(within(t), []string{expected}, "Stable")
			return err == nil && slices.Contains(listed.Groups(), group)
		})
	}
	old := classic()
	kind("classic")
	modern := member(t, group, kgo.ConsumeTopics(topic))
	shares(t, group, 2, 2)
	kind("consumer")
	old.Close()
	shares(t, group, 1, 4)
	classic()
	shares(t, group, 2, 2)
	modern.Close()
	kind("classic")
	produce(t, client(t), topic, "a")
}

func TestConsumerProtocolGroupsAreListedAndDeleted(t *testing.T) {
	t.Parallel()
	topic, group, adm := newTopic(t, "listed", 2, nil), unique("listed"), admin(t)
	joined := member(t, group, kgo.ConsumeTopics(topic), kgo.Rack("rack-a"))
	found := shares(t, group, 1, 2)
	if found.Epoch <= 0 || found.Epoch != found.AssignmentEpoch || found.Members[0].MemberEpoch != found.Epoch {
		t.Fatalf("%+v", found)
	}
	if rack := found.Members[0].RackID; rack == nil || *rack != "rack-a" {
		t.Fatalf("%+v", found.Members[0])
	}
	listed, err := adm.ListGroupsByType(within(t), []string{"consumer"}, "Stable")
	must(t, err)
	if !slices.Contains(listed.Groups(), group) {
		t.Fatalf("%v", listed.Groups())
	}
	if _, err = adm.DeleteGroup(within(t), group); !errors.Is(err, kerr.NonEmptyGroup) {
		t.Fatalf("expected NON_EMPTY_GROUP, got %v", err)
	}
	joined.Close()
	until(t, "an empty group", func() bool {
		described, err := adm.DescribeConsumerGroups(within(t), group)
		return err == nil && described[group].State == "Empty"
	})
	_, err = adm.DeleteGroup(within(t), group)
	must(t, err)
}
