//! The groups of a cluster, with the reasons why groups may be missing in the list.
//!
//! Each broker lists the groups that it coordinates: one for each partition of `__consumer_offsets` that it
//! leads. Groups of a broker without an answer, and of a partition without a leader, are missing. Without
//! DESCRIBE on the cluster, a broker lists only groups on which the login has DESCRIBE.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_security::acl::Operation;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::DescribeClusterRequest;
use tokio::time::Instant;

use super::{Admin, BACKOFF, GroupFilter, GroupListing};
use crate::metadata::{Metadata, TopicMetadata};

/// The topic whose partitions' leaders coordinate groups.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The groups of all brokers that answered, by group id.
#[derive(Clone, Debug, Default)]
pub struct ListedGroups {
    pub groups: Vec<GroupListing>,
    pub unseen: UnseenGroups,
}

/// Why groups may be missing in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnseenGroups {
    /// Brokers that did not list their groups, with the error.
    pub brokers: BTreeMap<i32, String>,
    /// Partitions of `__consumer_offsets` whose leader is none of the brokers, and the number of all.
    pub leaderless: usize,
    pub partitions: usize,
    /// True if the login may not describe `__consumer_offsets`.
    pub are_partitions_hidden: bool,
    /// True if the login lacks DESCRIBE on the cluster.
    pub is_filtered: bool,
}

impl UnseenGroups {
    fn of(metadata: &Metadata) -> UnseenGroups {
        let (leaderless, partitions) = leaderless(metadata, OFFSETS_TOPIC);
        let are_partitions_hidden = metadata.topics.get(OFFSETS_TOPIC).is_some_and(is_hidden);
        UnseenGroups { leaderless, partitions, are_partitions_hidden, ..UnseenGroups::default() }
    }

    /// True if coordinators are missing: the list may be whole at another time.
    pub fn is_coordinator_missing(&self) -> bool {
        !self.brokers.is_empty() || self.leaderless > 0
    }

    /// The reasons as sentences without their full stops; none if the list has all groups.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.missing_coordinators();
        if self.is_filtered {
            reasons.push(
                "Groups that the login may not describe are not listed: it lacks DESCRIBE on the cluster"
                    .to_owned(),
            );
        } else if self.are_partitions_hidden {
            reasons.push(format!(
                "Whether all coordinators have listed their groups is not known: the login lacks DESCRIBE on {OFFSETS_TOPIC}"
            ));
        }
        reasons
    }

    /// The reasons that are missing coordinators.
    pub fn missing_coordinators(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.brokers.is_empty() {
            let brokers: Vec<String> = self.brokers.iter().map(|(id, why)| format!("{id} ({why})")).collect();
            reasons.push(format!("The groups of these brokers are missing: {}", brokers.join(", ")));
        }
        if self.leaderless > 0 {
            reasons.push(format!(
                "The groups in {} of {} partitions of {OFFSETS_TOPIC} are missing: the partitions have no leader",
                self.leaderless, self.partitions
            ));
        }
        reasons
    }
}

/// Partitions of a topic whose leader is none of the brokers, and the number of all.
pub(super) fn leaderless(metadata: &Metadata, topic: &str) -> (usize, usize) {
    let all = metadata.topics.get(topic).map_or(&[][..], |topic| &topic.partitions);
    let is_led = |leader: Option<i32>| leader.is_some_and(|id| metadata.brokers.contains_key(&id));
    (all.iter().filter(|partition| !is_led(partition.leader)).count(), all.len())
}

fn is_hidden(topic: &TopicMetadata) -> bool {
    topic.error == Some(ErrorCode::TopicAuthorizationFailed)
}

impl Admin {
    /// The groups of all brokers that answer. A coordinator that loads its groups is asked again within
    /// `loading`.
    pub async fn listed_groups(&self, loading: Duration) -> Result<ListedGroups, ClientError> {
        let metadata = self.cluster.refresh(&[OFFSETS_TOPIC.to_owned()], false).await?;
        let mut unseen = UnseenGroups::of(&metadata);
        let (groups, is_filtered) =
            tokio::join!(self.groups_of_brokers(loading, &mut unseen.brokers), self.lacks_describe());
        let mut groups = groups?;
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(ListedGroups { groups, unseen: UnseenGroups { is_filtered, ..unseen } })
    }

    async fn groups_of_brokers(
        &self,
        loading: Duration,
        missing: &mut BTreeMap<i32, String>,
    ) -> Result<Vec<GroupListing>, ClientError> {
        // A broker that refuses connections is not asked again.
        let once = self.clone().with_timeout(Duration::ZERO);
        let deadline = Instant::now() + loading;
        let (mut groups, mut left) = (Vec::new(), None);
        loop {
            let asked = once.list_groups_of(left.as_deref(), &GroupFilter::default()).await?;
            let mut again = Vec::new();
            for (id, listed) in asked {
                match listed {
                    Ok(listed) => groups.extend(listed),
                    Err(error) if is_loading(&error) && Instant::now() < deadline => again.push(id),
                    Err(error) => drop(missing.insert(id, reason(&error))),
                }
            }
            if again.is_empty() {
                return Ok(groups);
            }
            left = Some(again);
            tokio::time::sleep(BACKOFF).await;
        }
    }

    /// True if the login lacks DESCRIBE on the cluster, or if no broker reports whether it has it. Without an
    /// authorizer, every login has it.
    pub async fn lacks_describe(&self) -> bool {
        let request =
            DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
        match self.cluster.send_any(&request).await {
            Ok(response) if response.error_code == 0 => {
                let operations = response.cluster_authorized_operations;
                operations != i32::MIN && operations & (1 << Operation::Describe.code()) == 0
            }
            _ => true,
        }
    }
}

fn is_loading(error: &ClientError) -> bool {
    matches!(
        error.error_code(),
        Some(ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable)
    )
}

/// The error without the name of the broker, which stands before it.
fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Refused(RefusedRequest { error_code, message: None, .. }) => error_code.to_string(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_record::LeaderEpoch;
    use thalweg_wire::Uuid;

    use super::*;
    use crate::metadata::{BrokerAddress, PartitionMetadata};

    fn metadata(leaders: &[Option<i32>], error: Option<ErrorCode>) -> Metadata {
        let partition = |(index, leader): (i32, &Option<i32>)| PartitionMetadata {
            index,
            error: None,
            leader: *leader,
            leader_epoch: LeaderEpoch(0),
            replicas: vec![1],
            isr: vec![1],
            offline: Vec::new(),
        };
        let topic = TopicMetadata {
            name: OFFSETS_TOPIC.into(),
            id: Uuid(0),
            internal: true,
            error,
            partitions: (0..).zip(leaders).map(partition).collect(),
        };
        let broker = BrokerAddress { id: 1, host: "b1".to_owned(), port: 9092, rack: None };
        Metadata {
            brokers: BTreeMap::from([(1, broker)]),
            topics: BTreeMap::from([(OFFSETS_TOPIC.to_owned(), topic)]),
            ..Metadata::default()
        }
    }

    #[test]
    fn groups_of_partitions_without_a_leader_are_missing() {
        let whole = UnseenGroups::of(&metadata(&[Some(1), Some(1)], None));
        assert!(whole.reasons().is_empty() && !whole.is_coordinator_missing(), "{whole:?}");
        let unseen = UnseenGroups::of(&metadata(&[Some(1), None, Some(2)], None));
        assert!(unseen.is_coordinator_missing());
        let expected = "The groups in 2 of 3 partitions of __consumer_offsets are missing: the partitions have no leader";
        assert_eq!(unseen.reasons(), [expected], "broker 2 is none of the brokers");
        let none = UnseenGroups::of(&metadata(&[], Some(ErrorCode::UnknownTopicOrPartition)));
        assert!(none.reasons().is_empty(), "there is no group yet");
    }

    #[test]
    fn a_login_without_rights_may_miss_groups() {
        let hidden = UnseenGroups::of(&metadata(&[], Some(ErrorCode::TopicAuthorizationFailed)));
        assert!(!hidden.is_coordinator_missing());
        assert!(hidden.reasons()[0].starts_with("Whether all coordinators"), "{hidden:?}");
        let filtered = UnseenGroups { is_filtered: true, ..hidden };
        let [reason] = &filtered.reasons()[..] else { panic!("{filtered:?}") };
        assert!(reason.starts_with("Groups that the login may not describe are not listed"), "{reason}");
    }

    #[test]
    fn silent_brokers_are_named() {
        let silent = BTreeMap::from([(3, "Cannot connect to b3:9092".to_owned())]);
        let unseen = UnseenGroups { brokers: silent, ..UnseenGroups::default() };
        assert!(unseen.is_coordinator_missing());
        let expected = "The groups of these brokers are missing: 3 (Cannot connect to b3:9092)";
        assert_eq!(unseen.reasons(), [expected]);
    }
}
