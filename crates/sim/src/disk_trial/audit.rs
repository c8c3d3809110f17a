//! The audit of a trial: every topic is read completely, both uncommitted and committed, and then written to
//! once more.

use super::books::{Books, RECORDS, Sheet, Visibility, parse};
use super::load::connect;
use super::node::{LEDGER, Retention, TOPICS};
use super::producer::{Refusal, produce};
use super::transactions::Transactions;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use thalweg_client::{
    Cluster, Connector, Consumer, ConsumerConfig, OffsetReset, OffsetSpec, PollEvent, StartAt, TopicPartition,
};
use thalweg_record::DecompressBuffer;

/// Attempts until a topic must have a leader and be readable.
const TRIES: usize = 60;
const AGAIN: Duration = Duration::from_millis(200);

/// Records as read: the batch, and the position in the batch, by offset.
type FoundRecords = BTreeMap<i64, (u64, u64)>;

struct Auditor {
    cluster: Cluster,
    books: Arc<Mutex<Books>>,
}

/// Audits every topic.
pub(super) async fn audit(connector: Connector, books: Arc<Mutex<Books>>, _seed: u64) {
    let cluster = connect(&connector).await;
    let auditor = Auditor { cluster: cluster.clone(), books: Arc::clone(&books) };
    // Aborts open transactions, so that all records can be read as committed.
    let opened = books.lock().topics.contains_key(LEDGER);
    let transactions =
        if opened { Some(Transactions::begin(&cluster, Arc::clone(&books)).await) } else { None };
    for (name, keeps) in TOPICS {
        let sheet = books.lock().sheet(name).clone();
        if sheet.sent.iter().any(|sent| sent.offset.is_some()) {
            auditor.topic(name, keeps, &sheet).await;
        }
    }
    drop(transactions);
    auditor.topics().await;
}

impl Auditor {
    fn wrong(&self, what: String) {
        self.books.lock().violation(what);
    }

    async fn topic(&self, name: &str, keeps: Retention, sheet: &Sheet) {
        let Some((start, end)) = self.offsets(name).await else {
            return self.wrong(format!("{name}-0 has no offsets"));
        };
        match self.read(name, start, end, false).await {
            Ok(found) => {
                check(name, keeps, sheet, &found, (start, end)).into_iter().for_each(|what| self.wrong(what));
            }
            Err(why) => self.wrong(format!("{name}-0 cannot be read from {start} to {end}: {why}")),
        }
        if name == LEDGER {
            match self.read(name, start, end, true).await {
                Ok(found) => check_committed(sheet, &found).into_iter().for_each(|what| self.wrong(what)),
                Err(why) => self.wrong(format!("{name}-0 cannot be read as committed to {end}: {why}")),
            }
        }
        self.write(name, end).await;
    }

    /// The first and the last offset of a partition, once it has a leader.
    async fn offsets(&self, name: &str) -> Option<(i64, i64)> {
        let at = TopicPartition::new(name, 0);
        for _ in 0..TRIES {
            let _ = self.cluster.refresh(&[name.to_owned()], false).await;
            let mut found = Vec::new();
            for spec in [OffsetSpec::Earliest, OffsetSpec::Latest] {
                let listed = self.cluster.list_offsets(&[(at.clone(), spec)], false).await;
                if let Some(Ok(listed)) = listed.get(&at) {
                    found.push(listed.offset.0);
                }
            }
            if let [start, end] = found[..] {
                return Some((start, end));
            }
            tokio::time::sleep(AGAIN).await;
        }
        None
    }

    async fn read(&self, name: &str, start: i64, end: i64, committed: bool) -> Result<FoundRecords, String> {
        let config = ConsumerConfig {
            read_committed: committed,
            offset_reset: OffsetReset::None,
            fetch_wait_max: Duration::from_millis(50),
            check_crcs: true,
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(self.cluster.clone(), config);
        let at = TopicPartition::new(name, 0);
        let from = StartAt::Offset(thalweg_record::Offset(start));
        consumer.assign([(at, from)].into()).await.map_err(|error| error.to_string())?;
        let (mut found, mut buffer, mut next) = (BTreeMap::new(), DecompressBuffer::default(), start);
        let mut misses = 0;
        while next < end {
            let chunk = match consumer.poll(AGAIN).await.map_err(|error| error.to_string())? {
                PollEvent::Chunk(chunk) => chunk,
                _ if misses > TRIES => return Err(format!("nothing comes from {next} on")),
                _ => {
                    misses += 1;
                    continue;
                }
            };
            let mut wrong = None;
            let walked = chunk.for_each(&mut buffer, |record| {
                let offset = record.offset.0;
                let known = record.value.and_then(|value| parse(name, value));
                match known {
                    Some(known) if offset >= next && !found.contains_key(&offset) => {
                        found.insert(offset, known);
                    }
                    Some(_) => wrong = Some(format!("offset {offset} comes again, or after a later one")),
                    None => wrong = Some(format!("the record at {offset} was never sent")),
                }
                ControlFlow::Continue(())
            });
            walked.map_err(|error| error.to_string())?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            next = chunk.next.0;
        }
        Ok(found)
    }

    /// Appends one more batch, which must follow the last one.
    async fn write(&self, name: &str, end: i64) {
        let mut last = Refusal::NoLeader;
        for _ in 0..TRIES {
            let number = self.books.lock().send(name, Visibility::Committed);
            match produce(&self.cluster, name, number, None, None).await {
                Ok(offset) if offset >= end => return,
                Ok(offset) => return self.wrong(format!("{name}-0: offset {offset} is given away again")),
                Err(refusal) => last = refusal,
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.wrong(format!("{name}-0 takes no records after the start: {last}"));
    }

    /// Checks that created topics exist and deleted ones do not.
    async fn topics(&self) {
        let Ok(metadata) = self.cluster.refresh_all().await else {
            return self.wrong("the topics cannot be listed".to_owned());
        };
        let mut books = self.books.lock();
        let lost: Vec<_> =
            books.created.iter().filter(|name| !metadata.topics.contains_key(*name)).cloned().collect();
        let back: Vec<_> =
            books.deleted.iter().filter(|name| metadata.topics.contains_key(*name)).cloned().collect();
        lost.iter().for_each(|name| books.violation(format!("the created topic {name} is gone")));
        back.iter().for_each(|name| books.violation(format!("the deleted topic {name} is back")));
    }
}

/// The violations in the records of a topic.
fn check(
    name: &str,
    keeps: Retention,
    sheet: &Sheet,
    found: &FoundRecords,
    (start, end): (i64, i64),
) -> Vec<String> {
    let mut wrong = Vec::new();
    let must = sheet.must_be_there(keeps);
    let lost: Vec<_> = must
        .iter()
        .filter(|(offset, number, record)| found.get(offset) != Some(&(*number, *record)))
        .collect();
    if let Some((offset, number, record)) = lost.first() {
        wrong.push(format!(
            "{name}-0: {} of {} acknowledged records are lost or elsewhere, the first is {number}/{record} at {offset}, \
             where {:?} is (log from {start} to {end})",
            lost.len(),
            must.len(),
            found.get(offset)
        ));
    }
    let mut seen = BTreeSet::new();
    let mut last = None;
    for (offset, record) in found {
        if !seen.insert(*record) {
            wrong.push(format!("{name}-0: {record:?} is there twice, again at {offset}"));
            break;
        }
        // Unacknowledged batches may be after later ones; all other batches keep their order.
        if last.is_some_and(|last| last >= *record) && name != LEDGER {
            wrong.push(format!("{name}-0: {record:?} at {offset} follows {last:?}"));
            break;
        }
        last = Some(*record);
    }
    if keeps != Retention::LastOfKeys && name != LEDGER {
        let (from, count) = (found.keys().next().copied().unwrap_or(end), found.len());
        if from != start || i64::try_from(count).unwrap_or(0) != end - start {
            wrong.push(format!("{name}-0: {count} records from {from} on, in a log from {start} to {end}"));
        }
    }
    if start < sheet.delete_answered {
        wrong.push(format!(
            "{name}-0 starts at {start}, although the records before {} were deleted",
            sheet.delete_answered
        ));
    }
    wrong
}

/// The violations in the records that are read as committed.
fn check_committed(sheet: &Sheet, found: &FoundRecords) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, sent) in (0..).zip(&sheet.sent) {
        let Some(offset) = sent.offset else { continue };
        let seen = (0..RECORDS)
            .filter(|record| {
                let at = offset + i64::try_from(*record).unwrap_or(0);
                found.get(&at) == Some(&(number, *record))
            })
            .count() as u64;
        let fits = match sent.fate {
            Visibility::Committed => seen == RECORDS,
            Visibility::Aborted => seen == 0,
            Visibility::Unknown => seen == RECORDS || seen == 0,
        };
        if !fits {
            let fate = sent.fate;
            wrong.push(format!(
                "{LEDGER}-0: {seen} of {RECORDS} records of batch {number} at {offset}, {fate:?}, are read as committed"
            ));
            return wrong;
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_trial::books::SentBatch;

    /// Batches at these offsets; 0 for an unacknowledged batch.
    fn sheet(offsets: &[Option<i64>], fate: Visibility) -> Sheet {
        Sheet {
            sent: offsets.iter().map(|&offset| SentBatch { offset, fate }).collect(),
            delete_requested: 3,
            delete_answered: 3,
        }
    }

    /// The consecutive records of these batches, from an offset on.
    fn found(start: i64, batches: &[u64]) -> FoundRecords {
        let records = batches.iter().flat_map(|&number| (0..RECORDS).map(move |record| (number, record)));
        (start..).zip(records).collect()
    }

    #[test]
    fn a_topic_as_it_should_be_passes() {
        let sheet = sheet(&[Some(0), Some(3), None, Some(9)], Visibility::Committed);
        assert_eq!(check("t", Retention::Undeleted, &sheet, &found(3, &[1, 2, 3]), (3, 12)), [""; 0]);
        assert_eq!(check_committed(&sheet, &found(0, &[0, 1, 2, 3])), [""; 0]);
    }

    #[test]
    fn each_way_to_break_a_promise_is_found() {
        let sheet = sheet(&[Some(0), Some(3), None, Some(6)], Visibility::Committed);
        let cases: [(i64, &[u64], &str); 5] = [
            (3, &[1], "3 of 6 acknowledged records are lost"),
            (3, &[3, 1], "acknowledged records are lost or elsewhere"),
            (3, &[1, 3, 3], "is there twice"),
            (6, &[3], "3 of 6 acknowledged records are lost"),
            (0, &[0, 1, 3], "although the records before 3 were deleted"),
        ];
        for (start, batches, told) in cases {
            let end = start + i64::try_from(batches.len()).unwrap_or(0) * 3;
            let wrong = check("t", Retention::Undeleted, &sheet, &found(start, batches), (start, end));
            assert!(wrong.iter().any(|what| what.contains(told)), "{batches:?} from {start}: {wrong:?}");
        }
        let hole = check("t", Retention::Undeleted, &sheet, &found(3, &[1, 3]), (3, 12));
        assert!(
            hole.iter().any(|what| what.contains("6 records from 3 on, in a log from 3 to 12")),
            "{hole:?}"
        );
    }

    #[test]
    fn aborted_records_that_are_shown_are_found() {
        let shown = check_committed(&sheet(&[Some(0)], Visibility::Aborted), &found(0, &[0]));
        assert!(shown[0].contains("3 of 3 records of batch 0 at 0, Aborted"), "{shown:?}");
        let hidden = check_committed(&sheet(&[Some(0)], Visibility::Committed), &FoundRecords::new());
        assert!(hidden[0].contains("0 of 3 records of batch 0 at 0, Committed"), "{hidden:?}");
    }

    #[test]
    fn only_what_may_expire_may_be_gone() {
        let offsets: Vec<_> = (0..10).map(|number| Some(number * 3)).collect();
        let sheet = sheet(&offsets, Visibility::Committed);
        let newest: Vec<u64> = (5..10).collect();
        assert_eq!(check("t", Retention::Newest, &sheet, &found(15, &newest), (15, 30)), [""; 0]);
        assert!(!check("t", Retention::Newest, &sheet, &found(18, &newest[1..]), (18, 30)).is_empty());
        // The last record of each of the seven keys is in the last three batches.
        assert_eq!(check("t", Retention::LastOfKeys, &sheet, &found(21, &[7, 8, 9]), (0, 30)).len(), 1);
    }
}
