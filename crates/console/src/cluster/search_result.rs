//! The result of a search, and its summary: what was looked at, what was not, and why.

use std::time::Duration;

use thalweg_browse::{EndReason, Message, PartitionProgress, Progress, SearchError};
use thalweg_record::Offset;

use super::positions::Positions;
use crate::format;

/// Maximum bytes per answer.
pub(super) const BYTES_MAX: u64 = 4 << 20;
/// Maximum bytes that a search without a filter reads. It needs more than its answer only on topics with
/// records that are not shown, such as aborted transactions.
pub(super) const READ_BYTES_MAX: u64 = 64 << 20;
/// Time limit of a search, including the wait for a place.
pub(super) const SEARCH_MAX: Duration = Duration::from_secs(10);
/// Partitions whose offsets the summary names. With more partitions, it names their number.
const PARTITIONS_NAMED: usize = 3;
/// Unreadable partitions that the summary names.
const UNREADABLE_NAMED: usize = 10;

/// The messages of a search, and its extent.
#[derive(Debug)]
pub struct SearchResult {
    /// The messages, in the order of the search.
    pub messages: Vec<Message>,
    pub progress: Progress,
    /// True if the newest message is the first one shown.
    pub is_newest_first: bool,
    /// True if the search read from newer to older messages. A search for the page on the other side reads
    /// against the order in which messages are shown.
    pub is_backward: bool,
    /// True if the search began at the beginning or at the end of the log.
    pub is_whole: bool,
    /// The positions at which the search began, as it was asked to.
    pub positions: Positions,
    pub end: SearchEndKind,
}

/// The reason for the end of a search that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEndKind {
    /// The whole range was read.
    Complete,
    /// The maximum number of messages was found.
    Limit,
    /// The maximum bytes of an answer were reached.
    AnswerBytes,
    /// The maximum bytes to read were reached.
    ReadBytes,
    /// The time limit was reached.
    Time,
}

impl SearchEndKind {
    /// The kind of an end; an error for a failure.
    pub fn of(why: EndReason) -> Result<SearchEndKind, SearchError> {
        Ok(match why {
            EndReason::Complete => SearchEndKind::Complete,
            EndReason::Matches => SearchEndKind::Limit,
            EndReason::Bytes => SearchEndKind::AnswerBytes,
            EndReason::ReadBytes => SearchEndKind::ReadBytes,
            EndReason::Time => SearchEndKind::Time,
            EndReason::Failed(error) => return Err(error),
        })
    }

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            SearchEndKind::Complete => "complete",
            SearchEndKind::Limit => "limit",
            SearchEndKind::AnswerBytes => "answer_bytes",
            SearchEndKind::ReadBytes => "read_bytes",
            SearchEndKind::Time => "time",
        }
    }

    /// The reason in words that follow a colon.
    pub fn words(self) -> String {
        match self {
            SearchEndKind::Complete => "everything was read".to_owned(),
            SearchEndKind::Limit => "the search ended at the number of messages asked for".to_owned(),
            SearchEndKind::AnswerBytes => format!("the answer is full ({} MiB)", BYTES_MAX >> 20),
            SearchEndKind::ReadBytes => {
                format!("{} MiB were read, the most without a filter", READ_BYTES_MAX >> 20)
            }
            SearchEndKind::Time => format!("the time of {} s was over", SEARCH_MAX.as_secs()),
        }
    }
}

impl SearchResult {
    /// The number of offsets of the range that were not looked at, in readable partitions.
    pub fn offsets_left(&self) -> u64 {
        let left = |partition: &PartitionProgress| match self.is_backward {
            true => partition.from.0 - partition.start.0,
            false => partition.end.unwrap_or(partition.latest).0 - partition.position.0,
        };
        let all = self.progress.partitions.iter().map(left);
        all.filter_map(|left| u64::try_from(left).ok()).sum()
    }

    /// True if the range may have more messages than the answer.
    pub fn has_more(&self) -> bool {
        self.end != SearchEndKind::Complete || !self.progress.unreadable.is_empty() || self.offsets_left() > 0
    }

    /// True if a partition of the range was not read to its end.
    pub fn has_rest(&self) -> bool {
        self.progress.partitions.iter().any(|partition| match self.is_backward {
            true => partition.resume > partition.start,
            false => partition.end.is_some_and(|end| partition.resume < end),
        })
    }

    /// The position of each partition before the shown messages.
    pub fn lower(&self) -> Positions {
        self.edge(|partition| if self.is_backward { partition.resume } else { partition.start })
    }

    /// The position of each partition after the shown messages.
    pub fn upper(&self) -> Positions {
        let end = |partition: &PartitionProgress| partition.end.unwrap_or(partition.latest);
        self.edge(|partition| if self.is_backward { end(partition) } else { partition.resume })
    }

    /// Positions at one side of the shown messages. Partitions that cannot be read keep the positions at
    /// which the search began.
    fn edge(&self, of: impl Fn(&PartitionProgress) -> Offset) -> Positions {
        let read = self.progress.partitions.iter().map(|partition| (partition.partition, of(partition)));
        let mut positions = self.positions.clone();
        positions.0.extend(read);
        positions
    }

    /// The position of each partition before which there are older messages; none if there are none.
    pub fn older(&self) -> Option<Positions> {
        let lower = self.lower();
        let is_open =
            |one: &PartitionProgress| lower.0.get(&one.partition).is_some_and(|at| *at > one.earliest);
        self.progress.partitions.iter().any(is_open).then_some(lower)
    }

    /// The position of each partition from which on there are newer messages; none if there are none.
    pub fn newer(&self) -> Option<Positions> {
        let upper = self.upper();
        let is_open =
            |one: &PartitionProgress| upper.0.get(&one.partition).is_some_and(|at| *at < one.latest);
        self.progress.partitions.iter().any(is_open).then_some(upper)
    }

    /// What was looked at, what was not, and why.
    pub fn summary(&self) -> String {
        format!("{}. {}", self.looked_at(), self.ended())
    }

    /// The records and offsets that were looked at.
    fn looked_at(&self) -> String {
        let progress = &self.progress;
        let order = if self.is_newest_first { "newest first" } else { "oldest first" };
        let read = progress.partitions.iter().filter(|partition| partition.position > partition.from);
        let read: Vec<&PartitionProgress> = read.collect();
        let offsets = read.iter().map(|partition| {
            let (from, last) = (format::count(partition.from.0), format::count(partition.position.0 - 1));
            format!("offsets {from} to {last} of partition {}", partition.partition)
        });
        let place = match read.len() {
            0 => String::new(),
            count if count <= PARTITIONS_NAMED => format!(": {}", offsets.collect::<Vec<_>>().join(", ")),
            count => format!(", in {count} partitions"),
        };
        format!(
            "{} of {} ({}) looked at, {order}{place}",
            format::counted(self.messages.len(), "message"),
            format::counted(progress.records, "record"),
            format::bytes(progress.bytes),
        )
    }

    /// Whether there may be more, and why the search ended.
    pub fn ended(&self) -> String {
        let direction = if self.is_backward { "older" } else { "newer" };
        let why = self.end.words();
        let mut text = match self.offsets_left() {
            0 if self.end == SearchEndKind::Complete && !self.progress.unreadable.is_empty() => {
                let is_any_read = !self.progress.partitions.is_empty();
                if is_any_read { "Everything else was read." } else { "Nothing was read." }.to_owned()
            }
            0 if self.end == SearchEndKind::Complete && self.is_whole => "Everything was read.".to_owned(),
            0 if self.end == SearchEndKind::Complete => "Everything from there on was read.".to_owned(),
            0 if self.end == SearchEndKind::Time && self.progress.partitions.is_empty() => {
                format!("Nothing was read: {why}.")
            }
            0 => format!("There may be {direction} messages: {why}."),
            1 => format!("1 {direction} offset was not looked at: {why}."),
            left => format!("{} {direction} offsets were not looked at: {why}.", format::count(left)),
        };
        let open = self.progress.open_offsets;
        if open > 0 {
            let verb = if open == 1 { "waits" } else { "wait" };
            text.push_str(&format!(
                " {} {verb} behind an open transaction, and cannot be read as committed.",
                format::counted(open, "offset")
            ));
        }
        let unreadable = &self.progress.unreadable;
        for one in unreadable.iter().take(UNREADABLE_NAMED) {
            text.push_str(&format!(" Partition {} cannot be read: {}.", one.partition, one.reason));
        }
        if unreadable.len() > UNREADABLE_NAMED {
            text.push_str(&format!(
                " {} more partitions cannot be read.",
                unreadable.len() - UNREADABLE_NAMED
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_browse::UnreadablePartition;

    fn partition(partition: i32, start: i64, from: i64, position: i64, end: i64) -> PartitionProgress {
        PartitionProgress {
            partition,
            start: Offset(start),
            from: Offset(from),
            position: Offset(position),
            resume: Offset(from),
            end: Some(Offset(end)),
            earliest: Offset(start),
            latest: Offset(end),
        }
    }

    fn result(end: SearchEndKind, partitions: &[PartitionProgress]) -> SearchResult {
        let progress =
            Progress { records: 50, bytes: 5000, partitions: partitions.to_vec(), ..Progress::default() };
        SearchResult {
            messages: Vec::new(),
            progress,
            is_newest_first: true,
            is_backward: true,
            is_whole: true,
            positions: Positions::default(),
            end,
        }
    }

    #[test]
    fn offsets_behind_an_open_transaction_are_named() {
        let mut found = result(SearchEndKind::Complete, &[partition(0, 5, 5, 55, 55)]);
        assert!(found.ended().ends_with("Everything was read."), "{}", found.ended());
        found.progress.open_offsets = 3;
        let expected = "Everything was read. 3 offsets wait behind an open transaction, and cannot be read as committed.";
        assert_eq!(found.ended(), expected);
    }

    #[test]
    fn a_summary_has_searched_and_unsearched_parts() {
        let one = result(SearchEndKind::Limit, &[partition(0, 0, 14_950, 15_000, 15_000)]);
        assert_eq!(
            one.summary(),
            "0 messages of 50 records (4.88 KiB) looked at, newest first: offsets 14,950 to 14,999 of partition 0. \
             14,950 older offsets were not looked at: the search ended at the number of messages asked for."
        );
        assert!(one.has_more());
        let whole = result(SearchEndKind::Complete, &[partition(0, 5, 5, 55, 55), partition(1, 0, 0, 0, 0)]);
        assert!(
            whole.summary().ends_with("newest first: offsets 5 to 54 of partition 0. Everything was read.")
        );
        assert!(!whole.has_more());
        let forward = SearchResult {
            is_newest_first: false,
            is_backward: false,
            ..result(SearchEndKind::Time, &[partition(0, 10, 10, 20, 40), partition(1, 0, 0, 3, 3)])
        };
        let expected = "oldest first: offsets 10 to 19 of partition 0, offsets 0 to 2 of partition 1. \
                        20 newer offsets were not looked at: the time of 10 s was over.";
        assert!(forward.summary().ends_with(expected), "{}", forward.summary());
        let many =
            result(SearchEndKind::ReadBytes, &[0, 1, 2, 3].map(|index| partition(index, 0, 9, 10, 10)));
        assert!(
            many.summary().contains("newest first, in 4 partitions. 36 older offsets"),
            "{}",
            many.summary()
        );
    }

    #[test]
    fn older_and_newer_messages_begin_where_the_page_ends() {
        let text = |positions: Option<Positions>| positions.and_then(|positions| positions.parameter());
        let newest = result(
            SearchEndKind::Limit,
            &[partition(0, 0, 14_950, 15_000, 15_000), partition(1, 5, 5, 55, 55)],
        );
        assert_eq!((text(newest.older()).as_deref(), newest.newer()), (Some("0:14950,1:5"), None));
        // A page between others, with a partition that it cannot read.
        let mut between = result(SearchEndKind::Limit, &[partition(0, 0, 100, 150, 150)]);
        between.progress.partitions[0].latest = Offset(200);
        between.positions = Positions::parse("before", "0:150,7:30").expect("right");
        assert_eq!(text(between.older()).as_deref(), Some("0:100,7:30"));
        assert_eq!(text(between.newer()).as_deref(), Some("0:150,7:30"));
        // Read forward, from offset 10 to offset 20.
        let mut forward = partition(0, 10, 10, 20, 40);
        (forward.resume, forward.earliest) = (Offset(20), Offset(0));
        let forward = SearchResult { is_backward: false, ..result(SearchEndKind::Limit, &[forward]) };
        assert_eq!(text(forward.older()).as_deref(), Some("0:10"));
        assert_eq!(text(forward.newer()).as_deref(), Some("0:20"));
        assert!(newest.has_rest() && between.has_rest() && forward.has_rest());
        let whole = result(SearchEndKind::Complete, &[partition(0, 5, 5, 55, 55)]);
        assert_eq!((whole.older(), whole.newer(), whole.has_rest()), (None, None, false));
    }

    #[test]
    fn a_partition_that_cannot_be_read_is_named() {
        let mut result = result(SearchEndKind::Complete, &[partition(0, 0, 0, 50, 50)]);
        let reason = "it has no leader".to_owned();
        result.progress.unreadable = vec![UnreadablePartition { partition: 3, reason }];
        assert_eq!(result.ended(), "Everything else was read. Partition 3 cannot be read: it has no leader.");
        assert!(result.has_more());
    }
}
