//! The log against a model of it: a list of batches. Seeded; a failure names its seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::{LogConfig, OpenOptions, PartitionLog};
use thalweg_record::{LeaderEpoch, Offset};

use crate::support::*;

#[derive(Clone)]
struct ModelBatch {
    base: i64,
    next: i64,
    bytes: Vec<u8>,
}

struct Model {
    batches: Vec<ModelBatch>,
    log_start: i64,
    log_end: i64,
    epoch: i32,
}

impl Model {
    fn bytes_between(&self, from: i64, bound: i64) -> Vec<u8> {
        let readable = self.batches.iter().filter(|batch| batch.next > from && batch.next <= bound);
        readable.flat_map(|batch| batch.bytes.iter().copied()).collect()
    }
}

fn stamped(batch: &[u8], base: i64, epoch: i32) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    thalweg_record::stamp_head(&mut bytes, Offset(base), LeaderEpoch(epoch));
    bytes
}

fn check(log: &mut PartitionLog, model: &Model, random: &mut SmallRng) {
    assert_eq!(log.log_start_offset().0, model.log_start);
    assert_eq!(log.log_end_offset().0, model.log_end);
    let from = random.random_range(model.log_start..=model.log_end);
    let limit = [1, 300, 5000, 1 << 20][random.random_range(0..4)];
    let read = read_all(log, Offset(from), limit);
    assert!(read == model.bytes_between(from, model.log_end), "from {from} with limit {limit}");
}

fn append_some(log: &mut PartitionLog, model: &mut Model, random: &mut SmallRng) {
    let spec = || Spec::new(1);
    let records = random.random_range(1..6);
    let batch = Spec { records, ..spec() }
        .value_bytes(random.random_range(0..300))
        .timestamp(NOW_MS + model.log_end)
        .build();
    let base = if random.random_range(0..5) == 0 {
        let gap = [0, 0, 1, 7, 500][random.random_range(0..5)];
        let base = model.log_end + gap;
        log.accept_gaps();
        log.append_as_follower(&stamped(&batch, base, model.epoch), LeaderEpoch(model.epoch))
            .expect("accepted");
        base
    } else {
        let info =
            log.append_as_leader(&batch, LeaderEpoch(model.epoch), Default::default()).expect("accepted");
        assert_eq!(info.first_offset.0, model.log_end);
        model.log_end
    };
    let next = base + records as i64;
    model.batches.push(ModelBatch { base, next, bytes: stamped(&batch, base, model.epoch) });
    model.log_end = next;
}

fn truncate(log: &mut PartitionLog, model: &mut Model, target: i64) {
    log.truncate_to(Offset(target)).expect("truncates");
    if target < model.log_end {
        model.batches.retain(|batch| batch.next <= target);
        let last = model.batches.last().map_or(0, |batch| batch.next);
        model.log_end = log.log_end_offset().0;
        let begins = log.segment_offsets().last() == Some(&Offset(model.log_end));
        assert!(
            model.log_end <= target && (model.log_end == last || begins),
            "the log ends with its last batch"
        );
    }
}

/// Cuts the newest segment's file anywhere, as a machine that stops may leave it.
fn crash(bench: &Bench, log: PartitionLog, model: &mut Model, random: &mut SmallRng) -> PartitionLog {
    let base = log.segment_offsets().pop().expect("a segment").0;
    let (log_start, recovery_point) = (log.log_start_offset(), log.recovery_point());
    drop(log);
    let name = log_name(base);
    let bytes = bench.read_file(&name);
    let cut = random.random_range(0..=bytes.len());
    let mut left = bytes[..cut].to_vec();
    if random.random_range(0..3) == 0 {
        left.extend(std::iter::repeat_n(0, random.random_range(0..5000)));
    }
    bench.write_file(&name, &left);
    let mut whole = 0;
    let mut log_end = base;
    model.batches.retain(|batch| {
        if batch.base < base {
            return true;
        }
        whole += batch.bytes.len();
        if whole <= cut {
            log_end = batch.next;
        }
        whole <= cut
    });
    model.log_end = log_end;
    if log_end < log_start.0 {
        model.log_end = log_start.0;
        model.batches.clear();
    }
    let recovery_point = recovery_point.min(Offset(base));
    bench.open(&OpenOptions { recovery_point, log_start, ..OpenOptions::new(false) })
}

fn run(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let bench = Bench::with(LogConfig {
        segment_bytes: random.random_range(1800..20_000),
        index_interval_bytes: random.random_range(0..2000),
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    });
    let mut log = bench.create();
    let mut model = Model { batches: Vec::new(), log_start: 0, log_end: 0, epoch: 1 };
    for _ in 0..120 {
        match random.random_range(0..20) {
            0 => model.epoch += 1,
            1 => {
                let back = random.random_range(0..40);
                let target = (model.log_end - back).max(model.log_start);
                truncate(&mut log, &mut model, target);
            }
            2 => {
                let offset = random.random_range(model.log_start..=model.log_end);
                log.set_high_watermark(Offset(model.log_end));
                log.delete_records(Offset(offset)).expect("deletes");
                model.log_start = offset;
            }
            3 => {
                let log_start = log.log_start_offset();
                log.close().expect("closes");
                drop(log);
                log = bench.open(&OpenOptions { log_start, ..OpenOptions::new(true) });
                // A log that was cut inside a gap ends with its last batch once it is opened again.
                let last = model.batches.last().map_or(0, |batch| batch.next);
                let log_end = log.log_end_offset().0;
                assert!((last..=model.log_end).contains(&log_end));
                model.log_end = log_end;
            }
            4 => log = crash(&bench, log, &mut model, &mut random),
            5 => log.release_idle_resources().expect("releases"),
            6 => log.flush().expect("syncs"),
            _ => {
                for _ in 0..random.random_range(1..8) {
                    append_some(&mut log, &mut model, &mut random);
                }
            }
        }
        check(&mut log, &model, &mut random);
    }
}

#[test]
fn the_log_does_what_the_model_does() {
    let seeds = match std::env::var("THALWEG_MODEL_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("THALWEG_MODEL_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..25,
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed} (run it alone with THALWEG_MODEL_SEED={seed})");
    }
}
