//! The groups of all types, with the lag of the listed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_client::{ClientError, Cluster, CommittedOffset, OffsetSpec, RefusedRequest, TopicPartition};
use thalweg_wire::request::ListGroupsRequest;
use utoipa::{IntoParams, ToSchema};

use super::lags::LagPoint;
use super::topics::page_of;
use super::{View, ask_each, now_ms};
use crate::problem::Problem;

/// Groups per request for offsets. The limit bounds the memory of a page.
const LAGS_AT_ONCE: usize = 100;

/// All groups that the login may see.
pub struct GroupCatalog {
    pub groups: Vec<GroupLine>,
    /// Brokers that did not answer, whose groups are missing.
    pub missing: Vec<String>,
}

/// A group as listed by its coordinator.
pub struct GroupLine {
    pub group: String,
    pub kind: String,
    pub state: String,
    pub protocol: String,
}

/// A filter and page of groups.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct GroupQuery {
    /// A substring of the group id, case-insensitive.
    #[param(required = false)]
    pub filter: String,
    /// A group type: `classic`, `consumer`, `share` or `streams`; all if empty.
    #[param(required = false)]
    pub kind: String,
    /// A group state, such as `Stable` or `Empty`; all if empty.
    #[param(required = false)]
    pub state: String,
    /// Page number, from 1.
    #[param(required = false)]
    pub page: usize,
    /// Groups per page, up to 1000. Default: 50.
    #[param(required = false)]
    pub per_page: usize,
}

/// A page of groups.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupList {
    /// Groups of this page.
    pub groups: Vec<GroupRow>,
    /// Number of matching groups on all pages.
    pub matched: usize,
    /// Number of groups in the cluster.
    pub total: usize,
    /// Page number, from 1.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
    /// Brokers that did not answer, whose groups are missing.
    pub missing: Vec<String>,
}

/// A group in a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupRow {
    /// The group id.
    pub group: String,
    /// The group type: `classic`, `consumer`, `share` or `streams`.
    pub kind: String,
    /// The group state, such as `Stable` or `Empty`.
    pub state: String,
    /// The protocol type of the members, such as `consumer` or `connect`.
    pub protocol: String,
    /// Lag in records over all partitions with a committed offset; none for a share group, or if unknown.
    pub lag: Option<i64>,
}

impl GroupCatalog {
    /// Asks all brokers.
    pub async fn read(cluster: &Cluster) -> Result<GroupCatalog, ClientError> {
        let metadata = cluster.refresh(&[], false).await?;
        let requests = metadata.brokers.keys().map(|id| (*id, ListGroupsRequest::default()));
        let (mut groups, mut missing) = (Vec::new(), Vec::new());
        for (id, answer) in ask_each(cluster, requests).await {
            let answer = answer.and_then(|answer| {
                RefusedRequest::check(answer.error_code, None, || format!("Groups of broker {id}"))?;
                Ok(answer.groups)
            });
            match answer {
                Ok(found) => groups.extend(found.into_iter().map(|group| GroupLine {
                    kind: kind(&group.group_type),
                    group: group.group_id,
                    state: group.group_state,
                    protocol: group.protocol_type,
                })),
                Err(error) => missing.push(error.to_string()),
            }
        }
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(GroupCatalog { groups, missing })
    }
}

/// The group type in lower case. Brokers before group types list classic groups only.
pub fn kind(name: &str) -> String {
    if name.is_empty() { "classic".to_owned() } else { name.to_lowercase() }
}

/// Lists one page of groups.
pub async fn list(view: &Arc<View>, query: &GroupQuery) -> Result<GroupList, Problem> {
    Problem::unless_known("kind", &query.kind, &["classic", "consumer", "share", "streams"])?;
    let catalog = view.groups().await?;
    let filter = query.filter.trim().to_lowercase();
    let matches = |group: &&GroupLine| {
        (query.kind.is_empty() || group.kind == query.kind)
            && (query.state.is_empty() || group.state == query.state)
            && (filter.is_empty() || group.group.to_lowercase().contains(&filter))
    };
    let found: Vec<&GroupLine> = catalog.groups.iter().filter(matches).collect();
    let (page, pages, range) = page_of(found.len(), query.page, query.per_page);
    let shown = &found[range];
    let with_offsets = shown.iter().filter(|group| group.kind != "share").map(|group| group.group.clone());
    let lags = lags(view, &with_offsets.collect::<Vec<_>>()).await;
    let at_ms = now_ms();
    for (group, lag) in &lags {
        view.lags().note(group, LagPoint { at_ms, lag: *lag });
    }
    let rows = shown.iter().map(|group| GroupRow {
        group: group.group.clone(),
        kind: group.kind.clone(),
        state: group.state.clone(),
        protocol: group.protocol.clone(),
        lag: lags.get(&group.group).copied(),
    });
    Ok(GroupList {
        groups: rows.collect(),
        matched: found.len(),
        total: catalog.groups.len(),
        page,
        pages,
        missing: catalog.missing.clone(),
    })
}

/// Committed offsets by partition.
pub type Offsets = BTreeMap<TopicPartition, CommittedOffset>;

/// The lag of each group whose offsets the login may read.
async fn lags(view: &View, groups: &[String]) -> BTreeMap<String, i64> {
    let mut lags = BTreeMap::new();
    for groups in groups.chunks(LAGS_AT_ONCE) {
        let read = view.admin().list_offsets_of_groups(groups).await;
        let offsets: Vec<(String, Offsets)> =
            read.into_iter().filter_map(|(group, found)| Some((group, found.ok()?))).collect();
        let partitions: BTreeSet<&TopicPartition> =
            offsets.iter().flat_map(|(_, found)| found.keys()).collect();
        let ends = ends(view, partitions.into_iter().cloned().collect()).await;
        let lag = |found: &Offsets| {
            found.iter().filter_map(|(at, committed)| Some((ends.get(at)? - committed.offset.0).max(0))).sum()
        };
        lags.extend(offsets.iter().map(|(group, found)| (group.clone(), lag(found))));
    }
    lags
}

/// The end offsets of existing partitions.
pub async fn ends(view: &View, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64> {
    listed(view, partitions, OffsetSpec::Latest).await
}

/// Offsets of existing partitions, without partitions that have no such offset.
pub async fn listed(
    view: &View,
    partitions: Vec<TopicPartition>,
    spec: OffsetSpec,
) -> BTreeMap<TopicPartition, i64> {
    if partitions.is_empty() {
        return BTreeMap::new();
    }
    let topics: BTreeSet<&str> = partitions.iter().map(|at| &*at.topic).collect();
    let topics: Vec<String> = topics.into_iter().map(str::to_owned).collect();
    if view.cluster().refresh(&topics, false).await.is_err() {
        return BTreeMap::new();
    }
    let wanted: Vec<_> = partitions.into_iter().map(|at| (at, spec)).collect();
    let found = view.cluster().list_offsets(&wanted, false).await;
    let known = found.into_iter().filter_map(|(at, offset)| Some((at, offset.ok()?.offset.0)));
    known.filter(|(_, offset)| *offset >= 0).collect()
}
