//! Names of topics: `persistent://TENANT/NAMESPACE/TOPIC`, and the short forms that Pulsar's tools accept.
//!
//! A partition is a topic, too: its name is that of the partitioned topic with `-partition-` and a number.

use std::fmt;
use std::sync::Arc;

const PARTITION: &str = "-partition-";
/// Domains of topics.
const DOMAINS: [&str; 2] = ["persistent", "non-persistent"];

/// The complete name of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicName(Arc<str>);

/// A text is not the name of a topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of a topic: expected TOPIC, TENANT/NAMESPACE/TOPIC or persistent://TENANT/NAMESPACE/TOPIC"
)]
pub struct InvalidTopicName(pub String);

impl TopicName {
    /// Completes a name: the tenant and namespace of a bare topic are `public/default`, and the domain is
    /// `persistent`.
    pub fn parse(name: &str) -> Result<TopicName, InvalidTopicName> {
        let (domain, path) = name.split_once("://").unwrap_or((DOMAINS[0], name));
        let parts: Vec<&str> = path.splitn(3, '/').collect();
        let is_complete = name.contains("://");
        let complete = match parts[..] {
            [topic] if !is_complete => format!("{domain}://public/default/{topic}"),
            [_, _, _] => format!("{domain}://{path}"),
            _ => String::new(),
        };
        let is_named = parts.iter().all(|part| !part.is_empty());
        if complete.is_empty() || !is_named || !DOMAINS.contains(&domain) {
            return Err(InvalidTopicName(name.to_owned()));
        }
        Ok(TopicName(complete.into()))
    }

    /// The name with domain, tenant and namespace.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a partition of this topic.
    pub fn partition(&self, index: u32) -> TopicName {
        TopicName(format!("{}{PARTITION}{index}", self.0).into())
    }

    /// The number of the partition that this topic is; `None` for a topic that is no partition.
    pub fn partition_index(&self) -> Option<u32> {
        let (_, index) = self.0.rsplit_once(PARTITION)?;
        // Pulsar does not take leading zeros or signs for a partition.
        index.parse::<u32>().ok().filter(|parsed| parsed.to_string() == index)
    }

    /// The number of the partition as in message ids; `-1` for a topic that is no partition.
    pub(crate) fn partition_number(&self) -> i32 {
        self.partition_index().and_then(|index| i32::try_from(index).ok()).unwrap_or(-1)
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed() {
        let complete = |name| TopicName::parse(name).map(|topic| topic.to_string());
        assert_eq!(complete("a").as_deref(), Ok("persistent://public/default/a"));
        assert_eq!(complete("t/n/a").as_deref(), Ok("persistent://t/n/a"));
        assert_eq!(complete("non-persistent://t/n/a/b").as_deref(), Ok("non-persistent://t/n/a/b"));
        for wrong in ["", "t/a", "persistent://a", "persistent://t/n/", "other://t/n/a", "t//a"] {
            assert_eq!(complete(wrong), Err(InvalidTopicName(wrong.to_owned())));
        }
    }

    #[test]
    fn partitions_are_topics() {
        let topic = TopicName::parse("a").expect("a name");
        assert_eq!(topic.partition_index(), None);
        let partition = topic.partition(12);
        assert_eq!(partition.as_str(), "persistent://public/default/a-partition-12");
        assert_eq!(partition.partition_index(), Some(12));
        for other in ["a-partition-", "a-partition-x", "a-partition-01", "a-partition-+1"] {
            assert_eq!(TopicName::parse(other).expect("a name").partition_index(), None, "{other}");
        }
    }
}
