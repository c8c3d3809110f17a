//! Topics that exist and that the login may not describe. A list of all topics leaves them out silently, and
//! so do the offsets of a group.
//!
//! Log directories name all topics, for a login that may see those. Topics of brokers whose directories are
//! unknown may be hidden, unless the login may describe topics of any name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_dial::ClientError;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::{MetadataRequest, MetadataResponse};

use super::{Absence, Cause, DirectoryEvidence, counted};
use crate::admin::{Admin, LogDir, Outcomes};
use crate::metadata::Metadata;

/// Names of topics that do not exist. Only a right on all topics is one on both: no other prefix fits.
const ANY_NAMES: [&str; 2] = ["__thalweg-no-such-topic", "0-thalweg-no-such-topic"];

/// Maximum time of attempts to reach a broker for its directories, beside figures that do not need them.
const VIEW_RETRY: Duration = Duration::from_secs(1);

/// The topics in the log directories of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredTopics {
    pub names: BTreeSet<String>,
    /// The reason why topics may be missing; none if the directories of all brokers are known.
    pub gap: Option<Absence>,
}

impl StoredTopics {
    /// The topics in these directories of brokers. The directories of `others`, which were not asked, are
    /// unknown.
    pub fn of(
        directories: Result<&Outcomes<i32, Outcomes<String, LogDir>>, &ClientError>,
        others: impl IntoIterator<Item = i32>,
    ) -> StoredTopics {
        let directories = match directories {
            Ok(directories) => directories,
            Err(error) => return StoredTopics { gap: Some(Absence::of(error)), ..StoredTopics::default() },
        };
        let (mut names, mut gaps) = (BTreeSet::new(), BTreeMap::new());
        for (broker, found) in directories {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    gaps.insert(*broker, Absence::of(error));
                    continue;
                }
            };
            for directory in found.values() {
                match directory {
                    Ok(directory) => names.extend(directory.replicas.keys().map(|at| at.topic.to_string())),
                    Err(error) => drop(gaps.insert(*broker, Absence::of(error))),
                }
            }
        }
        for id in others.into_iter().filter(|id| !directories.contains_key(id)) {
            gaps.insert(id, unknown_directories(id));
        }
        StoredTopics { names, gap: gap(gaps.into_values()) }
    }

    /// The number of topics that exist and that the login may not describe. `is_listed` is true for a topic
    /// in the list of all topics; `ask` sends the request to a broker.
    pub async fn hidden<A: Future<Output = Result<MetadataResponse, ClientError>>>(
        self,
        is_listed: impl Fn(&str) -> bool,
        ask: impl FnOnce(MetadataRequest) -> A,
    ) -> Result<usize, Absence> {
        let names: Vec<String> = self.names.into_iter().filter(|name| !is_listed(name)).collect();
        hidden_topics(names, self.gap, ask).await
    }
}

/// The gap in the directories of a broker; none if it has reported all of them. Those of a broker that gave
/// no answer are `None`.
pub fn directory_gap(
    broker: i32,
    directories: Option<&Result<Vec<DirectoryEvidence>, Absence>>,
) -> Option<Absence> {
    match directories {
        Some(Ok(directories)) => {
            directories.iter().any(|directory| directory.has_failed).then(|| unknown_directories(broker))
        }
        Some(Err(absence)) => Some(absence.clone()),
        None => Some(unknown_directories(broker)),
    }
}

/// The gap in the directories of a broker that was not asked for them.
pub fn unknown_directories(broker: i32) -> Absence {
    Absence::silent(format!("the log directories of broker {broker} are unknown"))
}

/// The most telling of several gaps: a missing right explains the others, and a request that the cluster does
/// not serve explains none of them.
pub fn gap(gaps: impl IntoIterator<Item = Absence>) -> Option<Absence> {
    let rank = |absence: &Absence| match absence.cause {
        Cause::Denied => 0,
        Cause::Silent | Cause::Failed => 1,
        Cause::NotServed => 2,
    };
    gaps.into_iter().min_by_key(rank)
}

/// The number of hidden topics among these names, which are in log directories and not in the list of topics.
/// Only a request by name distinguishes a hidden topic from one that was deleted meanwhile. With a gap in the
/// directories the number is unknown, unless the login may describe topics of any name.
pub async fn hidden_topics<A: Future<Output = Result<MetadataResponse, ClientError>>>(
    names: Vec<String>,
    gap: Option<Absence>,
    ask: impl FnOnce(MetadataRequest) -> A,
) -> Result<usize, Absence> {
    if let Some(absence) = gap.as_ref().filter(|absence| absence.cause == Cause::Denied) {
        return Err(absence.clone());
    }
    let any_names = ANY_NAMES.into_iter().filter(|_| gap.is_some());
    let wanted: Vec<String> = names.into_iter().chain(any_names.map(str::to_owned)).collect();
    if wanted.is_empty() {
        return Ok(0);
    }
    let topics = wanted
        .into_iter()
        .map(|name| MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() });
    let request = MetadataRequest {
        topics: Some(topics.collect()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let response = ask(request).await.map_err(|error| Absence::of(&error))?;
    let denied = ErrorCode::TopicAuthorizationFailed.code();
    let denied = response.topics.iter().filter(|topic| topic.error_code == denied).count();
    match gap {
        None => Ok(denied),
        Some(_) if denied == 0 => Ok(0),
        // The cluster has no directories to show, but the login lacks a right.
        Some(gap) if gap.cause == Cause::NotServed => Err(Absence { cause: Cause::Denied, ..gap }),
        Some(gap) => Err(gap),
    }
}

impl Admin {
    /// The number of topics that exist and are not in this list of all topics, because the login may not
    /// describe them.
    pub async fn hidden_topics(&self, listed: &Metadata) -> Result<usize, Absence> {
        let (directories, fenced) = tokio::join!(self.describe_log_dirs(None, None), self.fenced_brokers());
        self.hidden_among(listed, directories.as_ref(), fenced).await
    }

    /// The reason why figures over all topics of a group are not known; see [`partial_view`].
    pub async fn partial_view(&self) -> Option<String> {
        // Figures do not wait for a dead broker: its directories are a gap.
        let admin = self.clone().with_timeout(VIEW_RETRY);
        let hidden = match admin.cluster().refresh_all().await {
            Ok(listed) => admin.hidden_topics(&listed).await,
            Err(error) => Err(Absence::of(&error)),
        };
        partial_view(&hidden)
    }

    /// The brokers that are registered and fenced; none if the cluster does not report them.
    pub async fn fenced_brokers(&self) -> Result<BTreeSet<i32>, Absence> {
        match self.describe_cluster().await {
            Ok(cluster) => Ok(cluster.fenced),
            Err(error) => match Absence::of(&error) {
                absence if absence.cause == Cause::NotServed => Ok(BTreeSet::new()),
                absence => Err(absence),
            },
        }
    }

    /// The number of hidden topics, by the directories of the running brokers and by the fenced brokers.
    pub async fn hidden_among(
        &self,
        listed: &Metadata,
        directories: Result<&Outcomes<i32, Outcomes<String, LogDir>>, &ClientError>,
        fenced: Result<BTreeSet<i32>, Absence>,
    ) -> Result<usize, Absence> {
        let partitions = listed.topics.values().flat_map(|topic| &topic.partitions);
        let holders = partitions.flat_map(|partition| partition.replicas.iter().copied());
        let others: BTreeSet<i32> = fenced.iter().flatten().copied().chain(holders).collect();
        let mut stored = StoredTopics::of(directories, others);
        stored.gap = gap(stored.gap.into_iter().chain(fenced.err()));
        let is_listed = |name: &str| listed.topics.contains_key(name);
        stored.hidden(is_listed, |request| self.cluster().first_metadata(request)).await
    }
}

/// The reason why figures over all topics are not known, without a full stop; none if the login may describe
/// all topics, or if the cluster does not report whether it may.
pub fn partial_view(hidden: &Result<usize, Absence>) -> Option<String> {
    match hidden {
        Ok(0) => None,
        Ok(1) => Some("1 topic is hidden from this login".to_owned()),
        Ok(count) => Some(format!("{} are hidden from this login", counted(*count, "topic"))),
        Err(absence) => match absence.cause {
            Cause::NotServed => None,
            Cause::Denied => Some("topics may be hidden from this login".to_owned()),
            Cause::Silent | Cause::Failed => {
                Some(format!("topics may be hidden from this login: {}", absence.why))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use thalweg_dial::RefusedRequest;
    use thalweg_wire::request::metadata_response::MetadataResponseTopic;

    use super::*;
    use crate::admin::LogDirReplica;
    use crate::offsets::TopicPartition;

    fn refused(error_code: ErrorCode) -> ClientError {
        RefusedRequest { what: "Log directories".to_owned(), error_code, message: None }.into()
    }

    fn directory(topic: &str) -> Result<LogDir, ClientError> {
        let replica = LogDirReplica { bytes: 1, lag: 0, is_future: false };
        Ok(LogDir {
            total_bytes: None,
            usable_bytes: None,
            is_cordoned: false,
            replicas: BTreeMap::from([(TopicPartition::new(topic, 0), replica)]),
        })
    }

    #[test]
    fn topics_may_be_missing_unless_the_directories_of_all_brokers_are_known() {
        let of = |found: Outcomes<i32, Outcomes<String, LogDir>>, fenced: &[i32]| {
            StoredTopics::of(Ok(&found), fenced.iter().copied())
        };
        let known = |topic: &str| Ok(BTreeMap::from([("/data".to_owned(), directory(topic))]));
        let whole = of([(1, known("orders")), (2, known("payments"))].into(), &[]);
        assert_eq!(whole.names, BTreeSet::from(["orders".to_owned(), "payments".to_owned()]));
        assert_eq!(whole.gap, None);
        let fenced = of([(1, known("orders"))].into(), &[2]);
        assert_eq!((fenced.names.len(), fenced.gap), (1, Some(unknown_directories(2))));
        let failed = Err(refused(ErrorCode::KafkaStorageError));
        let failed = of([(1, Ok(BTreeMap::from([("/data".to_owned(), failed)])))].into(), &[]);
        assert_eq!(failed.gap.map(|gap| gap.cause), Some(Cause::Failed), "a failed directory names no topic");
        let denied = of([(1, Err(refused(ErrorCode::ClusterAuthorizationFailed)))].into(), &[2]);
        assert_eq!(denied.gap.map(|gap| gap.cause), Some(Cause::Denied), "before the silence");
    }

    /// The number of hidden topics among `orders`, for a login that may not describe some names.
    async fn hidden(gap: Option<Absence>, denied: &'static [&'static str]) -> Result<usize, Absence> {
        let ask = |request: MetadataRequest| async move {
            let topics = request.topics.unwrap_or_default().into_iter().map(|topic| {
                let is_denied = topic.name.as_deref().is_some_and(|name| denied.contains(&name));
                let error = match is_denied {
                    true => ErrorCode::TopicAuthorizationFailed,
                    false => ErrorCode::UnknownTopicOrPartition,
                };
                MetadataResponseTopic { error_code: error.code(), name: topic.name, ..Default::default() }
            });
            Ok(MetadataResponse { topics: topics.collect(), ..MetadataResponse::default() })
        };
        hidden_topics(vec!["orders".to_owned()], gap, ask).await
    }

    #[tokio::test]
    async fn hidden_topics_are_not_counted_by_a_part_of_the_directories() {
        assert_eq!((hidden(None, &[]).await, hidden(None, &["orders"]).await), (Ok(0), Ok(1)));
        let silent = Some(unknown_directories(2));
        assert_eq!(hidden(silent.clone(), &[]).await, Ok(0), "the login may describe topics of any name");
        for denied in [&["orders"][..], &ANY_NAMES, &ANY_NAMES[..1]] {
            assert_eq!(hidden(silent.clone(), denied).await, Err(unknown_directories(2)), "{denied:?}");
        }
        let absent = |cause| Some(Absence { cause, why: String::new() });
        let cause = async |cause, denied| hidden(absent(cause), denied).await.map_err(|gap| gap.cause);
        assert_eq!(cause(Cause::NotServed, &[]).await, Ok(0));
        assert_eq!(cause(Cause::NotServed, &ANY_NAMES).await, Err(Cause::Denied));
        assert_eq!(cause(Cause::Denied, &[]).await, Err(Cause::Denied), "an ACL may deny a single topic");
    }

    #[test]
    fn a_view_is_partial_unless_no_topic_is_hidden() {
        let absent = |cause| Err(Absence { cause, why: "no answer".to_owned() });
        assert_eq!((partial_view(&Ok(0)), partial_view(&absent(Cause::NotServed))), (None, None));
        assert_eq!(partial_view(&Ok(1)).as_deref(), Some("1 topic is hidden from this login"));
        assert_eq!(partial_view(&Ok(2)).as_deref(), Some("2 topics are hidden from this login"));
        assert_eq!(
            partial_view(&absent(Cause::Denied)).as_deref(),
            Some("topics may be hidden from this login")
        );
        let silent = partial_view(&absent(Cause::Silent));
        assert_eq!(silent.as_deref(), Some("topics may be hidden from this login: no answer"));
    }
}
