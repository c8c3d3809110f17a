//! Seeds that once found something, by what they found, where no smaller test shows it.

use crate::on_a_thread_of_its_own;
use thalweg_sim::run;

fn passes(seed: u64) {
    let outcome = on_a_thread_of_its_own(move || run(seed));
    assert_eq!(outcome.violations, [""; 0], "cargo run -p thalweg-sim -- --seeds {seed}");
    assert_eq!(outcome.unrest, None, "cargo run -p thalweg-sim -- --seeds {seed}");
}

/// With `flush.messages=1` the high watermark passed what the leader had not synced, and a power failure took it back.
#[test]
fn nobody_reads_what_the_leader_has_not_synced() {
    passes(227);
}

/// A request that was under way to a broker that led no longer was sent again when more batches were stored behind it
/// than brokers remember.
#[test]
fn a_batch_is_stored_once_though_its_answer_comes_late() {
    passes(8);
}
