//! Compaction beside requests, and the choice of the next log.

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

/// A log of several segments with an overwritten second one, a compaction job, and the error of that job.
fn damaged() -> (HangingDisk, CompactionJob, CompactionError) {
    let hanging = HangingDisk::new();
    hanging.append(40);
    let job = hanging.partition.with_log(|log| log.plan_compaction(0)).expect("plans").expect("all is dirty");
    let path =
        hanging.partition.with_log(|log| log.dir().join(format!("{:020}.log", log.segment_offsets()[1].0)));
    let bytes = std::fs::metadata(&path).expect("the segment is there").len();
    std::fs::write(path, vec![0xA5; usize::try_from(bytes).expect("it is small")]).expect("writes");
    let error = job.run().expect_err("it is damaged");
    (hanging, job, error)
}

#[test]
fn log_is_given_up_for_damage_although_that_is_mended_at_once() {
    let (hanging, job, error) = damaged();
    let partition = &hanging.partition;
    let given_up = end(partition, &job, Some(Err(error))).expect_err("it is of no use to try again");
    assert!(given_up.is_damaged);
    let (cleaner, mut known) = (Cleaner::default(), UncleanableLogs::default());
    cleaner.gave_up(&partition.topic, partition.index, CORRUPT);
    known.insert(id(partition), given_up);
    let all = [Arc::clone(partition)];
    forget_mended(&mut known, &all, &cleaner);
    assert_eq!(known.len(), 1);
    partition.with_log(|log| log.drop_damage()).expect("drops");
    forget_mended(&mut known, &all, &cleaner);
    assert_eq!((known.len(), cleaner.figures().uncleanable_count), (0, 0));
}

#[test]
fn damage_of_a_log_that_was_mended_meanwhile_is_none() {
    let (hanging, job, error) = damaged();
    let partition = &hanging.partition;
    partition.with_log(|log| log.truncate_to(log.segment_offsets()[1])).expect("cuts");
    assert_eq!(end(partition, &job, Some(Err(error))), Ok(false));
    assert!(!partition.is_damaged());
}

#[test]
fn log_that_is_gone_is_not_uncleanable() {
    let hanging = HangingDisk::new();
    let topic = Arc::clone(&hanging.partition.topic);
    let (cleaner, mut known) = (Cleaner::default(), UncleanableLogs::default());
    cleaner.gave_up(&topic, hanging.partition.index, TOO_MANY_KEYS);
    known.insert(id(&hanging.partition), GivenUp { topic, is_damaged: false });
    forget_mended(&mut known, std::slice::from_ref(&hanging.partition), &cleaner);
    assert_eq!(known.len(), 1);
    forget_mended(&mut known, &[], &cleaner);
    assert_eq!((known.len(), cleaner.figures().uncleanable_count), (0, 0));
}
