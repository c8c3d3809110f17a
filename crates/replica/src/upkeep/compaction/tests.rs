//! Compaction beside requests, and which log is next.

use super::*;
use crate::partition::testing::HangingDisk;

#[test]
fn appends_go_on_while_a_compaction_is_synced() {
    let hanging = HangingDisk::new();
    hanging.append(40);
    let partition = Arc::clone(&hanging.partition);
    let job = partition.with_log(|log| log.plan_compaction(0)).expect("plans").expect("all is dirty");
    let outcome = job.run().expect("compacts");
    let before = partition.size_bytes();
    let taken_over = hanging.while_it_hangs(
        "t-0",
        move || take_over(&partition, &job, outcome),
        |hanging| {
            hanging.append(1);
            let cleaned_to = hanging.partition.with_log(|log| log.cleaned_to());
            assert_eq!(cleaned_to.0, 0, "it counts once it is on the medium");
        },
    );
    assert!(taken_over && hanging.partition.size_bytes() < before);
    assert!(hanging.partition.with_log(|log| log.cleaned_to()).0 > 0);
}
