//! The figures of a cluster as lines of text. Pure.

use thalweg_client::verdict::Severity;
use thalweg_lab::quantity;
use thalweg_lab::terminal::wrapped;
use thalweg_security::visible::visible;
use unicode_width::UnicodeWidthStr;

use super::figures::{BrokerFigures, Figures, GroupFigures, Sum, TopicFigures};
use super::layout::{Column, cut, divide, table};
use super::notes::MARK;

/// Minimum width of a terminal for which lines are made.
const WIDTH_MIN: usize = 20;
/// Lines of verdicts and of notes on a terminal.
const VERDICT_LINES_MAX: usize = 4;
const NOTE_LINES_MAX: usize = 6;

/// The look of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Heading,
    Good,
    Doubtful,
    Bad,
}

/// A line of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub text: String,
    pub look: Look,
}

impl Line {
    pub(super) fn new(text: impl Into<String>, look: Look) -> Line {
        Line { text: text.into(), look }
    }

    pub(super) fn plain(text: impl Into<String>) -> Line {
        Line::new(text, Look::Plain)
    }
}

/// The room for lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Columns of the terminal; none for a pipe.
    pub width: Option<usize>,
    /// Lines of the terminal; none for a pipe.
    pub height: Option<usize>,
    /// Maximum number of rows of a table.
    pub rows: Option<usize>,
}

impl Room {
    /// A text cut to the width.
    pub(super) fn cut(&self, text: &str) -> String {
        let text = visible(text);
        self.width.map_or_else(|| text.to_string(), |width| cut(&text, width.max(WIDTH_MIN)))
    }

    /// A text on several lines, the later ones indented; at most `lines`.
    fn wrap(&self, text: &str, lines: usize) -> Vec<String> {
        let text = visible(text);
        let Some(width) = self.width else { return vec![text.into_owned()] };
        let all = wrapped(&text, width.max(WIDTH_MIN) - 2, UnicodeWidthStr::width);
        let cut = all.len() > lines;
        let shown = all.into_iter().take(lines).enumerate().map(|(number, line)| match number {
            0 => line.to_owned(),
            _ => format!("  {line}"),
        });
        let mut shown: Vec<String> = shown.collect();
        if let Some(last) = shown.last_mut().filter(|_| cut) {
            last.push('…');
        }
        shown
    }

    /// The number of rows of each table, with this many lines for all of them.
    pub(super) fn divide(&self, lines_taken: usize, needs: &[usize]) -> Vec<usize> {
        let needs: Vec<usize> =
            needs.iter().map(|need| self.rows.map_or(*need, |rows| rows.min(*need))).collect();
        match self.height {
            Some(height) => divide(height.saturating_sub(lines_taken), &needs),
            None => needs,
        }
    }
}

/// The lines of a cluster. `notes` precede those of the figures.
pub(super) fn cluster(figures: &Figures, notes: &[String], room: Room) -> Vec<Line> {
    let mut lines = head(figures, room);
    let notes = note_lines(notes.iter().chain(&figures.notes), room);
    // Three tables, each with a blank line and a header.
    let taken = lines.len() + notes.len() + 3 * 2 + usize::from(!notes.is_empty());
    let groups = figures.groups.as_deref().unwrap_or_default();
    let needs = [figures.brokers.len(), figures.topics.len(), groups.len()];
    let [brokers, topics, in_groups] = room.divide(taken, &needs)[..] else { return lines };
    let mut add = |table: Vec<String>| {
        lines.push(Line::plain(""));
        lines.extend(table.into_iter().enumerate().map(|(number, line)| match number {
            0 => Line::new(line, Look::Heading),
            _ => Line::plain(line),
        }));
    };
    add(broker_table(figures, brokers, room));
    add(topic_table(&figures.topics, topics, room));
    add(match &figures.groups {
        Some(groups) => group_table(groups, in_groups, room),
        None => vec!["GROUP  unknown".to_owned()],
    });
    if !notes.is_empty() {
        lines.push(Line::plain(""));
        lines.extend(notes);
    }
    lines
}

/// The lines of notes.
pub(super) fn note_lines<'a>(notes: impl Iterator<Item = &'a String>, room: Room) -> Vec<Line> {
    let mut lines: Vec<Line> = notes.flat_map(|note| room.wrap(note, usize::MAX)).map(Line::plain).collect();
    if room.height.is_some() && lines.len() > NOTE_LINES_MAX {
        lines.truncate(NOTE_LINES_MAX - 1);
        lines.push(Line::plain("… more notes: --json has all of them"));
    }
    lines
}

fn head(figures: &Figures, room: Room) -> Vec<Line> {
    let cluster = &figures.cluster;
    let partitions = |of: fn(&thalweg_client::verdict::PartitionCounts) -> usize| {
        counted(cluster.partitions.as_ref().map(of), cluster.has_all_topics)
    };
    let controller = cluster.controller.map_or_else(dash, |id| id.to_string());
    let brokers = format!(
        "Brokers {} of {} up, controller {controller}; partitions {}, under-replicated {}, offline {}",
        cluster.brokers_up,
        cluster.brokers,
        partitions(|counts| counts.total),
        partitions(|counts| counts.under_replicated),
        partitions(|counts| counts.offline),
    );
    let rates = format!(
        "Messages {}/s, {}/s; topics {}, groups {}",
        sum(cluster.messages_per_s, quantity::short),
        sum(cluster.bytes_per_s, quantity::bytes),
        counted(cluster.topics, cluster.has_all_topics),
        counted(figures.groups.as_ref().map(Vec::len), cluster.has_all_groups),
    );
    let mut lines = vec![Line::plain(room.cut(&brokers)), Line::plain(room.cut(&rates))];
    let look = match figures.verdicts.first().map(|verdict| verdict.fault.severity()) {
        None => Look::Good,
        Some(Severity::Critical) => Look::Bad,
        Some(_) => Look::Doubtful,
    };
    let mut health = format!("Health: {}", cluster.health.name());
    if let Some(first) = figures.verdicts.first() {
        health.push_str(&format!(": {}", first.text));
        let more = figures.verdicts.len() - 1;
        if more > 0 {
            let noun = if more == 1 { "verdict" } else { "verdicts" };
            health.push_str(&format!(" And {more} more {noun}: `thalweg cluster status`."));
        }
    }
    lines.extend(room.wrap(&health, VERDICT_LINES_MAX).into_iter().map(|line| Line::new(line, look)));
    lines
}

pub(super) fn dash() -> String {
    "-".to_owned()
}

/// A sum, with a mark if a part is missing.
fn sum(sum: Option<Sum>, format: fn(f64) -> String) -> String {
    match sum {
        None => dash(),
        Some(Sum { value, is_whole: true }) => format(value),
        Some(Sum { value, is_whole: false }) => format!("{}{MARK}", format(value)),
    }
}

/// A number of things, with a mark if there may be more.
fn counted(count: Option<usize>, is_all: bool) -> String {
    let Some(count) = count else { return dash() };
    let mut text = quantity::count(count as u64);
    text.extend((!is_all).then_some(MARK));
    text
}

/// A number that may fall, with its sign.
fn signed(value: Option<f64>, format: fn(f64) -> String) -> String {
    match value {
        None => dash(),
        Some(value) if value > 0.0 => format!("+{}", format(value)),
        Some(value) => format(value),
    }
}

/// A sum that may fall, with its sign, and a mark if a part is missing.
fn signed_sum(sum: Option<Sum>, format: fn(f64) -> String) -> String {
    let mut text = signed(sum.map(|sum| sum.value), format);
    text.extend(sum.filter(|sum| !sum.is_whole).map(|_| MARK));
    text
}

/// The head of a first column: the number of shown rows, unless all are.
pub(super) fn title(noun: &str, shown: usize, all: usize) -> String {
    if shown < all { format!("{noun} {shown}/{all}") } else { noun.to_owned() }
}

fn broker_table(figures: &Figures, shown: usize, room: Room) -> Vec<String> {
    let brokers = &figures.brokers;
    let columns = [
        Column::number(&title("BROKER", shown, brokers.len())),
        Column::name("ENDPOINT", 10),
        Column::name("RACK", 8).optional(2),
        Column::name("STATE", 11),
        Column::number("LEADERS").optional(1),
        Column::number("REPLICAS").optional(3),
        Column::number("OUT-OF-SYNC"),
        Column::number("LOG"),
        Column::number("GROWTH/s"),
    ];
    let count = |count: Option<usize>| counted(count, figures.cluster.has_all_topics);
    let row = |broker: &BrokerFigures| {
        vec![
            broker.id.to_string(),
            broker.address.clone().unwrap_or_else(dash),
            broker.rack.clone().unwrap_or_else(dash),
            broker.state.to_owned(),
            count(broker.leaders),
            count(broker.replicas),
            count(broker.out_of_sync),
            sum(broker.log_bytes, quantity::bytes),
            signed_sum(broker.log_bytes_per_s, quantity::bytes),
        ]
    };
    // Brokers with a fault are shown before others.
    let mut brokers: Vec<&BrokerFigures> = brokers.iter().collect();
    if shown < brokers.len() {
        brokers.sort_by_key(|broker| broker.is_up);
    }
    let rows: Vec<Vec<String>> = brokers.into_iter().take(shown).map(row).collect();
    table(&columns, &rows, 2, room.width)
}

fn topic_table(topics: &[TopicFigures], shown: usize, room: Room) -> Vec<String> {
    let columns = [
        Column::name(title("TOPIC", shown, topics.len()), 20),
        Column::number("PARTS").optional(2),
        Column::number("OFFLINE"),
        Column::number("UNDER-R"),
        Column::number("MESSAGES/s"),
        Column::number("BYTES/s"),
        Column::number("LOG").optional(1),
    ];
    let row = |topic: &TopicFigures| {
        vec![
            topic.name.to_string(),
            topic.partitions.to_string(),
            topic.leaderless.to_string(),
            topic.under_replicated.to_string(),
            sum(topic.messages_per_s, quantity::short),
            sum(topic.bytes_per_s, quantity::bytes),
            sum(topic.log_bytes, quantity::bytes),
        ]
    };
    let rows: Vec<Vec<String>> = topics.iter().take(shown).map(row).collect();
    table(&columns, &rows, 2, room.width)
}

fn group_table(groups: &[GroupFigures], shown: usize, room: Room) -> Vec<String> {
    let columns = [
        Column::name(title("GROUP", shown, groups.len()), 20),
        Column::name("TYPE", 8).optional(1),
        Column::name("STATE", 6),
        Column::number("MEMBERS"),
        Column::number("LAG"),
        Column::number("LAG/s"),
        Column::number("CONSUMED/s"),
    ];
    let row = |group: &GroupFigures| {
        vec![
            group.name.clone(),
            group.kind.name().to_owned(),
            group.state.clone().unwrap_or_else(dash),
            group.members.map_or_else(dash, |members| members.to_string()),
            sum(group.lag, quantity::short),
            signed(group.lag_per_s, quantity::short),
            sum(group.consumed_per_s, quantity::short),
        ]
    };
    let rows: Vec<Vec<String>> = groups.iter().take(shown).map(row).collect();
    table(&columns, &rows, 2, room.width)
}

#[cfg(test)]
mod tests {
    use thalweg_client::verdict::{Absence, Reach};
    use tokio::time::Instant;

    use super::*;
    use crate::top::reading::testing::{add_group, add_topic, reading};

    const TERMINAL: Room = Room { width: Some(80), height: Some(24), rows: None };
    const PIPE: Room = Room { width: None, height: None, rows: None };

    fn figures(topics: usize) -> Figures {
        let began = Instant::now();
        let (mut before, mut now) = (reading(began, 0.0), reading(began, 2.0));
        now.brokers.get_mut(&1).expect("there").address = Some("broker-1.kafka.example.com:9092".to_owned());
        for number in 0..topics {
            let name = format!("topic-{number:03}-with-a-name-that-is-longer-than-most");
            add_topic(&mut before, &name, &[(Some(0), Some(0))]);
            add_topic(&mut now, &name, &[(Some(number as i64 * 246_800), Some(number as i64 * 1_000_000))]);
            add_group(&mut before, &name, &name, Some(0));
            add_group(&mut now, &name, &name, Some(number as i64 * 100_000));
        }
        Figures::of(Some(&before), &now)
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_cluster_fits_eighty_columns() {
        let lines = cluster(&figures(3), &[], TERMINAL);
        let expected = [
            "Brokers 2 of 2 up, controller 1; partitions 3, under-replicated 0, offline 0",
            "Messages 370 k/s, 1.43 MiB/s; topics 3, groups 3",
            "Health: healthy",
            "",
        ];
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(line.text, expected);
        }
        for line in &lines {
            assert!(line.text.width() <= 80, "{line:?}");
        }
        let texts = texts(&lines);
        let find =
            |start: &str| texts.iter().find(|text| text.starts_with(start)).copied().unwrap_or_default();
        assert!(find("BROKER").contains("OUT-OF-SYNC") && find("BROKER").ends_with("GROWTH/s"), "{texts:#?}");
        assert!(find("TOPIC").contains("MESSAGES/s") && find("GROUP").ends_with("CONSUMED/s"), "{texts:#?}");
        assert!(find("topic-002").contains("247 k"), "{texts:#?}");
    }

    #[test]
    fn some_of_many_brokers_fit_eighty_columns() {
        let mut figures = figures(1);
        let mut broker = figures.brokers[0].clone();
        let large = Some(Sum { value: -912.0 * f64::from(1 << 30), is_whole: false });
        (broker.state, broker.log_bytes, broker.log_bytes_per_s) = ("not reached", large, large);
        figures.brokers = vec![broker; 12];
        let lines = cluster(&figures, &[], Room { rows: Some(5), ..TERMINAL });
        let texts = texts(&lines);
        let header = texts.iter().position(|text| text.starts_with("BROKER 5/12")).expect("a header");
        assert!(texts[header].ends_with("GROWTH/s"), "{texts:#?}");
        assert!(texts[header + 1].ends_with(MARK) && !texts[header + 1].ends_with('…'), "{texts:#?}");
    }

    #[test]
    fn rows_fit_the_height_below_the_number_of_all() {
        for height in [10, 24, 50] {
            let lines = cluster(&figures(100), &[], Room { height: Some(height), ..TERMINAL });
            assert!(lines.len() <= height.max(12), "{height}: {}", lines.len());
        }
        let lines = cluster(&figures(100), &[], TERMINAL);
        let texts = texts(&lines);
        assert!(texts.iter().any(|text| text.starts_with("TOPIC 6/100 ")), "{texts:#?}");
        let lines = cluster(&figures(100), &[], Room { rows: Some(2), ..PIPE });
        assert_eq!(lines.iter().filter(|line| line.text.starts_with("topic-")).count(), 4);
        let all = cluster(&figures(100), &[], PIPE);
        assert_eq!(all.iter().filter(|line| line.text.starts_with("topic-")).count(), 200);
    }

    #[test]
    fn counts_of_which_parts_may_be_missing_are_marked() {
        let mut now = reading(Instant::now(), 0.0);
        add_topic(&mut now, "orders", &[(Some(1), Some(1))]);
        let shown = |now: &_| texts(&cluster(&Figures::of(None, now), &[], PIPE)).join("\n");
        let all = shown(&now);
        assert!(all.contains("partitions 1, under-replicated 0, offline 0"), "{all}");
        assert!(all.contains("topics 1, groups 0") && !all.contains("+ marks"), "{all}");
        now.facts.hidden_topics = Ok(1);
        now.groups.as_mut().expect("groups").gaps.push("Some groups are missing".to_owned());
        let some = shown(&now);
        assert!(some.contains("partitions 1+, under-replicated 0+, offline 0+"), "{some}");
        assert!(some.contains("topics 1+, groups 0+") && some.contains("+ marks"), "{some}");
        assert!(
            some.lines().any(|line| line.split_whitespace().filter(|word| *word == "1+").count() >= 2),
            "{some}"
        );
    }

    #[test]
    fn unknown_values_are_dashes_with_a_note() {
        let mut now = reading(Instant::now(), 0.0);
        add_topic(&mut now, "orders", &[(None, None)]);
        now.groups = Err(Absence::silent("late"));
        let dead = now.brokers.get_mut(&1).expect("there");
        (dead.reach, dead.logs) = (Reach::Silent, None);
        dead.directories = Err(Absence::silent("broker 1 did not answer within 500 ms"));
        let lines = cluster(&Figures::of(None, &now), &["The last reading failed.".to_owned()], PIPE);
        let texts = texts(&lines);
        let all = texts.join("\n");
        assert!(all.contains("Messages -/s, -/s; topics 1, groups -"), "{all}");
        assert!(all.contains("\nGROUP  unknown\n"), "{all}");
        assert!(all.contains("Health: unavailable: 1 of 1 partitions has no leader that answers"), "{all}");
        let notes = &all[all.find("The last reading failed.").expect("the first note")..];
        for note in ["second reading on", "did not answer within 500 ms", "Groups: no answer."] {
            assert!(notes.contains(note), "{note}: {all}");
        }
    }
}
