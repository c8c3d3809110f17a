//! Obstacles to the claim that nothing was lost, as text.

use super::Claim;
use super::log::{UNKNOWN, records};
use super::policy::Policies;
use crate::result::{Evidence, PartitionEvidence};
use crate::worker::Report;

/// Number of partitions described by name.
const NAMED_MAX: usize = 5;

/// Adds all obstacles.
pub(super) fn judge(claim: &Claim<'_>, policies: &Policies, evidence: &mut Evidence) {
    let mut faults = Vec::new();
    count(claim, evidence, &mut faults);
    kept(policies, evidence, &mut faults);
    replicated(claim, evidence, &mut faults);
    consumed(claim.consumers, &mut faults);
    evidence.faults.append(&mut faults);
}

/// The number of records in the log: at least the acknowledged ones, at most the sent ones.
fn count(claim: &Claim<'_>, evidence: &Evidence, faults: &mut Vec<String>) {
    let (in_log, acknowledged, sent) = (evidence.in_log, evidence.acknowledged, claim.sent());
    if in_log < acknowledged {
        let missing = acknowledged - in_log;
        faults.push(format!(
            "{acknowledged} records were acknowledged, but the log has {in_log}: {missing} are missing"
        ));
    } else if in_log > sent && !claim.producers.iter().any(|report| report.sent_more) {
        let more = in_log - sent;
        faults.push(format!(
            "{sent} records were sent, but the log has {more} more: some are duplicated, or others wrote to the topics"
        ));
    }
    let missing: Vec<&String> = claim
        .topics
        .iter()
        .filter(|topic| evidence.partitions.iter().all(|partition| partition.topic != **topic))
        .collect();
    for topic in missing {
        faults.push(format!("The topic {topic} no longer exists in the cluster"));
    }
}

/// Removed records prove nothing, neither by their absence nor by the rest.
fn kept(policies: &Policies, evidence: &Evidence, faults: &mut Vec<String>) {
    for topic in &policies.compacted {
        faults.push(format!(
            "Topic {topic} is compacted (cleanup.policy): its offsets do not count records, so loss cannot be \
             excluded"
        ));
    }
    let begins_late = |partition: &PartitionEvidence| {
        (partition.start_offset > 0).then(|| {
            format!(
                "{}-{} begins at offset {}: earlier records were removed by retention or deletion, so loss cannot be \
                 excluded",
                partition.topic, partition.partition, partition.start_offset
            )
        })
    };
    report(evidence, begins_late, faults);
}

/// Checks that the replicas are as requested, were in sync, and are equal.
fn replicated(claim: &Claim<'_>, evidence: &Evidence, faults: &mut Vec<String>) {
    let requested = claim.replication_factor;
    let least = evidence.in_sync_replicas_min;
    if least < u32::from(requested) {
        faults.push(format!(
            "During the run a partition had {least} of {requested} in-sync replicas: its records were on fewer \
             brokers than requested"
        ));
    }
    if claim.watched.looks == 0 && requested > 1 {
        faults.push(
            "The in-sync replicas were not observed during the run: the number is from after it".to_owned(),
        );
    }
    let unlike = |partition: &PartitionEvidence| {
        let has = partition.replicas.len();
        if has != usize::from(requested) {
            let (topic, index) = (&partition.topic, partition.partition);
            return Some(format!("{topic}-{index} has {has} replicas instead of {requested}"));
        }
        (!super::log::agree(partition)).then(|| difference(partition))
    };
    report(evidence, unlike, faults);
}

fn difference(partition: &PartitionEvidence) -> String {
    let each = partition.replicas.iter().map(|replica| {
        let end = match replica.end_offset {
            UNKNOWN => "an unknown end offset".to_owned(),
            end => format!("end offset {end}"),
        };
        let state = if replica.in_sync { "in sync" } else { "not in sync" };
        format!("broker {} has {end}, {} bytes, {state}", replica.broker, replica.bytes)
    });
    format!(
        "The replicas of {}-{} do not agree with its {} records: {}",
        partition.topic,
        partition.partition,
        records(partition),
        each.collect::<Vec<String>>().join("; ")
    )
}

/// Records that the run's own consumers found damaged or unreadable.
pub(super) fn consumed(reports: &[Report], faults: &mut Vec<String>) {
    for report in reports {
        let damaged: u64 = report.seen.iter().map(|seen| seen.damaged).sum();
        if damaged > 0 {
            faults.push(format!("Consumers received {damaged} damaged records during the run"));
        }
        if let (1.., Some(first)) = (report.failed, &report.first_failure) {
            faults
                .push(format!("Consumers could not read {} fetches during the run: {first}", report.failed));
        }
    }
}

/// Describes the first faulty partitions in full, and counts the others.
fn report(
    evidence: &Evidence,
    wrong: impl Fn(&PartitionEvidence) -> Option<String>,
    faults: &mut Vec<String>,
) {
    let all: Vec<String> = evidence.partitions.iter().filter_map(wrong).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    faults.extend(all.into_iter().take(NAMED_MAX));
    if more > 0 {
        faults.push(format!("The same applies to {more} more partitions"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ReplicaEvidence;

    fn replica(broker: i32, end_offset: i64, bytes: u64, in_sync: bool) -> ReplicaEvidence {
        ReplicaEvidence { broker, end_offset, bytes, in_sync, ..ReplicaEvidence::default() }
    }

    fn partition(start_offset: i64, replicas: Vec<ReplicaEvidence>) -> PartitionEvidence {
        PartitionEvidence {
            topic: "t".to_owned(),
            partition: 3,
            start_offset,
            end_offset: 100,
            replicas,
            ledgers: Vec::new(),
        }
    }

    fn faults_of_replicas(partition: PartitionEvidence) -> Vec<String> {
        let evidence = Evidence { partitions: vec![partition], ..Evidence::default() };
        let mut faults = Vec::new();
        let policies = Policies { fsync: String::new(), compacted: Vec::new() };
        kept(&policies, &evidence, &mut faults);
        let partition = &evidence.partitions[0];
        if !crate::evidence::log::agree(partition) {
            faults.push(difference(partition));
        }
        faults
    }

    #[test]
    fn replicas_that_agree_are_no_fault() {
        let good = partition(0, vec![replica(1, 100, 5000, true), replica(2, 100, 5000, true)]);
        assert_eq!(faults_of_replicas(good), [""; 0]);
    }

    #[test]
    fn a_lagging_or_different_replica_is_reported_with_its_numbers() {
        for (end_offset, bytes, in_sync) in [(99, 5000, true), (100, 4999, true), (100, 5000, false)] {
            let bad = partition(0, vec![replica(1, 100, 5000, true), replica(2, end_offset, bytes, in_sync)]);
            let faults = faults_of_replicas(bad);
            let expected = format!("broker 2 has end offset {end_offset}, {bytes} bytes");
            assert!(faults.len() == 1 && faults[0].contains(&expected), "{faults:?}");
        }
    }

    #[test]
    fn many_partitions_are_named_by_their_number() {
        let partitions: Vec<PartitionEvidence> = (0..8).map(|_| partition(7, Vec::new())).collect();
        let evidence = Evidence { partitions, ..Evidence::default() };
        let policies = Policies { fsync: String::new(), compacted: vec!["c".to_owned()] };
        let mut faults = Vec::new();
        kept(&policies, &evidence, &mut faults);
        assert_eq!(faults.len(), 1 + NAMED_MAX + 1, "{faults:?}");
        assert!(faults[0].starts_with("Topic c is compacted"), "{faults:?}");
        assert!(faults[1].starts_with("t-3 begins at offset 7"), "{faults:?}");
        assert_eq!(faults[6], "The same applies to 3 more partitions");
    }
}
