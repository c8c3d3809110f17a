//! `group list`: the columns of the console's list of groups.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::{Admin, GroupKind};
use thalweg_wire::request::list_groups_response::ListedGroup;

use super::{ListedGroups, listed};
use crate::connect::Connect;
use crate::output::{Column, CommandOutput, Quiet};

/// Time for further attempts at coordinators that refuse, and time limit for the answer of each.
const COORDINATOR_RETRY: Duration = Duration::from_secs(2);
const COORDINATOR_WAIT: Duration = Duration::from_secs(5);

/// List the groups of all brokers, with members and lag.
///
/// The lag is in records, over all partitions with a committed offset. A share group has none in this list,
/// and a figure that cannot be read is a dash.
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
        let ListedGroups { mut groups, missing } = listed(&cluster).await?;
        let is_one = |wanted: &[String], name: &str| {
            wanted.is_empty() || wanted.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        groups.retain(|group| {
            is_one(&self.types, &group.group_type) && is_one(&self.states, &group.group_state)
        });
        if self.quiet.quiet {
            let names: Vec<&str> = groups.iter().map(|group| &*group.group_id).collect();
            self.output.names(&names)?;
        } else {
            let admin =
                Admin::new(cluster).with_timeout(COORDINATOR_RETRY).with_answer_limit(COORDINATOR_WAIT);
            self.output.rows(&COLUMNS, &rows(&admin, &groups).await)?;
        }
        Ok(missing.map_or(Ok(()), Err)?)
    }
}

async fn rows(admin: &Admin, groups: &[ListedGroup]) -> Vec<Value> {
    let (with_lag, by_kind) = (with_offsets(groups), with_members(groups));
    let (lags, members) = tokio::join!(admin.group_lags(&with_lag), admin.group_member_counts(&by_kind));
    let row = |group: &ListedGroup| {
        let members = if is_empty(group) { Some(0) } else { members.get(&group.group_id).copied() };
        json!({
            "group": group.group_id,
            "state": group.group_state,
            "type": group.group_type,
            "protocol_type": group.protocol_type,
            "members": members,
            "lag": lags.get(&group.group_id),
        })
    };
    groups.iter().map(row).collect()
}

/// The type of a group. Brokers before group types list classic groups only.
fn kind(group: &ListedGroup) -> GroupKind {
    GroupKind::from_name(&group.group_type).unwrap_or(GroupKind::Classic)
}

/// True if the state alone says that the group has no members.
fn is_empty(group: &ListedGroup) -> bool {
    matches!(&*group.group_state, "Empty" | "Dead")
}

/// The groups with committed offsets.
fn with_offsets(groups: &[ListedGroup]) -> Vec<String> {
    let groups = groups.iter().filter(|group| kind(group) != GroupKind::Share);
    groups.map(|group| group.group_id.clone()).collect()
}

/// The groups that may have members, by type.
fn with_members(groups: &[ListedGroup]) -> BTreeMap<GroupKind, Vec<String>> {
    let mut by_kind: BTreeMap<GroupKind, Vec<String>> = BTreeMap::new();
    for group in groups.iter().filter(|group| !is_empty(group)) {
        by_kind.entry(kind(group)).or_default().push(group.group_id.clone());
    }
    by_kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Style;

    fn group(id: &str, kind: &str, state: &str) -> ListedGroup {
        ListedGroup {
            group_id: id.to_owned(),
            group_type: kind.to_owned(),
            group_state: state.to_owned(),
            ..ListedGroup::default()
        }
    }

    #[test]
    fn only_what_a_group_may_have_is_asked_for() {
        let groups = [
            group("a", "consumer", "Stable"),
            group("b", "classic", "Empty"),
            group("c", "share", "Stable"),
            group("d", "", ""),
        ];
        assert_eq!(with_offsets(&groups), ["a", "b", "d"]);
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
