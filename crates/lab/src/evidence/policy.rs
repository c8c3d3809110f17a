//! The topics' durability settings: when records are synced to disk, and when they are removed.

use std::collections::BTreeMap;

use thalweg_client::{ClientError, Cluster, RefusedRequest};
use thalweg_wire::request::DescribeConfigsRequest;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;

/// Kafka's resource type of topics.
const TOPIC: i8 = 2;
/// The value for "never".
const NEVER: u64 = i64::MAX as u64;

/// The relevant settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policies {
    /// The broker's fsync policy, as text.
    pub(super) fsync: String,
    /// Topics whose records compaction may remove.
    pub(super) compacted: Vec<String>,
}

/// Requests the settings of the topics, including the brokers' defaults.
pub(super) async fn read(cluster: &Cluster, topics: &[String]) -> Result<Policies, ClientError> {
    let keys = ["flush.messages", "flush.ms", "cleanup.policy"];
    let resources = topics.iter().map(|topic| DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: topic.clone(),
        configuration_keys: Some(keys.map(str::to_owned).to_vec()),
    });
    let request =
        DescribeConfigsRequest { resources: resources.collect(), ..DescribeConfigsRequest::default() };
    let mut fsync: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut compacted = Vec::new();
    for result in cluster.send_any(&request).await?.results {
        let topic = result.resource_name;
        RefusedRequest::check(result.error_code, result.error_message.as_deref(), || {
            format!("Settings of topic {topic}")
        })?;
        let settings: BTreeMap<String, String> = result
            .configs
            .into_iter()
            .filter_map(|setting| setting.value.map(|value| (setting.name, value)))
            .collect();
        let number = |key| settings.get(key).and_then(|value| value.parse().ok()).unwrap_or(NEVER);
        let words = in_words(number("flush.messages"), number("flush.ms"));
        fsync.entry(words).or_default().push(topic.clone());
        if settings.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
            compacted.push(topic);
        }
    }
    let fsync = match fsync.len() {
        1 => fsync.into_keys().collect(),
        _ => {
            let each = fsync.into_iter().map(|(words, topics)| format!("{}: {words}", topics.join(", ")));
            each.collect::<Vec<String>>().join("; ")
        }
    };
    Ok(Policies { fsync, compacted })
}

/// The two settings as text.
fn in_words(messages: u64, ms: u64) -> String {
    let by_count = match messages {
        NEVER => None,
        1 => Some("before each acknowledgement (flush.messages=1)".to_owned()),
        messages => Some(format!("after {messages} records of a partition (flush.messages)")),
    };
    let by_time = (ms != NEVER).then(|| format!("{ms} ms after a record (flush.ms)"));
    match (by_count, by_time) {
        (None, None) => {
            "left to the operating system: acknowledged records are in the page cache, and on other \
                         replicas, if any"
                .to_owned()
        }
        (Some(one), None) | (None, Some(one)) => one,
        (Some(by_count), Some(by_time)) => format!("{by_count}, and {by_time}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_printed_in_words() {
        assert!(in_words(NEVER, NEVER).starts_with("left to the operating system"));
        assert_eq!(in_words(1, NEVER), "before each acknowledgement (flush.messages=1)");
        assert_eq!(
            in_words(5000, 1000),
            "after 5000 records of a partition (flush.messages), and 1000 ms after a record (flush.ms)"
        );
    }
}
