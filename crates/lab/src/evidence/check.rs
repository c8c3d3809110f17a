//! Reads records back with new consumers, and compares them with the producers' reports.
//!
//! There is a consumer per processor, with its own partitions. If time is limited, all partitions are read
//! from their start until it is over: records read are checked in full, and losses follow from the offsets
//! alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use thalweg_client::{Cluster, Consumer, ConsumerConfig, OffsetReset, PollEvent, StartAt, TopicPartition};
use thalweg_record::{DecompressBuffer, Offset};
use tokio::time::Instant;

use super::{Claim, EvidenceError, ReadStalled};
use crate::result::{Check, PartitionEvidence};
use crate::worker::seen::{Checker, FOREIGN};
use crate::worker::stamp::ExpectedValues;
use crate::worker::{Report, SeenRecords};

const POLL: Duration = Duration::from_millis(200);
/// Time without a record after which reading counts as stalled.
pub(super) const STALLED: Duration = Duration::from_secs(30);
/// Number of broken batches described as text.
const BROKEN_MAX: usize = 5;

/// Maximum number of consumers: more only wait for the brokers.
pub(super) const READERS_MAX: usize = 4;

/// Why not all records were read back: the time for it was limited.
pub(super) fn partly_read(check: &Check, in_log: u64, most: Duration) -> String {
    let share = check.read as f64 / in_log.max(1) as f64 * 100.0;
    format!(
        "{share:.0} % of the records were read back in {:.1} s: verify = \"whole\" reads all",
        most.as_secs_f64()
    )
}

/// Reads partitions from their first offset to their end, or for a limited time, on separate threads.
pub(super) async fn read_back(
    claim: &Claim<'_>,
    partitions: &[PartitionEvidence],
    most: Option<Duration>,
) -> Result<(Check, Vec<String>), EvidenceError> {
    let until = most.map(|most| Instant::now() + most);
    let stamped = Arc::new(ExpectedValues::new(claim.records, claim.seed)?);
    let metadata = claim.cluster.metadata();
    let bootstrap: Vec<String> = metadata.brokers.values().map(|broker| broker.address()).collect();
    let (connector, options) = (claim.cluster.connector().clone(), claim.cluster.options().clone());
    // An interrupt drops this future, and the readers' stop flag with it.
    let waiting = Arc::new(());
    let mut readings = Vec::new();
    for ends in shares(partitions) {
        let (stamped, connector) = (Arc::clone(&stamped), connector.clone());
        let (bootstrap, options) = (bootstrap.clone(), options.clone());
        let waited_for = Arc::downgrade(&waiting);
        readings.push(tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(EvidenceError::Thread)?.block_on(async {
                let cluster = Cluster::connect_by(connector, &bootstrap, &options).await?;
                let checker = Checker::new(stamped);
                let reading = Reading { checker, broken: Vec::new(), whole: true, until, waited_for };
                reading.run(cluster, ends).await
            })
        }));
    }
    let (mut checkers, mut broken, mut whole) = (Vec::new(), Vec::new(), true);
    for reading in readings {
        let reading = reading.await.map_err(|error| EvidenceError::Thread(error.into()))??;
        whole &= reading.whole;
        broken.extend(reading.broken);
        checkers.push(reading.checker);
    }
    drop(waiting);
    let read = checkers.iter().map(Checker::read).sum();
    let seen = Checker::seen(checkers);
    let (mut check, mut faults) = compare(claim.producers, &seen, read, whole, claim.keeps_order);
    if !whole {
        let in_log: u64 = partitions.iter().map(super::log::records).sum();
        check.lost = claim.acknowledged().saturating_sub(in_log);
    }
    faults.extend(broken);
    Ok((check, faults))
}

/// A partition with its first and end offset.
type Stretch = (TopicPartition, Offset, Offset);

/// The readers' partitions, longest first, so that all have about the same amount.
fn shares(partitions: &[PartitionEvidence]) -> Vec<Vec<Stretch>> {
    let mut stretches: Vec<&PartitionEvidence> =
        partitions.iter().filter(|partition| partition.end_offset > partition.start_offset).collect();
    stretches.sort_by_key(|partition| std::cmp::Reverse(super::log::records(partition)));
    let readers = std::thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
    let mut shares = vec![Vec::new(); readers.min(stretches.len())];
    for (number, partition) in stretches.into_iter().enumerate() {
        let at = TopicPartition::new(partition.topic.as_str(), partition.partition);
        let reader = number % readers;
        shares[reader].push((at, Offset(partition.start_offset), Offset(partition.end_offset)));
    }
    shares
}

struct Reading {
    checker: Checker,
    broken: Vec<String>,
    /// True if it finished in time.
    whole: bool,
    until: Option<Instant>,
    /// Alive while the result is wanted.
    waited_for: Weak<()>,
}

impl Reading {
    async fn run(mut self, cluster: Cluster, ends: Vec<Stretch>) -> Result<Reading, EvidenceError> {
        let config = ConsumerConfig {
            offset_reset: OffsetReset::None,
            partition_fetch_bytes_max: 4 << 20,
            create_topics: false,
            connection: cluster.options().clone(),
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(cluster, config);
        let starts = ends.iter().map(|(at, start, _)| (at.clone(), StartAt::Offset(*start)));
        consumer.assign(starts.collect()).await?;
        let mut left: BTreeMap<TopicPartition, Offset> =
            ends.into_iter().map(|(at, _, end)| (at, end)).collect();
        let mut buffer = DecompressBuffer::default();
        let mut last = Instant::now();
        while let Some((first, _)) = left.first_key_value() {
            let is_over = self.until.is_some_and(|until| until <= Instant::now());
            if is_over || self.waited_for.strong_count() == 0 {
                self.whole = false;
                return Ok(self);
            }
            match consumer.poll(POLL).await? {
                PollEvent::Chunk(chunk) => {
                    last = Instant::now();
                    // Records after the end offset are not part of the claim.
                    let Some(&end) = left.get(&chunk.at) else { continue };
                    self.checker.enter(&chunk.at);
                    let read = chunk.for_each(&mut buffer, |record| {
                        if record.offset >= end {
                            return ControlFlow::Break(());
                        }
                        self.checker.see(record.value.unwrap_or_default());
                        ControlFlow::Continue(())
                    });
                    if let Err(error) = read
                        && self.broken.len() < BROKEN_MAX
                    {
                        self.broken.push(format!("The log contains unreadable data: {error}"));
                    }
                    if chunk.next >= end {
                        left.remove(&chunk.at);
                    }
                }
                _ if last.elapsed() >= STALLED => {
                    // End offsets that cannot be read are a broker's fault: judge what was read.
                    let waited_s = last.elapsed().as_secs();
                    let stalled = ReadStalled { waited_s, left: left.len(), first: first.clone() };
                    self.broken.push(stalled.to_string());
                    return Ok(self);
                }
                PollEvent::Assigned(_) | PollEvent::Revoked(_) | PollEvent::Lost(_) | PollEvent::Nothing => {}
            }
        }
        Ok(self)
    }
}

/// Compares records with the producers' reports. Losses are known only if the whole log was read. Records out
/// of order are counted, and a fault only where the producers promise their order.
pub(super) fn compare(
    producers: &[Report],
    seen: &[SeenRecords],
    read: u64,
    whole: bool,
    keeps_order: bool,
) -> (Check, Vec<String>) {
    let mut check = Check { read, whole, ..Check::default() };
    let mut faults = Vec::new();
    let of: BTreeMap<u32, &SeenRecords> = seen.iter().map(|seen| (seen.producer, seen)).collect();
    let mut known = Vec::new();
    for order in producers.iter().flat_map(|report| &report.unacknowledged) {
        known.push(order.producer);
        let ranges: &[(u64, u64)] = of.get(&order.producer).map_or(&[], |seen| &seen.ranges);
        if whole {
            let acknowledged = complement(&order.ranges, order.sent);
            let missing = subtract(&acknowledged, ranges);
            let lost = length(&missing);
            check.lost += lost;
            check.unacknowledged += length(&order.ranges) - length(&subtract(&order.ranges, ranges));
            if let Some(&(begin, end)) = missing.first() {
                faults.push(format!(
                    "{lost} acknowledged records of producer {} are not in the log, the first of them {begin} to {}",
                    order.producer,
                    end - 1
                ));
            }
        }
        let unsent = length(&subtract(ranges, &[(0, order.sent)]));
        if unsent > 0 {
            check.damaged += unsent;
            faults.push(format!("{unsent} records of producer {} were never sent", order.producer));
        }
    }
    for seen in seen {
        check.duplicated += seen.duplicates;
        check.reordered += seen.reordered;
        check.damaged += seen.damaged;
        let whose = match seen.producer {
            FOREIGN => "of another run, or with a damaged stamp,".to_owned(),
            producer => format!("of producer {producer}"),
        };
        if seen.damaged > 0 {
            faults.push(format!("{} records {whose} are not what was sent", seen.damaged));
        }
        if seen.duplicates > 0 {
            faults.push(format!("{} records {whose} are duplicated", seen.duplicates));
        }
        if seen.reordered > 0 && keeps_order {
            faults.push(format!("{} records {whose} are out of order in their partition", seen.reordered));
        }
        if seen.producer != FOREIGN && !known.contains(&seen.producer) {
            let records = length(&seen.ranges);
            check.damaged += records;
            faults.push(format!("{records} records are of an unknown producer {}", seen.producer));
        }
    }
    (check, faults)
}

fn length(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(begin, end)| end - begin).sum()
}

/// The complement of ranges, from 0 to before `end`.
fn complement(ranges: &[(u64, u64)], end: u64) -> Vec<(u64, u64)> {
    subtract(&[(0, end)], ranges)
}

/// The part of `from` that is not in `other`; both sorted and disjoint.
fn subtract(from: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut others = other.iter().copied().peekable();
    for &(mut begin, end) in from {
        while begin < end {
            while others.next_if(|&(_, other_end)| other_end <= begin).is_some() {}
            match others.peek() {
                Some(&(other_begin, other_end)) if other_begin < end => {
                    if begin < other_begin {
                        left.push((begin, other_begin));
                    }
                    begin = other_end;
                }
                _ => {
                    left.push((begin, end));
                    begin = end;
                }
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Order;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;

    fn report(order: Order) -> Report {
        Report { unacknowledged: vec![order], ..Report::default() }
    }

    #[test]
    fn ranges_are_subtracted_as_sets_are() {
        let mut random = SmallRng::seed_from_u64(21);
        for round in 0..500 {
            let [a, b] = [0, 1].map(|_| {
                let mut ranges = Vec::new();
                let mut at = random.random_range(0..4);
                while at < 60 {
                    let end = at + random.random_range(1..8);
                    ranges.push((at, end));
                    at = end + random.random_range(1..8);
                }
                ranges
            });
            let all = |ranges: &[(u64, u64)]| -> BTreeSet<u64> {
                ranges.iter().flat_map(|&(begin, end)| begin..end).collect()
            };
            let expected: BTreeSet<u64> = all(&a).difference(&all(&b)).copied().collect();
            assert_eq!(all(&subtract(&a, &b)), expected, "round {round}: {a:?} without {b:?}");
            assert_eq!(length(&subtract(&a, &b)), expected.len() as u64, "round {round}");
        }
    }

    #[test]
    fn what_was_acknowledged_and_is_not_there_is_lost() {
        let order = Order { producer: 4, sent: 100, ranges: vec![(10, 20), (90, 100)] };
        // 12..15 were not acknowledged but are present; 30..33 were but are not.
        let ranges = vec![(0, 10), (12, 15), (20, 30), (33, 90)];
        let seen = SeenRecords { producer: 4, ranges, ..SeenRecords::default() };
        let (check, faults) = compare(&[report(order)], &[seen], 80, true, true);
        assert_eq!(check, Check { read: 80, whole: true, lost: 3, unacknowledged: 3, ..Check::default() });
        assert_eq!(
            faults,
            ["3 acknowledged records of producer 4 are not in the log, the first of them 30 to 32"]
        );
    }

    #[test]
    fn partial_reads_report_no_losses() {
        let order = Order { producer: 4, sent: 100, ranges: Vec::new() };
        let seen = SeenRecords {
            producer: 4,
            ranges: vec![(0, 10), (12, 15)],
            duplicates: 1,
            ..SeenRecords::default()
        };
        let (check, faults) = compare(&[report(order)], &[seen], 14, false, true);
        assert_eq!(check, Check { read: 14, duplicated: 1, ..Check::default() });
        assert_eq!(faults, ["1 records of producer 4 are duplicated"]);
    }

    #[test]
    fn readers_have_about_as_much_each_and_nothing_twice() {
        let partition = |partition, end_offset| PartitionEvidence {
            topic: "t".to_owned(),
            partition,
            end_offset,
            ..PartitionEvidence::default()
        };
        let partitions: Vec<PartitionEvidence> = (0..9).map(|n| partition(n, i64::from(n) * 10)).collect();
        let shares = shares(&partitions);
        let mut dealt: Vec<i32> = shares.iter().flatten().map(|(at, ..)| at.partition).collect();
        dealt.sort_unstable();
        assert_eq!(dealt, (1..9).collect::<Vec<i32>>(), "an empty partition has nothing to read");
        assert!(shares.iter().all(|share| !share.is_empty() && share.len() <= 8usize.div_ceil(shares.len())));
    }

    #[test]
    fn a_producer_of_which_nothing_is_there_lost_everything() {
        let (check, faults) =
            compare(&[report(Order { producer: 0, sent: 7, ranges: Vec::new() })], &[], 0, true, true);
        assert_eq!((check.lost, faults.len()), (7, 1));
    }

    #[test]
    fn what_is_there_and_was_never_sent_is_damage() {
        let order = Order { producer: 0, sent: 5, ranges: Vec::new() };
        let seen = [
            SeenRecords { producer: 0, ranges: vec![(0, 6)], duplicates: 2, reordered: 1, damaged: 0 },
            SeenRecords { producer: 3, ranges: vec![(0, 2)], ..SeenRecords::default() },
            SeenRecords { producer: FOREIGN, damaged: 4, ..SeenRecords::default() },
        ];
        let producers = [report(order)];
        let (check, faults) = compare(&producers, &seen, 14, true, true);
        assert_eq!(
            check,
            Check {
                read: 14,
                whole: true,
                lost: 0,
                duplicated: 2,
                reordered: 1,
                damaged: 7,
                unacknowledged: 0
            }
        );
        assert_eq!(faults.len(), 5, "{faults:?}");
        // Producers that promise no order are not contradicted by another one.
        let (same, fewer) = compare(&producers, &seen, 14, true, false);
        assert_eq!((same.reordered, fewer.len()), (1, 4), "{fewer:?}");
    }
}
