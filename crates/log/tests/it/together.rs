//! What several requests bring at once has the outcome that it would have one by one.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::{AppendInfo, AppendOptions, LogConfig, PartitionLog};
use thalweg_record::{LeaderEpoch, Offset, TimestampType};

use crate::support::*;

const SEEDS: u64 = 60;
const RUNS: usize = 40;
const EPOCH: LeaderEpoch = LeaderEpoch(3);

/// What a producer sees of an append, or the error.
fn seen(outcome: Result<AppendInfo, impl ToString>) -> Result<AppendInfo, String> {
    // When a segment is left depends on how much is appended at once.
    outcome.map(|info| AppendInfo { rolled: false, ..info }).map_err(|error| error.to_string())
}

fn one_by_one(log: &mut PartitionLog, requests: &[&[u8]]) -> Vec<Result<AppendInfo, String>> {
    let append = |records: &&[u8]| seen(log.append_as_leader(records, EPOCH, AppendOptions::default()));
    requests.iter().map(append).collect()
}

/// Batches of producers that mostly behave: some repeat or leave out a sequence, some come with an epoch that
/// is new or old.
fn some_requests(random: &mut SmallRng, sequences: &mut [(i16, i32); 3]) -> Vec<Vec<u8>> {
    let count = random.random_range(1..=6);
    let request = |_| {
        let records = random.random_range(1..=3);
        let spec = Spec::new(records).value_bytes(random.random_range(0..200));
        let producer = random.random_range(0..=sequences.len());
        let Some((epoch, next)) = sequences.get_mut(producer) else { return spec.build() };
        let spec = match random.random_range(0..20) {
            0 => spec.producer(producer as i64, *epoch, *next + 5),
            1 => spec.producer(producer as i64, *epoch, (*next - 1).max(0)),
            2 => spec.producer(producer as i64, *epoch - 1, *next),
            3 => spec.producer(producer as i64, *epoch, *next).transactional(),
            4 => {
                (*epoch, *next) = (*epoch + 1, records as i32);
                spec.producer(producer as i64, *epoch, 0)
            }
            _ => {
                *next += records as i32;
                spec.producer(producer as i64, *epoch, *next - records as i32)
            }
        };
        spec.build()
    };
    (0..count).map(request).collect()
}

#[test]
fn what_is_appended_together_is_appended_as_one_by_one() {
    let (mut together, mut alone) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let stamped = seed % 3 == 0;
        let timestamp_type = if stamped { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let config = || LogConfig {
            message_timestamp_type: timestamp_type,
            segment_bytes: 4096,
            flush_messages: if seed % 2 == 0 { 7 } else { i64::MAX },
            ..LogConfig::default()
        };
        let (bench, control) = (Bench::with(config()), Bench::with(config()));
        let (mut log, mut expected) = (bench.create(), control.create());
        let mut sequences = [(0, 0); 3];
        for run in 0..RUNS {
            let requests = some_requests(&mut random, &mut sequences);
            let requests: Vec<&[u8]> = requests.iter().map(|records| &records[..]).collect();
            let before = log.log_end_offset();
            let outcomes = match log.append_together(&requests, EPOCH) {
                Some(infos) => {
                    together += 1;
                    infos.into_iter().map(|info| seen(Ok::<_, String>(info))).collect()
                }
                None => {
                    alone += 1;
                    assert_eq!(log.log_end_offset(), before, "nothing has changed");
                    one_by_one(&mut log, &requests)
                }
            };
            let by_itself = one_by_one(&mut expected, &requests);
            let without_flush = |outcomes: &[Result<AppendInfo, String>]| -> Vec<Result<AppendInfo, String>> {
                // All of a write wait for the flush that one of them asks for.
                let calm = |info: AppendInfo| AppendInfo { flush_due: false, ..info };
                outcomes.iter().map(|outcome| outcome.clone().map(calm)).collect()
            };
            assert_eq!(without_flush(&outcomes), without_flush(&by_itself), "seed {seed}, run {run}");
            for (own, alone) in outcomes.iter().flatten().zip(by_itself.iter().flatten()) {
                assert!(own.flush_due || !alone.flush_due, "seed {seed}, run {run}: no flush is missed");
            }
        }
        let all = |log: &mut PartitionLog| read_all(log, Offset(0), usize::MAX);
        assert_eq!(all(&mut log), all(&mut expected), "seed {seed}");
    }
    assert!(together > 500 && alone > 500, "{together} together, {alone} one by one");
}

#[test]
fn sequences_are_checked_behind_a_producer_that_had_no_epoch() {
    for (sequences, fails) in [([0, 0], None), ([0, 7], Some(1)), ([0, 1], None)] {
        let (bench, control) = (Bench::new(), Bench::new());
        let (mut log, mut expected) = (bench.create(), control.create());
        let first = Spec::new(1).producer(9, -1, 0).build();
        for log in [&mut log, &mut expected] {
            one_by_one(log, &[&first])[0].as_ref().expect("accepted, as by Kafka");
        }
        let requests = sequences.map(|sequence| Spec::new(1).producer(9, 0, sequence).build());
        let requests = requests.each_ref().map(|records| &records[..]);
        let outcomes = match log.append_together(&requests, EPOCH) {
            Some(infos) => infos.into_iter().map(|info| seen(Ok::<_, String>(info))).collect(),
            None => one_by_one(&mut log, &requests),
        };
        assert_eq!(outcomes, one_by_one(&mut expected, &requests), "{sequences:?}");
        assert_eq!(outcomes.iter().position(Result::is_err), fails, "{sequences:?}");
        assert_eq!(log.log_end_offset(), expected.log_end_offset(), "{sequences:?}");
    }
}

#[test]
fn the_second_batch_of_a_new_producer_has_to_follow_its_first() {
    let bench = Bench::new();
    let mut log = bench.create();
    let requests = [Spec::new(1).producer(9, 0, 0).build(), Spec::new(1).producer(9, 0, 5).build()];
    assert_eq!(log.append_together(&[&requests[0], &requests[1]], EPOCH), None);
    let outcomes = one_by_one(&mut log, &[&requests[0], &requests[1]]);
    assert!(outcomes[0].is_ok() && outcomes[1].is_err(), "{outcomes:?}");
}
