//! `group list`: the columns of the console's list of groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::{Admin, GroupAssignment, GroupKind, GroupListing, ListedGroups, is_without_members};

use super::{check_unseen, listed};
use crate::connect::Connect;
use crate::output::{Column, CommandOutput, Quiet};

/// Time for further attempts at coordinators that refuse, and time limit for the answer of each.
const COORDINATOR_RETRY: Duration = Duration::from_secs(2);
const COORDINATOR_WAIT: Duration = Duration::from_secs(5);

/// List the groups of all brokers, with members and lag.
///
/// The lag is in records, over all partitions with a committed offset or a reader. A figure that is not known
/// is a dash, as the lag of a group that has not committed in one of them, and of a share group. Groups that
/// the login may not describe are left out, with a warning; if groups of a broker are missing, the command
/// fails in the end.
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
            self.output.rows(&COLUMNS, &rows(&admin, &groups).await)?;
        }
        Ok(check_unseen(&unseen)?)
    }
}

async fn rows(admin: &Admin, groups: &[GroupListing]) -> Vec<Value> {
    let assignments = admin.group_assignments(&with_members(groups)).await;
    let lags = admin.group_lags(with_lag(groups, &assignments)).await;
    let row = |group: &GroupListing| {
        let members = if is_without_members(&group.state) {
            Some(0)
        } else {
            assignments.get(&group.group).map(|one| one.members)
        };
        json!({
            "group": group.group,
            "state": group.state,
            "type": group.kind,
            "protocol_type": group.protocol_type,
            "members": members,
            "lag": lags.get(&group.group).and_then(|lag| lag.records()),
        })
    };
    groups.iter().map(row).collect()
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
    fn the_table_fits_80_columns() {
        let row = json!({
            "group": "a-group-with-a-name-of-a-usual-length", "type": "consumer", "state": "CompletingRebalance",
            "protocol_type": "consumer", "members": 120, "lag": 1_234_567_890,
        });
        let table = Style::NARROW.rows(&COLUMNS, &[row]).expect("rows");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
}
