//! `group list`: the columns of the console's list of groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::verdict::{Absence, Cause};
use thalweg_client::{
    Admin, ClientError, GroupAssignment, GroupKind, GroupLag, GroupListing, ListedGroups, UnseenGroups,
    is_without_members,
};
use thalweg_wire::ErrorCode;

use super::{check_unseen, listed};
use crate::connect::Connect;
use crate::failure::CommandFailure;
use crate::output::{Column, CommandOutput, Quiet};

/// Time for further attempts at coordinators that refuse, and time limit for the answer of each.
const COORDINATOR_RETRY: Duration = Duration::from_secs(2);
const COORDINATOR_WAIT: Duration = Duration::from_secs(5);
/// Groups named in a warning or an error.
const NAMED_MAX: usize = 10;

/// List the groups of all brokers, with members and lag.
///
/// The lag is in records, over all partitions with a committed offset or a reader. A figure that is not known
/// is a dash, as the lag of a group that has not committed in one of them, of a share group, and of all
/// groups if the login may not describe all topics. An offset beyond the end adds nothing, with a warning.
/// Groups that the login may not describe are left out, with a warning; if groups of a broker are missing, or
/// a listed group cannot be read because its coordinator does not answer, the command fails in the end. In
/// documents, the field `problem` of a group has the reason for members or lag that could not be read, and
/// that of a row without a group has the reason why groups are missing; `beyond_end` is the number of
/// partitions whose offset is beyond the end.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg group list --type consumer --in-state stable
  thalweg group list -q --in-state empty")]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// List only groups of this type: classic, consumer, share or streams; can be repeated.
    #[arg(long = "type", value_name = "TYPE", value_parser = ["classic", "consumer", "share", "streams"])]
    types: Vec<String>,
    /// List only groups in this state, such as Stable or Empty; can be repeated.
    #[arg(long = "in-state", value_name = "STATE", value_parser = STATES, ignore_case = true)]
    states: Vec<String>,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    output: CommandOutput,
}

/// Kafka's states of groups, of all types.
const STATES: [&str; 8] = [
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
];

const COLUMNS: [Column<'_>; 6] = [
    ("GROUP", "group"),
    ("TYPE", "type"),
    ("STATE", "state"),
    ("PROTOCOL", "protocol_type"),
    ("MEMBERS", "members"),
    ("LAG", "lag"),
];

impl List {
    /// Prints a row per group, or the names.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let ListedGroups { mut groups, unseen } = listed(&cluster).await?;
        let is_one = |wanted: &[String], name: &str| {
            wanted.is_empty() || wanted.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        groups.retain(|group| is_one(&self.types, &group.kind) && is_one(&self.states, &group.state));
        if self.quiet.quiet {
            let names: Vec<&str> = groups.iter().map(|group| &*group.group).collect();
            self.output.names(&names)?;
        } else {
            let admin =
                Admin::new(cluster).with_timeout(COORDINATOR_RETRY).with_answer_limit(COORDINATOR_WAIT);
            let (mut figures, partial) =
                tokio::join!(GroupFigures::read(&admin, &groups), admin.partial_view());
            if let Some(partial) = partial {
                figures.hide_lags(partial);
            }
            let rows: Vec<Value> = groups.iter().map(|group| figures.row(group)).collect();
            self.output.rows_with_gaps(&COLUMNS, rows, &unseen.missing_coordinators())?;
            return Ok(figures.check(&groups, &unseen)?);
        }
        Ok(check_unseen(&unseen)?)
    }
}

/// What is read of each group beyond the list.
#[derive(Default)]
struct GroupFigures {
    assignments: BTreeMap<String, GroupAssignment>,
    lags: BTreeMap<String, GroupLag>,
    /// Groups that could not be described.
    undescribed: BTreeMap<String, ClientError>,
    /// The reason why no lag is known, if so.
    partial: Option<String>,
}

impl GroupFigures {
    async fn read(admin: &Admin, groups: &[GroupListing]) -> GroupFigures {
        let mut figures = GroupFigures::default();
        for (kind, groups) in with_members(groups) {
            for (group, described) in admin.describe_groups_as(kind, &groups).await {
                match described {
                    Ok(described) => drop(figures.assignments.insert(group, described.into())),
                    // The group was deleted meanwhile.
                    Err(error) if error.error_code() == Some(ErrorCode::GroupIdNotFound) => {}
                    Err(error) => drop(figures.undescribed.insert(group, error)),
                }
            }
        }
        figures.lags = admin.group_lags(with_lag(groups, &figures.assignments)).await;
        figures
    }

    /// Drops the lags, which lack those of topics that the login may not describe: brokers leave the offsets
    /// out silently.
    fn hide_lags(&mut self, partial: String) {
        self.lags.clear();
        self.partial = Some(partial);
    }

    fn row(&self, group: &GroupListing) -> Value {
        let members = self.assignments.get(&group.group).map(|one| one.members);
        json!({
            "group": group.group,
            "state": group.state,
            "type": group.kind,
            "protocol_type": group.protocol_type,
            "members": if is_without_members(&group.state) { Some(0) } else { members },
            "lag": self.lags.get(&group.group).and_then(|lag| lag.records()),
            "beyond_end": self.lags.get(&group.group).map_or(0, |lag| lag.beyond_end()),
            "problem": self.problem(group),
        })
    }

    /// The reason why figures of a group could not be read; none if they were, or if the group has none.
    fn problem(&self, group: &GroupListing) -> Option<String> {
        if let Some(error) = self.undescribed.get(&group.group) {
            return Some(error.to_string());
        }
        // A group that was deleted meanwhile has none.
        let is_known = is_without_members(&group.state) || self.assignments.contains_key(&group.group);
        let is_lag_unread =
            is_known && kind(group) != GroupKind::Share && !self.lags.contains_key(&group.group);
        is_lag_unread.then(|| match &self.partial {
            Some(partial) => format!("Its lag is not known: {partial}"),
            None => "Its offsets, or the end of a partition, could not be read".to_owned(),
        })
    }

    /// Warns of groups that the login may not see, and fails if coordinators did not answer.
    fn check(&self, groups: &[GroupListing], unseen: &UnseenGroups) -> Result<(), CommandFailure> {
        let (denied, silent): (Vec<_>, Vec<_>) =
            self.undescribed.iter().partition(|(_, error)| Absence::of(error).cause == Cause::Denied);
        let lagless = groups.iter().filter(|group| !self.undescribed.contains_key(&group.group));
        let lagless = lagless.filter(|group| self.problem(group).is_some());
        let lagless: Vec<&str> = lagless.map(|group| group.group.as_str()).collect();
        if let Some(partial) = &self.partial {
            tracing::warn!("The lag of the groups is not known: {partial}");
        } else if !lagless.is_empty() {
            tracing::warn!(
                "The offsets of these groups, or the end of a partition, could not be read: {}",
                named(&lagless)
            );
        }
        let beyond = self.lags.iter().filter(|(_, lag)| lag.beyond_end() > 0);
        let beyond: Vec<&str> = beyond.map(|(group, _)| group.as_str()).collect();
        if !beyond.is_empty() {
            tracing::warn!("Offsets of these groups are beyond the end, and count as 0: {}", named(&beyond));
        }
        let names = |of: &[(&String, &ClientError)]| {
            named(&of.iter().map(|(group, _)| group.as_str()).collect::<Vec<_>>())
        };
        if !denied.is_empty() {
            tracing::warn!("The login may not describe these groups: {}", names(&denied));
        }
        let Some((_, error)) = silent.first() else { return check_unseen(unseen) };
        let mut reasons = unseen.reasons();
        reasons.push(format!("These groups could not be read: {} ({error})", names(&silent)));
        Err(CommandFailure(reasons.join("; ")))
    }
}

/// The first names of a list.
fn named(groups: &[&str]) -> String {
    let (first, more) = groups.split_at(groups.len().min(NAMED_MAX));
    let first = first.join(", ");
    if more.is_empty() { first } else { format!("{first} and {} more", more.len()) }
}

/// The type of a group. Brokers before group types list classic groups only.
fn kind(group: &GroupListing) -> GroupKind {
    GroupKind::from_name(&group.kind).unwrap_or(GroupKind::Classic)
}

/// The groups with committed offsets, with what their members read. Without groups whose members are unknown.
fn with_lag<'a>(
    groups: &'a [GroupListing],
    assignments: &'a BTreeMap<String, GroupAssignment>,
) -> impl Iterator<Item = (&'a str, &'a GroupAssignment)> {
    static NOTHING: GroupAssignment = GroupAssignment { members: 0, partitions: BTreeSet::new() };
    groups.iter().filter(|group| kind(group) != GroupKind::Share).filter_map(|group| {
        let assignment =
            if is_without_members(&group.state) { &NOTHING } else { assignments.get(&group.group)? };
        Some((group.group.as_str(), assignment))
    })
}

/// The groups that may have members, by type.
fn with_members(groups: &[GroupListing]) -> BTreeMap<GroupKind, Vec<String>> {
    let mut by_kind: BTreeMap<GroupKind, Vec<String>> = BTreeMap::new();
    for group in groups.iter().filter(|group| !is_without_members(&group.state)) {
        by_kind.entry(kind(group)).or_default().push(group.group.clone());
    }
    by_kind
}

#[cfg(test)]
mod tests {
    use thalweg_client::RefusedRequest;

    use super::*;
    use crate::output::Style;

    fn group(id: &str, kind: &str, state: &str) -> GroupListing {
        let [group, kind, state] = [id, kind, state].map(str::to_owned);
        GroupListing { group, kind, state, protocol_type: String::new() }
    }

    #[test]
    fn only_figures_that_a_group_may_have_are_requested() {
        let groups = [
            group("a", "consumer", "Stable"),
            group("b", "classic", "Empty"),
            group("c", "share", "Stable"),
            group("d", "", ""),
        ];
        let assignments = BTreeMap::from([("a".to_owned(), GroupAssignment::default())]);
        let with_lag: Vec<&str> = with_lag(&groups, &assignments).map(|(group, _)| group).collect();
        assert_eq!(with_lag, ["a", "b"], "what d reads is unknown");
        let expected = [(GroupKind::Classic, "d"), (GroupKind::Consumer, "a"), (GroupKind::Share, "c")];
        assert_eq!(with_members(&groups), expected.map(|(kind, id)| (kind, vec![id.to_owned()])).into());
    }

    #[test]
    fn a_group_that_could_not_be_read_is_named() {
        let groups = [
            group("billing", "classic", "Stable"),
            group("shipping", "classic", "Stable"),
            group("pool", "share", "Stable"),
        ];
        let assignment =
            |group: &str| (group.to_owned(), GroupAssignment { members: 2, ..Default::default() });
        let refused = |error_code| {
            let what = "Description of group shipping".to_owned();
            ClientError::from(RefusedRequest { what, error_code, message: None })
        };
        let of = |error_code| GroupFigures {
            assignments: ["billing", "pool"].map(assignment).into(),
            lags: [("billing".to_owned(), GroupLag::Uncommitted)].into(),
            undescribed: [("shipping".to_owned(), refused(error_code))].into(),
            partial: None,
        };
        let dead = of(ErrorCode::CoordinatorNotAvailable);
        let rows: Vec<Value> = groups.iter().map(|group| dead.row(group)).collect();
        assert_eq!((&rows[0]["members"], &rows[0]["lag"]), (&json!(2), &json!(null)));
        assert_eq!((&rows[0]["problem"], &rows[2]["problem"]), (&json!(null), &json!(null)));
        assert!(rows[1]["problem"].as_str().is_some_and(|why| why.contains("COORDINATOR_NOT_AVAILABLE")));
        let failure = dead.check(&groups, &UnseenGroups::default()).expect_err("the coordinator is dead").0;
        assert!(failure.starts_with("These groups could not be read: shipping (Description"), "{failure}");
        let denied = of(ErrorCode::GroupAuthorizationFailed);
        assert!(denied.check(&groups, &UnseenGroups::default()).is_ok(), "a warning");
        let lagless = GroupFigures { lags: BTreeMap::new(), ..denied };
        let why = lagless.problem(&groups[0]).expect("its lag is unknown");
        assert_eq!(why, "Its offsets, or the end of a partition, could not be read");
        let mut partial = of(ErrorCode::GroupAuthorizationFailed);
        partial.hide_lags("1 topic is hidden from this login".to_owned());
        let why = "Its lag is not known: 1 topic is hidden from this login";
        assert_eq!(partial.row(&groups[0])["problem"], why);
        assert_eq!(partial.row(&groups[2])["problem"], json!(null), "a share group has none");
        let many: Vec<&str> = vec!["g"; 12];
        assert!(named(&many).ends_with("g, g and 2 more"), "{}", named(&many));
    }

    #[test]
    fn the_table_fits_80_columns() {
        let row = json!({
            "group": "a-group-with-a-name-of-a-usual-length", "type": "consumer", "state": "CompletingRebalance",
            "protocol_type": "consumer", "members": 120, "lag": 1_234_567_890,
        });
        let table = Style::NARROW.rows(&COLUMNS, &[row]).expect("rows");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
}
