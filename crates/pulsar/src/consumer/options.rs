//! Settings of a consumer.

use std::time::Duration;

/// How a subscription gives messages to its consumers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SubscriptionType {
    /// One consumer at a time.
    #[default]
    Exclusive,
    /// All consumers, each batch to one of them.
    Shared,
    /// One consumer of those that are connected.
    Failover,
    /// All consumers, the messages of a key to one of them.
    KeyShared,
}

impl SubscriptionType {
    /// `CommandSubscribe.SubType`.
    pub(crate) fn code(self) -> i32 {
        match self {
            SubscriptionType::Exclusive => 0,
            SubscriptionType::Shared => 1,
            SubscriptionType::Failover => 2,
            SubscriptionType::KeyShared => 3,
        }
    }

    /// True if one consumer gets all messages in order, so that acknowledgements can be cumulative.
    pub fn is_ordered(self) -> bool {
        matches!(self, SubscriptionType::Exclusive | SubscriptionType::Failover)
    }
}

/// The first message of a new subscription. An existing one goes on where it was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InitialPosition {
    /// The next message that is produced.
    #[default]
    Latest,
    /// The oldest message of the topic.
    Earliest,
}

/// Settings of a [`Consumer`](crate::Consumer). The defaults are those of Pulsar's Java client.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// `subscriptionType`.
    pub subscription_type: SubscriptionType,
    /// `subscriptionInitialPosition`.
    pub initial_position: InitialPosition,
    /// `consumerName`. Failover subscriptions order their consumers by it.
    pub name: Option<String>,
    /// `receiverQueueSize`: messages that the broker may send ahead of the caller, at least 1.
    pub receiver_queue_size: u32,
    /// `acknowledgementsGroupTime`: time for which acknowledgements wait, to be sent together; zero for none.
    pub ack_delay: Duration,
    /// `maxAcknowledgmentGroupSize`: entries that are acknowledged together at most.
    pub ack_group_max: usize,
    /// Limit of a batch after decompression, in bytes.
    pub uncompressed_bytes_max: usize,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            subscription_type: SubscriptionType::Exclusive,
            initial_position: InitialPosition::Latest,
            name: None,
            receiver_queue_size: 1000,
            ack_delay: Duration::from_millis(100),
            ack_group_max: 1000,
            uncompressed_bytes_max: 64 << 20,
        }
    }
}
