//! The result of `cluster status` as tables for people; `json` has the same content for programs.

use thalweg_client::verdict::{Absence, Cause, Health, counted};
use thalweg_lab::terminal::wrapped;
use unicode_width::UnicodeWidthStr;

use super::health::{shown_health, shown_severity};
use super::state::{DifferingBroker, PartitionStatus, ProbeResult, Role, Status};
use crate::output::Style;
use crate::table::{align, row};

/// Limit of the rows of a table; the JSON document has all partitions.
const ROWS_MAX: usize = 20;
/// Minimum width of a verdict's lines, however narrow the terminal is.
const TEXT_MIN: usize = 24;

impl PartitionStatus {
    fn cells(&self) -> Vec<String> {
        let silent: Vec<i32> = self.isr.iter().copied().filter(|id| !self.live_isr.contains(id)).collect();
        vec![
            format!("{}-{}", self.topic, self.partition),
            match self.leader {
                None => "none".to_owned(),
                Some(leader) if !self.leader_answers => format!("{leader} (not reached)"),
                Some(leader) => leader.to_string(),
            },
            ids(&self.replicas),
            match silent.is_empty() {
                true => ids(&self.live_isr),
                false => format!("{} ({} not reached)", ids(&self.live_isr), ids(&silent)),
            },
            self.min_isr.map_or_else(|| "-".to_owned(), |min| min.to_string()),
        ]
    }
}

fn ids(list: &[i32]) -> String {
    if list.is_empty() {
        return "-".to_owned();
    }
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    texts.join(",")
}

impl Status {
    /// The status as tables for people.
    pub fn to_text(&self, style: Style) -> String {
        let verdicts = self.verdicts();
        let health = Health::of(&verdicts);
        let seen = |count: String, what: &str| match self.is_blind() {
            true => format!("{what} unknown"),
            false => count,
        };
        let mut text = format!(
            "Cluster {}: {}, {}, {}\nHealth: {}\n",
            self.cluster_id,
            counted(self.brokers.len(), "broker"),
            seen(counted(self.topics, "topic"), "topics"),
            seen(counted(self.partitions.len(), "partition"), "partitions"),
            shown_health(health, style),
        );
        for verdict in &verdicts {
            let severity = shown_severity(verdict.fault.severity(), style);
            let indent = verdict.fault.severity().name().len() + 4;
            text.push_str(&format!("  {severity}: {}\n", hanging(&verdict.text, indent, style)));
        }
        text.push('\n');
        text.push_str(&style.table(&self.broker_rows()));
        text.push('\n');
        text.push_str(&self.reach_text(health));
        for (title, found) in [
            ("Partitions without a leader that answers", self.offline()),
            ("Partitions with fewer in sync than min.insync.replicas", self.under_min_isr()),
            ("Under-replicated partitions", self.under_replicated()),
        ] {
            text.push_str(&self.section(title, &found));
        }
        text.push_str(&self.reassignment_text());
        text.push('\n');
        text.push_str(&self.quorum_text());
        text
    }

    /// Unreachable addresses with reasons, and brokers with different metadata.
    fn reach_text(&self, health: Health) -> String {
        let brokers = self.brokers.iter().filter_map(|broker| match &broker.probe {
            ProbeResult::NotReached(why) => Some(format!("  broker {}: {why}\n", broker.id)),
            _ => None,
        });
        let others = self.not_reached.iter().map(|(_, why)| format!("  {why}\n"));
        let silent: String = brokers.chain(others).collect();
        let mut text = String::new();
        if !silent.is_empty() {
            text.push_str(&format!("Not reached:\n{silent}\n"));
        }
        if health != Health::Healthy && !self.differing.is_empty() {
            text.push_str("Brokers with different metadata:\n");
            text.extend(self.differing.iter().map(DifferingBroker::line));
            text.push('\n');
        }
        text
    }

    fn broker_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "REPLICAS"])];
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let seen = |count: usize| if self.is_blind() { "-".to_owned() } else { count.to_string() };
        rows.extend(self.brokers.iter().map(|broker| {
            vec![
                broker.id.to_string(),
                or_dash(&broker.address),
                or_dash(&broker.rack),
                broker.state().to_owned(),
                seen(broker.leaders),
                seen(broker.replicas),
            ]
        }));
        rows
    }

    fn reassignment_text(&self) -> String {
        let found = match &self.reassignments {
            Ok(found) => found,
            Err(Absence { why, .. }) => return format!("Reassignments: unknown ({why})\n"),
        };
        if found.is_empty() {
            return "Reassignments: none\n".to_owned();
        }
        let mut rows = vec![row(["  PARTITION", "REPLICAS", "ADDING", "REMOVING"])];
        rows.extend(found.iter().take(ROWS_MAX).map(|going| {
            let name = format!("  {}-{}", going.topic, going.partition);
            vec![name, ids(&going.replicas), ids(&going.adding), ids(&going.removing)]
        }));
        format!("Reassignments: {}\n{}{}", found.len(), align(&rows), rest(found.len()))
    }

    fn quorum_text(&self) -> String {
        let quorum = match &self.quorum {
            Ok(quorum) => quorum,
            Err(Absence { why, cause }) => {
                let known = "Without an active controller, brokers answer with their last known state.\n";
                let known = if matches!(cause, Cause::Silent | Cause::Failed) { known } else { "" };
                return format!("Controller quorum: unknown ({why})\n{known}");
            }
        };
        let mut rows = vec![row(["  NODE", "ROLE", "ADDRESS", "LOG END", "LAG", "LAST FETCH"])];
        rows.extend(quorum.nodes.iter().map(|node| {
            vec![
                format!("  {}", node.id),
                node.role.name().to_owned(),
                node.address.clone().unwrap_or_else(|| "-".to_owned()),
                node.log_end_offset.to_string(),
                quorum.lag(node).to_string(),
                match (node.role, node.silent_ms) {
                    (Role::Leader, _) | (_, None) => "-".to_owned(),
                    (_, Some(ms)) => format!("{:.1} s ago", ms as f64 / 1000.0),
                },
            ]
        }));
        format!(
            "Controller quorum: node {} leads in epoch {}, all is committed up to offset {}\n{}",
            quorum.leader,
            quorum.epoch,
            quorum.high_watermark,
            align(&rows)
        )
    }
}

/// A text behind so many columns, with its further lines below its first one on a terminal.
fn hanging(text: &str, indent: usize, style: Style) -> String {
    let Some(columns) = style.columns() else { return text.to_owned() };
    let lines = wrapped(text, columns.saturating_sub(indent).max(TEXT_MIN), UnicodeWidthStr::width);
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

impl DifferingBroker {
    fn line(&self) -> String {
        let mut parts = Vec::new();
        if let Some((topic, partition)) = self.behind.first() {
            let count = counted(self.behind.len(), "partition");
            parts.push(format!("{count} missing or with an earlier leader, such as {topic}-{partition}"));
        }
        if !self.brokers.is_empty() {
            parts.push(format!("disagrees on whether brokers {} are alive", ids(&self.brokers)));
        }
        format!("  broker {}: {}\n", self.broker, parts.join("; "))
    }
}

impl Status {
    fn section(&self, title: &str, found: &[&PartitionStatus]) -> String {
        if found.is_empty() {
            let none = match (self.is_blind(), self.is_partial()) {
                (true, _) => "unknown (the login sees no topic)",
                (false, true) => "none of the topics that the login sees",
                (false, false) => "none",
            };
            return format!("{title}: {none}\n");
        }
        section(title, found)
    }
}

fn section(title: &str, found: &[&PartitionStatus]) -> String {
    let mut rows = vec![row(["  PARTITION", "LEADER", "REPLICAS", "IN SYNC", "MINIMUM"])];
    rows.extend(found.iter().take(ROWS_MAX).map(|partition| {
        let mut cells = partition.cells();
        cells[0].insert_str(0, "  ");
        cells
    }));
    format!("{title}: {}\n{}{}", found.len(), align(&rows), rest(found.len()))
}

/// The number of rows left out of a table.
fn rest(count: usize) -> String {
    match count.saturating_sub(ROWS_MAX) {
        0 => String::new(),
        more => format!("  and {more} more; --json has them all\n"),
    }
}

#[cfg(test)]
mod tests;
