//! Final checks of a quiet cluster: every acknowledged record is at its acknowledged offset, each producer's
//! records exist once and in order, reads match the log, and replicas are identical.

use crate::history::{AcknowledgedRun, Name, RecordedEvents};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thalweg_log::disk::MemoryDisk;
use thalweg_record::{DecompressBuffer, batches, verify};

/// The log of one replica: the concatenated bytes of its segments.
pub fn log_of(disk: &MemoryDisk, topic: &str, partition: i32) -> Vec<u8> {
    files_of(disk, topic, partition, "log")
}

/// The concatenated transaction indexes of one replica. Replicas need not roll segments at the same offsets.
pub fn txn_indexes_of(disk: &MemoryDisk, topic: &str, partition: i32) -> Vec<u8> {
    files_of(disk, topic, partition, "txnindex")
}

fn files_of(disk: &MemoryDisk, topic: &str, partition: i32, extension: &str) -> Vec<u8> {
    let name = format!("{topic}-{partition}");
    let is_one = |path: &PathBuf| {
        let dir = path.parent().and_then(Path::file_name);
        dir.is_some_and(|dir| *dir == *name) && path.extension().is_some_and(|end| end == extension)
    };
    disk.files().into_iter().filter(|(path, _)| is_one(path)).flat_map(|(_, bytes)| bytes).collect()
}

/// The records of a log by offset.
fn records(partition: i32, log: &[u8]) -> Result<BTreeMap<i64, Name>, String> {
    let mut found = BTreeMap::new();
    let mut next = 0;
    let mut buffer = DecompressBuffer::default();
    for batch in batches(log) {
        let batch = batch.map_err(|error| format!("partition {partition}: {error}"))?;
        verify(batch.bytes).map_err(|error| format!("partition {partition}: {error}"))?;
        if batch.header.attributes.is_control() {
            continue;
        }
        let base = batch.header.base_offset.0;
        let broken = |error| format!("partition {partition}, batch at {base}: {error}");
        for record in batch.records(&mut buffer).map_err(broken)? {
            let record = record.map_err(broken)?;
            let offset = record.offset.0;
            if offset != next {
                return Err(format!("partition {partition}: offset {offset} follows {}", next - 1));
            }
            next = offset + 1;
            let name = record.value.and_then(|value| Name::of_value(value, partition));
            let name =
                name.ok_or_else(|| format!("partition {partition}: the record at {offset} was never sent"))?;
            found.insert(offset, name);
        }
    }
    Ok(found)
}

/// Differences between the logs of a partition's replicas, with the names of the machines.
pub fn differences(topic: &str, partition: i32, replicas: &[(String, Vec<u8>)]) -> Vec<String> {
    differences_in("logs", topic, partition, replicas)
}

/// Differences between the transaction indexes of a partition's replicas.
pub fn index_differences(topic: &str, partition: i32, replicas: &[(String, Vec<u8>)]) -> Vec<String> {
    differences_in("transaction indexes", topic, partition, replicas)
}

fn differences_in(what: &str, topic: &str, partition: i32, replicas: &[(String, Vec<u8>)]) -> Vec<String> {
    let Some(((first, log), others)) = replicas.split_first() else { return Vec::new() };
    let different = others.iter().filter(|(_, bytes)| bytes != log);
    let difference = |(other, bytes): &(String, Vec<u8>)| {
        let at = bytes.iter().zip(log).take_while(|(a, b)| a == b).count();
        let (len, other_len) = (log.len(), bytes.len());
        format!(
            "{topic}-{partition}: the {what} on {first} ({len} bytes) and {other} ({other_len}) differ from byte {at} on"
        )
    };
    different.map(difference).collect()
}

/// Checks the log of one replica of a partition. Returns the faults.
pub fn check(partition: i32, log: &[u8], known: &RecordedEvents) -> Vec<String> {
    let mut wrong = Vec::new();
    let records = match records(partition, log) {
        Ok(records) => records,
        Err(error) => {
            wrong.push(error);
            return wrong;
        }
    };
    wrong.extend(check_acknowledged(partition, &records, known));
    for order in check_order(partition, &records, known) {
        wrong.push(order);
        wrong.extend(batches_of_twice(log, &records));
    }
    for (offset, name) in known.read.get(&partition).into_iter().flatten() {
        if records.get(offset) != Some(name) {
            let found = records.get(offset);
            wrong.push(format!(
                "partition {partition}: {name:?} was read at {offset}, but the log has {found:?}"
            ));
            break;
        }
    }
    wrong
}

/// The two batches of the first duplicated record.
fn batches_of_twice(log: &[u8], records: &BTreeMap<i64, Name>) -> Option<String> {
    let mut seen = BTreeMap::new();
    let (second, name) = records.iter().find(|(offset, name)| seen.insert(**name, **offset).is_some())?;
    let first = records.iter().find(|(_, other)| *other == name)?.0;
    let batch = |offset: i64| {
        let mut headers = batches(log).filter_map(Result::ok).map(|batch| batch.header);
        headers.find(|header| header.last_offset().0 >= offset)
    };
    Some(format!("{name:?} is duplicated, in {:?} and {:?}", batch(*first)?, batch(*second)?))
}

fn check_acknowledged(
    partition: i32,
    records: &BTreeMap<i64, Name>,
    known: &RecordedEvents,
) -> Option<String> {
    for acknowledged in known.acknowledged.get(&partition).into_iter().flatten() {
        let AcknowledgedRun { first, records: count, offset: Some(offset) } = *acknowledged else { continue };
        for step in 0..count {
            let name = Name { number: first.number + step, ..first };
            let at = offset + i64::try_from(step).unwrap_or(i64::MAX);
            if records.get(&at) != Some(&name) {
                let found = records.get(&at);
                return Some(format!(
                    "partition {partition}: {name:?} was acknowledged at {at}, but the log has {found:?}"
                ));
            }
        }
    }
    None
}

/// Checks that each producer's records are present once, in order, without a gap up to the last acknowledged
/// one.
fn check_order(partition: i32, records: &BTreeMap<i64, Name>, known: &RecordedEvents) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for (offset, name) in records {
        let expected = next.entry(name.producer).or_default();
        if name.number != *expected {
            wrong.push(format!(
                "partition {partition}: producer {} has record {} at {offset} instead of {expected}",
                name.producer, name.number
            ));
            break;
        }
        *expected += 1;
    }
    for acknowledged in known.acknowledged.get(&partition).into_iter().flatten() {
        let end = acknowledged.first.number + acknowledged.records;
        let there = next.get(&acknowledged.first.producer).copied().unwrap_or(0);
        if there < end {
            wrong.push(format!(
                "partition {partition}: producer {}'s records up to {end} were acknowledged, but {there} are present",
                acknowledged.first.producer
            ));
            break;
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_record::{BatchBuilder, BatchOptions, Offset};

    const PRODUCER: u32 = 4;

    fn name(number: u64) -> Name {
        Name { producer: PRODUCER, number }
    }

    /// A log of these records of one producer, each in its own batch.
    fn log(numbers: &[u64]) -> Vec<u8> {
        let batch = |(offset, number): (i64, &u64)| {
            let options = BatchOptions { base_offset: Offset(offset), ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options);
            builder.append(1, None, Some(&name(*number).value(0, 30)), &[]).expect("the record fits");
            builder.finish().to_vec()
        };
        (0..).zip(numbers).flat_map(batch).collect()
    }

    /// A history in which the first two records were acknowledged and the first was read.
    fn known() -> RecordedEvents {
        let acknowledged = AcknowledgedRun { first: name(0), records: 2, offset: Some(0) };
        RecordedEvents {
            acknowledged: BTreeMap::from([(0, vec![acknowledged])]),
            read: BTreeMap::from([(0, BTreeMap::from([(0, name(0))]))]),
            ..RecordedEvents::default()
        }
    }

    fn replicas(logs: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
        (1..).zip(logs).map(|(id, log)| (format!("b{id}"), log.clone())).collect()
    }

    #[test]
    fn a_log_as_it_should_be_passes() {
        let log = log(&[0, 1, 2]);
        assert_eq!(check(0, &log, &known()), [""; 0]);
        assert_eq!(differences("t", 0, &replicas(&[log.clone(), log])), [""; 0]);
    }

    #[test]
    fn replicas_that_differ_are_found() {
        let wrong = differences("t", 0, &replicas(&[log(&[0, 1]), log(&[0, 1, 2])]));
        assert!(wrong[0].contains("the logs on b1") && wrong[0].contains("differ from byte"), "{wrong:?}");
    }

    #[test]
    fn each_way_to_lose_a_record_is_found() {
        let cases: [(&[u64], &str); 5] = [
            (&[0], "was acknowledged at 1, but the log has None"),
            (&[1, 0], "was acknowledged at 0"),
            (&[0, 0, 1], "instead of 1"),
            (&[0, 1, 3], "instead of 2"),
            (&[], "was read at 0, but the log has None"),
        ];
        for (numbers, told) in cases {
            let wrong = check(0, &log(numbers), &known());
            assert!(wrong.iter().any(|what| what.contains(told)), "{numbers:?}: {wrong:?}");
        }
    }

    #[test]
    fn a_damaged_batch_is_found() {
        let mut log = log(&[0, 1]);
        let last = log.len() - 1;
        log[last] ^= 1;
        assert_eq!(check(0, &log, &known()).len(), 1);
    }
}
