//! `topic describe --groups`: the groups that read a topic, with their lag.

use serde_json::{Value, json};
use thalweg_client::verdict::counted;
use thalweg_client::{Admin, Cluster, ListedGroups, TopicGroup, TopicGroupPartition};

use crate::group::listed;
use crate::moment::{now_ms, seconds};
use crate::output::{Column, Style};

const COLUMNS: [Column<'_>; 7] = [
    ("GROUP", "group"),
    ("TYPE", "type"),
    ("STATE", "state"),
    ("#MEMBERS", "members"),
    ("#PARTITIONS", "partition_count"),
    ("LAG", "lag"),
    ("LAG-SECONDS", "lag_seconds"),
];

/// The columns of a tab at the beginning of a line.
const TAB: usize = 8;

/// The groups of a cluster, among which those of topics are found.
pub(super) struct Groups {
    admin: Admin,
    listed: ListedGroups,
}

/// The groups that read a topic, and the reasons why some may be missing.
pub(super) struct Reading {
    pub groups: Vec<Value>,
    pub unseen: Vec<String>,
}

impl Groups {
    /// Lists the groups. Warns if some may be missing.
    pub async fn of(cluster: &Cluster) -> anyhow::Result<Groups> {
        let listed = listed(cluster).await?;
        listed.unseen.reasons().iter().for_each(|reason| tracing::warn!("{reason}"));
        Ok(Groups { admin: Admin::new(cluster.clone()), listed })
    }

    /// The documents of the groups that read a topic.
    pub async fn reading(&self, topic: &str) -> anyhow::Result<Reading> {
        let found = self.admin.groups_of_topic(topic, &self.listed.groups, now_ms).await?;
        let mut unseen = self.listed.unseen.reasons();
        if found.omitted > 0 {
            let reason = format!(
                "{} groups that may read topic {topic} could not be read completely: the login lacks DESCRIBE \
                 on them, their coordinators do not answer, or there are too many",
                found.omitted
            );
            tracing::warn!("{reason}");
            unseen.push(reason);
        }
        let beyond = found.groups.iter().filter(|group| group.beyond_end() > 0);
        for group in beyond {
            tracing::warn!(
                "Group {}: its offset is beyond the end in {} of topic {topic}, and counts as 0 in its lag",
                group.group,
                counted(group.beyond_end(), "partition")
            );
        }
        Ok(Reading { groups: found.groups.iter().map(document).collect(), unseen })
    }
}

/// A table of the groups, below the topic's partitions.
pub(super) fn table(reading: &Reading, style: Style) -> anyhow::Result<String> {
    if reading.groups.is_empty() {
        let none = match reading.unseen.is_empty() {
            true => "No group reads the topic",
            false => "No group that could be read reads the topic; others may",
        };
        return Ok(format!("\t{none}\n"));
    }
    let table = style.indented(TAB).rows(&COLUMNS, &reading.groups)?;
    Ok(table.lines().map(|line| format!("\t{line}\n")).collect())
}

fn document(group: &TopicGroup) -> Value {
    let partitions: Vec<Value> = group.partitions.iter().map(|found| partition(group, found)).collect();
    json!({
        "group": group.group,
        "type": group.kind.name(),
        "state": group.state,
        "members": group.members.len(),
        "lag": group.lag(),
        "beyond_end": group.beyond_end(),
        "lag_seconds": group.lag_ms().map(seconds),
        "partition_count": partitions.len(),
        "partitions": partitions,
    })
}

fn partition(group: &TopicGroup, found: &TopicGroupPartition) -> Value {
    let reader = found.readers.first().map(|reader| &group.members[*reader]);
    json!({
        "partition": found.partition,
        "current_offset": found.offset.map(|offset| offset.0),
        "lag": found.lag,
        "lag_seconds": found.lag_ms.map(seconds),
        "member_id": reader.map(|member| &member.member_id),
        "client_id": reader.map(|member| &member.client_id),
        "host": reader.map(|member| &member.client_host),
        "readers": found.readers.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_client::{GroupKind, GroupMember};
    use thalweg_record::Offset;

    #[test]
    fn the_indented_table_fits_on_the_terminal() {
        // 77 columns on one line.
        let group = json!({
            "group": "a-group-of-a-topic", "type": "consumer", "state": "Stable", "members": 1,
            "partition_count": 1, "lag": 0, "lag_seconds": 0.0,
        });
        let reading = Reading { groups: vec![group], unseen: Vec::new() };
        let table = table(&reading, Style::NARROW).expect("a table");
        assert_eq!(table.lines().count(), 4, "{table}");
        for line in table.lines() {
            let text = line.strip_prefix('\t').expect("a tab");
            assert!(TAB + text.len() <= 80, "{table}");
        }
    }

    #[test]
    fn no_group_reads_a_topic_only_if_all_were_seen() {
        let text = |unseen: &[&str]| {
            let unseen = unseen.iter().map(|reason| (*reason).to_owned()).collect();
            table(&Reading { groups: Vec::new(), unseen }, Style::NARROW).expect("a sentence")
        };
        assert_eq!(text(&[]), "\tNo group reads the topic\n");
        assert_eq!(text(&["2 groups"]), "\tNo group that could be read reads the topic; others may\n");
    }

    #[test]
    fn a_group_of_a_topic_is_shown_with_lag_and_readers() {
        let member =
            GroupMember { member_id: "m".to_owned(), client_id: "c".to_owned(), ..GroupMember::default() };
        let at = |partition, offset: Option<i64>, lag, readers: &[usize]| TopicGroupPartition {
            partition,
            offset: offset.map(Offset),
            lag,
            lag_ms: lag.map(|lag| lag * 1_500),
            readers: readers.to_vec(),
        };
        let group = TopicGroup {
            group: "billing".to_owned(),
            kind: GroupKind::Consumer,
            state: "Stable".to_owned(),
            members: vec![member],
            partitions: vec![at(0, Some(3), Some(2), &[0]), at(1, None, None, &[0])],
        };
        let found = document(&group);
        let uncommitted = (&json!(null), &json!(null), &json!(1));
        assert_eq!((&found["lag"], &found["lag_seconds"], &found["members"]), uncommitted, "in partition 1");
        let whole = document(&TopicGroup { partitions: vec![group.partitions[0].clone()], ..group });
        assert_eq!((&whole["lag"], &whole["lag_seconds"]), (&json!(2), &json!(3.0)));
        let first = &found["partitions"][0];
        assert_eq!((&first["client_id"], &first["readers"]), (&json!("c"), &json!(1)));
        assert_eq!(found["partitions"][1]["current_offset"], json!(null));
    }
}
