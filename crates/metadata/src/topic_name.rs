//! Kafka's rules for topic names (`org.apache.kafka.common.internals.Topic`).

/// The topic of groups and committed offsets, written by group coordinators.
pub const OFFSETS: &str = "__consumer_offsets";
/// The topic of transactional ids, written by transaction coordinators.
pub const TRANSACTIONS: &str = "__transaction_state";
/// The topic of share-partition states.
pub const SHARE_STATE: &str = "__share_group_state";
/// The topic of hosted stream definitions, whose records make brokers run streams.
pub const STREAM_DEFINITIONS: &str = "__stream_definitions";
/// The metadata log, which belongs to the controller and is not a topic of the cluster.
pub const CLUSTER_METADATA: &str = "__cluster_metadata";
/// Maximum length of a name. The directory name also contains the partition and the suffix of a deletion.
pub const LENGTH_MAX: usize = 249;

/// An invalid topic name, with Kafka's messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicName {
    /// The empty name.
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// A special directory name of file systems.
    #[error("Topic name is invalid: '{name}' is not allowed")]
    Dots {
        /// The rejected name.
        name: String,
    },
    /// A name too long for a directory.
    #[error(
        "Topic name is invalid: the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    )]
    TooLong {
        /// The rejected name.
        name: String,
    },
    /// A name with characters other than letters, digits, dots, underscores and dashes.
    #[error(
        "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' \
         and '-'"
    )]
    Characters {
        /// The rejected name.
        name: String,
    },
}

/// A topic that coordinators create and write: one of Kafka's three internal topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorTopic {
    /// [`OFFSETS`], of group coordinators.
    Offsets,
    /// [`TRANSACTIONS`], of transaction coordinators.
    Transactions,
    /// [`SHARE_STATE`], of share coordinators.
    ShareState,
}

impl CoordinatorTopic {
    /// All topics of coordinators.
    pub const ALL: [CoordinatorTopic; 3] = [Self::Offsets, Self::Transactions, Self::ShareState];

    /// The topic with this name.
    pub fn of(name: &str) -> Option<CoordinatorTopic> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// Kafka's name of the topic.
    pub fn name(self) -> &'static str {
        match self {
            Self::Offsets => OFFSETS,
            Self::Transactions => TRANSACTIONS,
            Self::ShareState => SHARE_STATE,
        }
    }
}

/// True for a topic of the cluster itself, whose records make brokers act.
pub fn is_internal(name: &str) -> bool {
    is_of_coordinators(name) || name == STREAM_DEFINITIONS
}

/// True for a [`CoordinatorTopic`].
pub fn is_of_coordinators(name: &str) -> bool {
    CoordinatorTopic::of(name).is_some()
}

/// Checks a topic name by Kafka's rules.
pub fn check(name: &str) -> Result<(), InvalidTopicName> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let named = || name.to_owned();
    if name.is_empty() {
        Err(InvalidTopicName::Empty)
    } else if matches!(name, "." | "..") {
        Err(InvalidTopicName::Dots { name: named() })
    } else if name.chars().count() > LENGTH_MAX {
        Err(InvalidTopicName::TooLong { name: named() })
    } else if !name.chars().all(legal) {
        Err(InvalidTopicName::Characters { name: named() })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_on_which_brokers_act_are_internal() {
        for name in [OFFSETS, TRANSACTIONS, SHARE_STATE, STREAM_DEFINITIONS] {
            assert!(is_internal(name), "{name}");
            assert_eq!(is_of_coordinators(name), name != STREAM_DEFINITIONS, "{name}");
        }
        assert!(!is_internal("__stream_definitions-2") && !is_internal("orders"));
    }

    #[test]
    fn all_topics_of_coordinators_are_listed() {
        // A new topic does not compile here before it has a place in the list.
        let place = |topic| match topic {
            CoordinatorTopic::Offsets => 0,
            CoordinatorTopic::Transactions => 1,
            CoordinatorTopic::ShareState => 2,
        };
        for (expected, topic) in CoordinatorTopic::ALL.into_iter().enumerate() {
            assert_eq!(place(topic), expected, "{topic:?}");
            assert_eq!(CoordinatorTopic::of(topic.name()), Some(topic));
        }
    }

    #[test]
    fn names_are_checked_as_kafka_checks_them() {
        for name in ["a", "A.b_c-9", &"x".repeat(249), "..."] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
