//! The groups of all types, with members and lag of the listed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_client::{
    Admin, ClientError, GroupListing, ListedGroups, ListedOffset, OffsetSpec, TopicPartition,
};
use thalweg_record::Offset;
use utoipa::{IntoParams, ToSchema};

use super::topics::page_of;
use super::{View, now_ms};
use crate::problem::Problem;
use crate::sorting::{SortColumn, Sorting};

/// The columns of the list.
pub const COLUMNS: [SortColumn; 6] = [
    SortColumn::text("group", "Group"),
    SortColumn::text("kind", "Type"),
    SortColumn::text("state", "State"),
    SortColumn::text("protocol", "Protocol"),
    SortColumn::number("members", "Members"),
    SortColumn::number("lag", "Lag"),
];
/// Columns whose values are read group by group.
pub const READ_COLUMNS: [&str; 2] = ["members", "lag"];
/// Matching groups that can be sorted by such a column.
pub const READ_MAX: usize = 256;

/// All groups that the login may see.
pub struct GroupCatalog {
    pub groups: Vec<GroupLine>,
    /// The time of the reading, in milliseconds since 1970.
    pub read_at_ms: i64,
    /// The reasons why groups may be missing; none if all are there.
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
    /// The column that sorts the list: `group`, `kind`, `state`, `protocol`, `members` or `lag`. At most 256
    /// matching groups are sorted by `members` or `lag`.
    #[param(required = false)]
    pub sort: String,
    /// `ascending` or `descending`. Default: texts ascending, figures descending.
    #[param(required = false)]
    pub order: String,
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
    /// Number of groups in the cluster; none if groups may be missing.
    pub total: Option<usize>,
    /// Page number, from 1.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
    /// The reasons why groups may be missing, such as a broker that does not answer, or a login without
    /// DESCRIBE; none if all are there.
    pub missing: Vec<String>,
    /// The reason why no lag is known: topics that exist, or may exist, and that the login may not describe.
    /// Brokers leave the offsets of groups in them out silently.
    pub lag_unknown: Option<String>,
    /// The time of the oldest reading in the list, in milliseconds since 1970. Readings are kept for some
    /// seconds.
    pub read_at_ms: i64,
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
    /// Number of members; none if the group cannot be described.
    pub members: Option<usize>,
    /// Lag in records over all partitions with a committed offset or a reader; none for a share group, or if
    /// unknown, as if the group has not committed in one of them. An offset beyond the end counts as 0.
    pub lag: Option<i64>,
    /// Number of partitions whose offset is beyond the end.
    pub beyond_end: usize,
}

/// Time for coordinators that load their groups, and time limit for the answer of each broker.
const LOADING_WAIT: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(3);

impl GroupCatalog {
    /// Asks all brokers.
    pub async fn read(admin: &Admin) -> Result<GroupCatalog, ClientError> {
        let read_at_ms = now_ms();
        let admin = admin.clone().with_answer_limit(WAIT);
        let ListedGroups { groups, unseen } = admin.listed_groups(LOADING_WAIT).await?;
        let groups = groups.into_iter().map(|group| GroupLine {
            kind: kind(&group.kind),
            group: group.group,
            state: group.state,
            protocol: group.protocol_type,
        });
        Ok(GroupCatalog { groups: groups.collect(), read_at_ms, missing: unseen.reasons() })
    }

    /// The groups as listed by their coordinators.
    pub fn listings(&self) -> Vec<GroupListing> {
        let listing = |group: &GroupLine| GroupListing {
            group: group.group.clone(),
            protocol_type: group.protocol.clone(),
            state: group.state.clone(),
            kind: group.kind.clone(),
        };
        self.groups.iter().map(listing).collect()
    }
}

/// The group type in lower case. Brokers before group types list classic groups only.
pub fn kind(name: &str) -> String {
    if name.is_empty() { "classic".to_owned() } else { name.to_lowercase() }
}

/// Lists one page of groups.
pub async fn list(view: &Arc<View>, query: &GroupQuery) -> Result<GroupList, Problem> {
    Problem::unless_known("kind", &query.kind, &["classic", "consumer", "share", "streams"])?;
    let sorting = Sorting::of(&COLUMNS, &query.sort, &query.order)?;
    let (catalog, lag_unknown) = tokio::join!(view.groups(), view.partial_view());
    let catalog = catalog?;
    let filter = query.filter.trim().to_lowercase();
    let matches = |group: &&GroupLine| {
        (query.kind.is_empty() || group.kind == query.kind)
            && (query.state.is_empty() || group.state == query.state)
            && (filter.is_empty() || group.group.to_lowercase().contains(&filter))
    };
    let mut found: Vec<&GroupLine> = catalog.groups.iter().filter(matches).collect();
    let (page, pages, range) = page_of(found.len(), query.page, query.per_page);
    let mut read_at_ms = catalog.read_at_ms;
    // The catalog is sorted by group, and the sort is stable.
    let rows = if READ_COLUMNS.contains(&sorting.column) {
        if found.len() > READ_MAX {
            return Err(Problem::wrong(format!(
                "{} groups match: at most {READ_MAX} are sorted by {}, which is read group by group. Filter them \
                 by name, type or state",
                found.len(),
                sorting.column
            )));
        }
        let (mut rows, at_ms) = rows(view, &found, lag_unknown.is_none()).await;
        read_at_ms = read_at_ms.min(at_ms);
        rows.sort_by(|a, b| match sorting.column {
            "members" => sorting.direction.compare(a.members, b.members, Ord::cmp),
            _ => sorting.direction.compare(a.lag, b.lag, Ord::cmp),
        });
        rows.drain(range).collect()
    } else {
        let key: fn(&GroupLine) -> &str = match sorting.column {
            "kind" => |group| &group.kind,
            "state" => |group| &group.state,
            "protocol" => |group| &group.protocol,
            _ => |group| &group.group,
        };
        found.sort_by(|a, b| sorting.direction.compare(Some(key(a)), Some(key(b)), Ord::cmp));
        let (rows, at_ms) = rows(view, &found[range], lag_unknown.is_none()).await;
        read_at_ms = read_at_ms.min(at_ms);
        rows
    };
    Ok(GroupList {
        groups: rows,
        matched: found.len(),
        total: catalog.missing.is_empty().then_some(catalog.groups.len()),
        page,
        pages,
        missing: catalog.missing.clone(),
        lag_unknown,
        read_at_ms,
    })
}

/// The rows of these groups, with members and lags, if the login may describe all topics, and the time of the
/// oldest reading of them.
async fn rows(view: &Arc<View>, shown: &[&GroupLine], has_lags: bool) -> (Vec<GroupRow>, i64) {
    let members = view.group_members().of(view, shown).await;
    let read_at_ms = view.group_members().read_at_ms(shown).unwrap_or_else(now_ms);
    let with_offsets = shown.iter().filter(|group| has_lags && group.kind != "share");
    let with_offsets =
        with_offsets.filter_map(|group| Some((group.group.as_str(), &**members.get(&group.group)?)));
    let lags = view.admin().group_lags(with_offsets).await;
    let at_ms = now_ms();
    for (group, lag) in &lags {
        view.lags().note_known(group, *lag, at_ms);
    }
    let rows = shown.iter().map(|group| GroupRow {
        group: group.group.clone(),
        kind: group.kind.clone(),
        state: group.state.clone(),
        protocol: group.protocol.clone(),
        members: members.get(&group.group).map(|one| one.members),
        lag: lags.get(&group.group).and_then(|lag| lag.records()),
        beyond_end: lags.get(&group.group).map_or(0, |lag| lag.beyond_end()),
    });
    (rows.collect(), read_at_ms)
}

/// The end offsets of existing partitions.
pub async fn ends(view: &View, partitions: Vec<TopicPartition>) -> BTreeMap<TopicPartition, i64> {
    listed(view, partitions, OffsetSpec::Latest).await
}

/// The first records at or after these offsets, for the lag in time. Without partitions whose broker does not
/// report it. The metadata must contain the partitions.
pub async fn first_records(
    view: &View,
    offsets: Vec<(TopicPartition, Offset)>,
) -> BTreeMap<TopicPartition, ListedOffset> {
    match offsets.is_empty() {
        true => BTreeMap::new(),
        false => view.cluster().first_records(offsets).await,
    }
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
    let found = view.list_offsets(&wanted).await;
    let known = found.into_iter().filter_map(|(at, offset)| Some((at, offset.ok()?.offset.0)));
    known.filter(|(_, offset)| *offset >= 0).collect()
}
