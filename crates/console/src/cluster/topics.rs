//! The list of topics: filtered, sorted, a page at a time.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::View;
use super::catalog::TopicLine;

/// Topics on a page.
pub const PER_PAGE: usize = 50;
/// Topics on a page of the API, at most.
const PER_PAGE_MAX: usize = 1000;

/// Which topics are asked for.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct TopicQuery {
    /// A part of the name, in any case.
    #[param(required = false)]
    pub filter: String,
    /// Only those in a state: `under-replicated` or `leaderless`.
    #[param(required = false)]
    pub state: String,
    /// `on` shows the cluster's own topics, too.
    #[param(required = false)]
    pub internal: String,
    /// The order: `name`, `partitions`, `size` or `rate`, the last three from the top.
    #[param(required = false)]
    pub sort: String,
    /// The page, from 1.
    #[param(required = false)]
    pub page: usize,
    /// Topics on a page: 50, or up to 1000.
    #[param(required = false)]
    pub per_page: usize,
}

/// A page of the list.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicList {
    /// The topics of this page.
    pub topics: Vec<TopicRow>,
    /// How many match, on all pages.
    pub matched: usize,
    /// How many there are.
    pub total: usize,
    /// This page, from 1.
    pub page: usize,
    /// How many pages there are.
    pub pages: usize,
}

/// A topic in the list.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicRow {
    /// Its name.
    pub name: String,
    /// Whether it is one of the cluster's own.
    pub is_internal: bool,
    /// The number of its partitions.
    pub partitions: usize,
    /// The number of replicas of a partition.
    pub replicas: u32,
    /// Partitions with fewer replicas in sync than assigned.
    pub under_replicated: u32,
    /// Partitions without a leader.
    pub leaderless: u32,
    /// Bytes over all replicas, if the log directories may be read.
    pub bytes: Option<u64>,
    /// Records per second lately, if two measurements were made.
    pub records_per_second: Option<f64>,
}

/// Reads a page of the list.
pub async fn list(view: &Arc<View>, query: &TopicQuery) -> Result<TopicList, Problem> {
    Problem::unless_known("state", &query.state, &["under-replicated", "leaderless"])?;
    Problem::unless_known("internal", &query.internal, &["on", "off"])?;
    Problem::unless_known("sort", &query.sort, &["name", "partitions", "size", "rate"])?;
    let catalog = view.catalog().await?;
    let disks = view.disks().await?;
    let measured = view.rates();
    let filter = query.filter.trim().to_lowercase();
    let matches = |topic: &&TopicLine| {
        (!topic.is_internal || query.internal == "on")
            && match query.state.as_str() {
                "under-replicated" => topic.under_replicated > 0,
                "leaderless" => topic.leaderless > 0,
                _ => true,
            }
            && (filter.is_empty() || topic.name.to_lowercase().contains(&filter))
    };
    let mut found: Vec<&TopicLine> = catalog.topics.iter().filter(matches).collect();
    let rate = |topic: &TopicLine| measured.topics.get(&topic.name).copied().unwrap_or(0.0);
    let size = |topic: &TopicLine| disks.sizes.get(&*topic.name).copied();
    // The catalog is in the order of names, and the sort is stable.
    match query.sort.as_str() {
        "partitions" => found.sort_by_key(|topic| Reverse(topic.leaders.len())),
        "size" => found.sort_by_key(|topic| Reverse(size(topic))),
        "rate" => found.sort_by(|a, b| rate(b).total_cmp(&rate(a))),
        _ => {}
    }
    let (page, pages, range) = page_of(found.len(), query.page, query.per_page);
    let has_rates = !measured.history.is_empty();
    let rows = found[range].iter().map(|topic| TopicRow {
        name: topic.name.to_string(),
        is_internal: topic.is_internal,
        partitions: topic.leaders.len(),
        replicas: topic.replicas,
        under_replicated: topic.under_replicated,
        leaderless: topic.leaderless,
        bytes: size(topic),
        records_per_second: has_rates.then(|| rate(topic)),
    });
    Ok(TopicList { topics: rows.collect(), matched: found.len(), total: catalog.topics.len(), page, pages })
}

/// The page that is shown of so many items, how many pages there are, and the items on it.
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
