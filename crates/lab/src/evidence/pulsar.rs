//! Evidence from a cluster of Apache Pulsar: the entries of ledgers that were acknowledged against those that
//! the broker has, its count of messages, and the records read back.
//!
//! The lab's subscription [`PULSAR_SUBSCRIPTION`], made before the first record, keeps all records, and reads
//! them back. It acknowledges nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::TopicPartition;
use thalweg_pulsar::{
    Client, ClientOptions, ConsumeError, Consumer, ConsumerOptions, InitialPosition, Message, MessageId,
    TopicName,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::check::{READERS_MAX, STALLED, compare, partly_read};
use super::claims::consumed;
use super::{EvidenceError, ReadBack, ReadStalled};
use crate::result::{Check, Evidence, LedgerEvidence, PartitionEvidence};
use crate::target::PulsarAdmin;
use crate::worker::Report;
use crate::worker::seen::Checker;
use crate::worker::stamp::ExpectedValues;
use crate::workload::RecordSpec;

/// The subscription that keeps the records of the lab's topics.
pub const PULSAR_SUBSCRIPTION: &str = "thalweg-lab-evidence";

/// Time for the broker's counts to reach the acknowledged records.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(200);
/// Messages ahead of a reader.
const QUEUE: u32 = 5000;
/// Number of unreadable entries described as text.
const BROKEN_MAX: usize = 5;

/// The claims of a repetition on a cluster of Pulsar.
#[derive(Clone, Copy, Debug)]
pub struct PulsarClaim<'a> {
    pub admin: &'a PulsarAdmin,
    pub service_url: &'a str,
    /// Facts of the target: quorums, and whether the journal is synced.
    pub facts: &'a BTreeMap<String, String>,
    pub topics: &'a [String],
    /// Partitions of each topic.
    pub partitions: u32,
    /// The requested number of replicas.
    pub replication_factor: u16,
    pub producers: &'a [Report],
    pub consumers: &'a [Report],
    pub records: &'a RecordSpec,
    pub seed: u64,
    pub read_back: &'a ReadBack,
}

/// Gathers evidence after the producers have ended. Also returns what it does not prove, as text.
pub async fn collect_pulsar(claim: PulsarClaim<'_>) -> Result<(Evidence, Vec<String>), EvidenceError> {
    let acknowledged: u64 = claim.producers.iter().map(|report| report.acknowledged).sum();
    let (partitions, stored_bytes) = await_count(&claim, acknowledged).await?;
    let in_log = partitions.iter().map(super::log::records).sum();
    let copies = Copies::of(claim.facts);
    let mut evidence = Evidence {
        acknowledged,
        in_log,
        bytes_on_disk: stored_bytes * u64::from(copies.write.unwrap_or(1)),
        in_sync_replicas_min: copies.ack.unwrap_or(1),
        replication_factor: claim.replication_factor,
        fsync_policy: durability(claim.facts),
        partitions,
        replicas: None,
        check: None,
        not_read_back: None,
        faults: Vec::new(),
    };
    let mut unproven = vec![
        "Not checked on Pulsar: the copies of entries on each bookie, and whether the journal was synced as set; its brokers do \
         not tell"
            .to_owned(),
    ];
    judge(&claim, &copies, &mut evidence);
    let most = match claim.read_back {
        ReadBack::No(why) => {
            evidence.not_read_back = Some(why.clone());
            unproven.push("The entries of ledgers were counted, and not read".to_owned());
            return Ok((evidence, unproven));
        }
        ReadBack::Within(most) => Some(*most),
        ReadBack::Whole => None,
    };
    let (mut check, mut faults) = read_back(&claim, &evidence.partitions, most).await?;
    if !check.whole {
        check.lost = acknowledged.saturating_sub(in_log);
        evidence.not_read_back = most.map(|most| partly_read(&check, in_log, most));
    }
    evidence.check = Some(check);
    evidence.faults.append(&mut faults);
    Ok((evidence, unproven))
}

/// Interval in which a bookie syncs its journal, if it does not do so before acknowledgements.
const JOURNAL_FLUSH: &str = "journalPageCacheFlushIntervalMSec";
/// The bookie's default.
const JOURNAL_FLUSH_MS: &str = "1000";

/// The copies of each entry, as far as they are known.
struct Copies {
    ack: Option<u32>,
    write: Option<u32>,
}

impl Copies {
    fn of(facts: &BTreeMap<String, String>) -> Copies {
        let fact = |names: [&str; 2]| names.iter().find_map(|name| facts.get(*name)?.parse().ok());
        Copies {
            ack: fact(["ackQuorum", "managedLedgerDefaultAckQuorum"]),
            write: fact(["writeQuorum", "managedLedgerDefaultWriteQuorum"]),
        }
    }
}

/// What an acknowledgement means, and when records are synced to disk, as text.
fn durability(facts: &BTreeMap<String, String>) -> String {
    let copies = Copies::of(facts);
    let number = |count: Option<u32>| count.map_or_else(|| "an unknown number".to_owned(), |n| n.to_string());
    let quorum = format!("acknowledged by {} of {} bookies", number(copies.ack), number(copies.write));
    match facts.get("journalSyncData").map(String::as_str) {
        Some("true") => format!("before each acknowledgement (journalSyncData=true), {quorum}"),
        Some(_) => {
            let interval = facts.get(JOURNAL_FLUSH).map_or(JOURNAL_FLUSH_MS, String::as_str);
            format!(
                "every {interval} ms while entries arrive (journalSyncData=false, {JOURNAL_FLUSH}={interval}): acknowledged records \
                 are in the page cache of the journal, {quorum}"
            )
        }
        None => format!("as the bookies' journalSyncData says, which their brokers do not tell; {quorum}"),
    }
}

/// The partitions and their stored bytes, once the broker has counted all acknowledged records, or at the
/// time limit.
async fn await_count(
    claim: &PulsarClaim<'_>,
    acknowledged: u64,
) -> Result<(Vec<PartitionEvidence>, u64), EvidenceError> {
    let deadline = Instant::now() + AGREEMENT_TIMEOUT;
    loop {
        let found = look(claim).await?;
        let records: u64 = found.0.iter().map(super::log::records).sum();
        if records >= acknowledged || Instant::now() >= deadline {
            return Ok(found);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(claim: &PulsarClaim<'_>) -> Result<(Vec<PartitionEvidence>, u64), EvidenceError> {
    let acknowledged = acknowledged(claim.producers);
    let (mut found, mut stored_bytes) = (Vec::new(), 0);
    for topic in claim.topics {
        for partition in 0..claim.partitions {
            let stats = claim.admin.partition_stats(topic, partition).await?;
            stored_bytes += stats.storage_size;
            let partition_index = i32::try_from(partition).unwrap_or(i32::MAX);
            let ledgers = claim.admin.ledgers(topic, partition).await?;
            let ledgers = ledgers.iter().map(|stored| {
                let key = (topic.as_str(), partition_index, stored.ledger);
                let (entries, records, last) = acknowledged.get(&key).copied().unwrap_or((0, 0, -1));
                LedgerEvidence {
                    ledger: stored.ledger,
                    entries: stored.entries,
                    acknowledged_entries: entries,
                    acknowledged_records: records,
                    last_acknowledged_entry: last,
                }
            });
            found.push(PartitionEvidence {
                topic: topic.clone(),
                partition: partition_index,
                start_offset: 0,
                end_offset: i64::try_from(stats.msg_in_counter).unwrap_or(i64::MAX),
                replicas: Vec::new(),
                ledgers: ledgers.collect(),
            });
        }
    }
    Ok((found, stored_bytes))
}

/// Acknowledged entries and records of each ledger, and the last entry.
fn acknowledged(producers: &[Report]) -> BTreeMap<(&str, i32, i64), (u64, u64, i64)> {
    let mut sums = BTreeMap::new();
    for one in producers.iter().flat_map(|report| &report.ledgers) {
        let sum = sums.entry((one.topic.as_str(), one.partition, one.ledger)).or_insert((0, 0, -1));
        *sum = (sum.0 + one.entries, sum.1 + one.records, one.last_entry.max(sum.2));
    }
    sums
}

/// Adds the contradictions to the claim that nothing was lost.
fn judge(claim: &PulsarClaim<'_>, copies: &Copies, evidence: &mut Evidence) {
    let mut faults = Vec::new();
    let (in_log, acknowledged) = (evidence.in_log, evidence.acknowledged);
    let sent: u64 = claim.producers.iter().map(|report| report.sent).sum();
    if in_log < acknowledged {
        let missing = acknowledged - in_log;
        faults.push(format!(
            "{acknowledged} records were acknowledged, but the broker has counted {in_log}: {missing} are missing"
        ));
    } else if in_log > sent {
        faults.push(format!(
            "{sent} records were sent, but the broker has counted {} more: some are duplicated, or others wrote to the topics",
            in_log - sent
        ));
    }
    if let Some(write) = copies.write.filter(|write| *write < u32::from(claim.replication_factor)) {
        faults.push(format!(
            "Each entry is on {write} bookies (write quorum) instead of {}",
            claim.replication_factor
        ));
    }
    faults.extend(ledger_faults(claim.producers, &evidence.partitions));
    consumed(claim.consumers, &mut faults);
    evidence.faults.append(&mut faults);
}

/// Acknowledged entries that no ledger has.
fn ledger_faults(producers: &[Report], partitions: &[PartitionEvidence]) -> Vec<String> {
    let stored: BTreeMap<(&str, i32, i64), i64> = partitions
        .iter()
        .flat_map(|of| {
            of.ledgers.iter().map(|one| ((of.topic.as_str(), of.partition, one.ledger), one.entries))
        })
        .collect();
    let mut faults = Vec::new();
    for ((topic, partition, ledger), (entries, records, last)) in acknowledged(producers) {
        let have = stored.get(&(topic, partition, ledger)).copied().unwrap_or(0);
        if last >= have || entries > have.cast_unsigned() {
            faults.push(format!(
                "{topic}-partition-{partition}: {entries} entries of the ledger {ledger}, up to {last}, were acknowledged with \
                 {records} records, but it has {have}"
            ));
        }
    }
    faults
}

/// Reads all partitions from the start, or for a limited time, and compares the records with the reports.
async fn read_back(
    claim: &PulsarClaim<'_>,
    partitions: &[PartitionEvidence],
    most: Option<Duration>,
) -> Result<(Check, Vec<String>), EvidenceError> {
    let until = most.map(|most| Instant::now() + most);
    let expected = Arc::new(ExpectedValues::new(claim.records, claim.seed)?);
    let client = Client::connect(claim.service_url, ClientOptions::default()).await.map_err(Box::new)?;
    let mut left: Vec<&PartitionEvidence> = partitions.iter().filter(|one| one.end_offset > 0).collect();
    let mut readings: JoinSet<Result<Reading, EvidenceError>> = JoinSet::new();
    let (mut checkers, mut broken, mut whole) = (Vec::new(), Vec::new(), true);
    loop {
        while readings.len() < READERS_MAX
            && let Some(partition) = left.pop()
        {
            let reading = Reading {
                place: TopicPartition::new(partition.topic.as_str(), partition.partition),
                checker: Checker::new(Arc::clone(&expected)),
                entries: BTreeSet::new(),
                acknowledged: partition.ledgers.iter().map(|one| one.acknowledged_entries).sum(),
                broken: Vec::new(),
                whole: true,
                until,
            };
            readings.spawn(reading.run(client.clone()));
        }
        let Some(read) = readings.join_next().await else { break };
        let reading = read.map_err(|error| EvidenceError::Thread(error.into()))??;
        whole &= reading.whole;
        broken.extend(reading.broken);
        checkers.push(reading.checker);
    }
    let read = checkers.iter().map(Checker::read).sum();
    let (check, mut faults) = compare(claim.producers, &Checker::seen(checkers), read, whole, true);
    faults.extend(broken);
    Ok((check, faults))
}

/// The reading of a partition.
struct Reading {
    place: TopicPartition,
    checker: Checker,
    /// The entries that were read.
    entries: BTreeSet<(i64, i64)>,
    /// Number of acknowledged entries.
    acknowledged: u64,
    broken: Vec<String>,
    /// True if it finished in time.
    whole: bool,
    until: Option<Instant>,
}

impl Reading {
    async fn run(mut self, client: Client) -> Result<Reading, EvidenceError> {
        let topic = TopicName::parse(&self.place.topic).map_err(|error| Box::new(error.into()))?;
        let name = topic.partition(u32::try_from(self.place.partition).unwrap_or(0));
        let options = ConsumerOptions {
            initial_position: InitialPosition::Earliest,
            receiver_queue_size: QUEUE,
            ..ConsumerOptions::default()
        };
        let subscribed = Consumer::subscribe(&client, name.as_str(), PULSAR_SUBSCRIPTION, options).await;
        let mut consumer = subscribed.map_err(Box::new)?;
        let last = consumer.last_message_id().await?;
        self.checker.enter(&self.place);
        let mut at = Instant::now();
        loop {
            if self.until.is_some_and(|until| until <= Instant::now()) {
                self.whole = false;
                break;
            }
            match tokio::time::timeout(POLL, consumer.next()).await {
                Ok(Ok(message)) => {
                    at = Instant::now();
                    if self.see(&message, last) {
                        break;
                    }
                    while let Ok(Some(message)) = consumer.try_next() {
                        if self.see(&message, last) {
                            return Ok(self.end());
                        }
                    }
                }
                Ok(Err(ConsumeError::Unreadable(entry))) => {
                    if self.broken.len() < BROKEN_MAX {
                        self.broken.push(format!("The log contains unreadable data: {entry}"));
                    }
                    if (entry.id.ledger, entry.id.entry) >= (last.ledger, last.entry) {
                        break;
                    }
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_) if at.elapsed() >= STALLED => {
                    let stalled =
                        ReadStalled { waited_s: at.elapsed().as_secs(), left: 1, first: self.place.clone() };
                    self.broken.push(stalled.to_string());
                    break;
                }
                Err(_) => {}
            }
        }
        Ok(self.end())
    }

    /// Checks a message. True for the last one of the partition.
    fn see(&mut self, message: &Message, last: MessageId) -> bool {
        let id = message.id();
        self.entries.insert((id.ledger, id.entry));
        self.checker.see(message.payload());
        (id.ledger, id.entry) >= (last.ledger, last.entry) && id.batch_index + 1 >= id.batch_size
    }

    fn end(mut self) -> Reading {
        let read = self.entries.len() as u64;
        if self.whole && read < self.acknowledged {
            self.broken.push(format!(
                "{}: {} entries were acknowledged, but {read} could be read",
                self.place, self.acknowledged
            ));
        }
        self.entries.clear();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::AcknowledgedLedger;

    fn report(ledger: i64, entries: u64, last_entry: i64) -> Report {
        let one = AcknowledgedLedger {
            topic: "t".to_owned(),
            partition: 1,
            ledger,
            entries,
            records: 10 * entries,
            last_entry,
        };
        Report { ledgers: vec![one], ..Report::default() }
    }

    #[test]
    fn acknowledged_entries_must_be_in_their_ledger() {
        let partition = |entries| PartitionEvidence {
            topic: "t".to_owned(),
            partition: 1,
            ledgers: vec![LedgerEvidence { ledger: 7, entries, ..LedgerEvidence::default() }],
            ..PartitionEvidence::default()
        };
        let producers = [report(7, 4, 8), report(7, 5, 7)];
        assert_eq!(ledger_faults(&producers, &[partition(9)]), [""; 0]);
        let faults = ledger_faults(&producers, &[partition(8)]);
        assert!(faults.len() == 1 && faults[0].contains("9 entries of the ledger 7, up to 8"), "{faults:?}");
        let faults = ledger_faults(&[report(8, 1, 0)], &[partition(9)]);
        assert!(faults[0].ends_with("but it has 0"), "{faults:?}");
    }

    #[test]
    fn durability_has_what_is_known() {
        let facts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let quorums = [("managedLedgerDefaultAckQuorum", "2"), ("managedLedgerDefaultWriteQuorum", "3")];
        let mut known = quorums.to_vec();
        known.push(("journalSyncData", "true"));
        let expected = "before each acknowledgement (journalSyncData=true), acknowledged by 2 of 3 bookies";
        assert_eq!(durability(&facts(&known)), expected);
        assert!(durability(&facts(&quorums)).contains("do not tell; acknowledged by 2 of 3 bookies"));
        let lazy = durability(&facts(&[("journalSyncData", "false")]));
        assert!(lazy.starts_with("every 1000 ms") && lazy.contains("page cache"), "{lazy}");
        let often = [("journalSyncData", "false"), (JOURNAL_FLUSH, "50")];
        assert!(durability(&facts(&often)).contains("journalPageCacheFlushIntervalMSec=50"));
    }
}
