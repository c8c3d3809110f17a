//! The topic list: filtered, sorted and paged.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_client::verdict::Cause;
use utoipa::{IntoParams, ToSchema};

use super::View;
use super::catalog::{Catalog, TopicLine};
use super::disks::Disks;
use super::groups_by_topic::{ReadGroups, ReadTopic, TopicGroupRow};
use crate::problem::Problem;
use crate::sorting::{SortColumn, Sorting};

/// Default number of topics per page.
pub const PER_PAGE: usize = 50;
/// Maximum number of topics per page of the API.
const PER_PAGE_MAX: usize = 1000;

/// The columns of the list.
pub const COLUMNS: [SortColumn; 6] = [
    SortColumn::text("name", "Name"),
    SortColumn::number("partitions", "Partitions"),
    SortColumn::number("replicas", "Replicas"),
    SortColumn::state("state", "State"),
    SortColumn::number("size", "Data"),
    SortColumn::number("rate", "Records in"),
];

/// A filter, order and page of topics.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct TopicQuery {
    /// A substring of the name, case-insensitive.
    #[param(required = false)]
    pub filter: String,
    /// A topic state, `under-replicated` or `leaderless`; all if empty.
    #[param(required = false)]
    pub state: String,
    /// `on` includes internal topics.
    #[param(required = false)]
    pub internal: String,
    /// The column that sorts the list: `name`, `partitions`, `replicas`, `state`, `size` or `rate`.
    #[param(required = false)]
    pub sort: String,
    /// `ascending` or `descending`. Default: names ascending, figures and states descending.
    #[param(required = false)]
    pub order: String,
    /// Page number, from 1.
    #[param(required = false)]
    pub page: usize,
    /// Topics per page, up to 1000. Default: 50.
    #[param(required = false)]
    pub per_page: usize,
}

/// A page of topics.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicList {
    /// Topics of this page.
    pub topics: Vec<TopicRow>,
    /// Number of matching topics on all pages.
    pub matched: usize,
    /// Number of topics in the cluster; none if the login may not describe all of them.
    pub total: Option<usize>,
    /// Number of topics that the login may not describe; none if that is unknown.
    pub hidden: Option<usize>,
    /// Page number, from 1.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
    /// The time of the oldest reading of topics and log directories, in milliseconds since 1970. Readings are
    /// kept for some seconds.
    pub read_at_ms: i64,
    /// The time of the measurement behind `records_per_second`, in milliseconds since 1970; none before the
    /// second measurement.
    pub rates_at_ms: Option<i64>,
    /// The reasons why groups of topics may be missing; none if all were looked at.
    pub groups_missing: Vec<String>,
    /// The time of the reading behind `groups`, in milliseconds since 1970; none before the first reading.
    pub groups_at_ms: Option<i64>,
}

/// A topic in a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicRow {
    /// The topic name.
    pub name: String,
    /// True for an internal topic of the cluster.
    pub is_internal: bool,
    /// Number of partitions.
    pub partitions: usize,
    /// Number of replicas of a partition.
    pub replicas: u32,
    /// Partitions with fewer replicas in sync than assigned. Those of brokers that do not answer do not
    /// count.
    pub under_replicated: u32,
    /// Partitions without a leader that answers.
    pub leaderless: u32,
    /// Bytes of all replicas; none if a broker with one of them does not report its log directories, or the
    /// login may not read them.
    pub bytes: Option<u64>,
    /// Recent records per second, after the second measurement; none if the end of a partition is unknown.
    pub records_per_second: Option<f64>,
    /// Groups with a committed offset in the topic, or with a member that reads it: up to 10, those with the
    /// largest lag first.
    pub groups: Vec<TopicGroupRow>,
    /// Number of all these groups; none if groups may be missing.
    pub group_count: Option<usize>,
    /// Number of groups that were found.
    #[serde(skip)]
    pub groups_found: usize,
}

/// Lists one page of topics.
pub async fn list(view: &Arc<View>, query: &TopicQuery) -> Result<TopicList, Problem> {
    Problem::unless_known("state", &query.state, &["under-replicated", "leaderless"])?;
    Problem::unless_known("internal", &query.internal, &["on", "off"])?;
    let sorting = Sorting::of(&COLUMNS, &query.sort, &query.order)?;
    let catalog = view.catalog().await?;
    let disks = view.disks().await?;
    let measured = view.rates();
    let (read, groups_missing) = read_groups(view).await;
    let filter = query.filter.trim().to_lowercase();
    // A broker that does not answer may lead partitions until its session ends.
    let states = catalog.states(|id| disks.is_silent(id));
    let faults = |topic: &TopicLine| topic.faults(&states);
    let matches = |topic: &&TopicLine| {
        (!topic.is_internal || query.internal == "on")
            && match query.state.as_str() {
                "under-replicated" => faults(topic).1 > 0,
                "leaderless" => faults(topic).0 > 0,
                _ => true,
            }
            && (filter.is_empty() || topic.name.to_lowercase().contains(&filter))
    };
    let mut found: Vec<&TopicLine> = catalog.topics.iter().filter(matches).collect();
    let rate = |topic: &TopicLine| measured.of(&topic.name);
    let incomplete = disks.incomplete(&catalog);
    let size = |topic: &TopicLine| size(&catalog, &disks, &incomplete, topic);
    // The catalog is sorted by name, and the sort is stable.
    let direction = sorting.direction;
    match sorting.column {
        "partitions" => {
            found.sort_by(|a, b| direction.compare(Some(a.leaders.len()), Some(b.leaders.len()), Ord::cmp))
        }
        "replicas" => found.sort_by(|a, b| direction.compare(Some(a.replicas), Some(b.replicas), Ord::cmp)),
        "state" => found.sort_by(|a, b| direction.compare(Some(faults(a)), Some(faults(b)), Ord::cmp)),
        "size" => found.sort_by(|a, b| direction.compare(size(a), size(b), Ord::cmp)),
        "rate" => found.sort_by(|a, b| direction.compare(rate(a), rate(b), f64::total_cmp)),
        _ => found.sort_by(|a, b| direction.compare(Some(&a.name), Some(&b.name), |a, b| a.cmp(b))),
    }
    let (page, pages, range) = page_of(found.len(), query.page, query.per_page);
    let rows = found[range].iter().map(|topic| {
        let (ReadTopic { count, groups }, is_complete) = groups_of(read.as_deref(), &topic.name);
        TopicRow {
            name: topic.name.to_string(),
            is_internal: topic.is_internal,
            partitions: topic.leaders.len(),
            replicas: topic.replicas,
            under_replicated: faults(topic).1,
            leaderless: faults(topic).0,
            bytes: size(topic),
            records_per_second: rate(topic),
            groups,
            group_count: is_complete.then_some(count),
            groups_found: count,
        }
    });
    let hidden = view.hidden_topics(&catalog, &disks).await;
    let is_whole =
        hidden.as_ref().map_or_else(|absence| absence.cause == Cause::NotServed, |hidden| *hidden == 0);
    Ok(TopicList {
        topics: rows.collect(),
        matched: found.len(),
        total: is_whole.then_some(catalog.topics.len()),
        hidden: hidden.ok(),
        page,
        pages,
        read_at_ms: catalog.read_at_ms.min(disks.read_at_ms()),
        rates_at_ms: measured.history.back().map(|point| point.at_ms),
        groups_missing,
        groups_at_ms: read.map(|read| read.read_at_ms),
    })
}

/// The groups of a topic, and whether these are all: not if the topic is newer than the reading, nor if
/// groups may be missing.
fn groups_of(read: Option<&ReadGroups>, topic: &str) -> (ReadTopic, bool) {
    let found = read.and_then(|read| Some((read.of(topic)?, read.missing.is_empty())));
    found.unwrap_or_default()
}

/// The groups of all topics, if they are known, and the reasons why some may be missing.
async fn read_groups(view: &Arc<View>) -> (Option<Arc<ReadGroups>>, Vec<String>) {
    match view.groups_by_topic().latest(view).await {
        Some(Ok(read)) => (Some(Arc::clone(&read)), read.missing.clone()),
        Some(Err(why)) => (None, vec![format!("The groups of the topics are not known: {why}")]),
        None => (None, vec!["The groups of the topics are being read".to_owned()]),
    }
}

/// Bytes of all replicas of a topic; none if a broker with one of them is incomplete.
fn size(catalog: &Catalog, disks: &Disks, incomplete: &BTreeSet<i32>, topic: &TopicLine) -> Option<u64> {
    let is_partial = !incomplete.is_empty() && catalog.is_on_any(topic, incomplete);
    disks.sizes.get(&*topic.name).copied().filter(|_| !is_partial)
}

/// The shown page number, the number of pages, and the range of items on the page.
pub fn page_of(items: usize, page: usize, per_page: usize) -> (usize, usize, std::ops::Range<usize>) {
    let per_page = if per_page == 0 { PER_PAGE } else { per_page.min(PER_PAGE_MAX) };
    let pages = items.div_ceil(per_page).max(1);
    let page = page.clamp(1, pages);
    let from = (page - 1) * per_page;
    (page, pages, from..items.min(from + per_page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_there_is_the_nearest() {
        assert_eq!(page_of(0, 0, 0), (1, 1, 0..0));
        assert_eq!(page_of(120, 3, 0), (3, 3, 100..120));
        assert_eq!(page_of(120, 9, 0), (3, 3, 100..120));
        assert_eq!(page_of(5000, 2, 9999), (2, 5, 1000..2000));
    }
}
