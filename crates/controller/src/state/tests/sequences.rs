//! Invariants after every step of random sequences of events.

use std::collections::BTreeSet;

use thalweg_hash::HashMap;
use thalweg_metadata::LeaderRecoveryState;
use thalweg_wire::request::UpdateFeaturesRequest;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;

use super::steps::{Cluster, Performer, Step, Steps};
use super::*;

/// Number of sequences, and of steps in each.
const SEEDS: u64 = 60;
const STEPS: usize = 250;
/// Sequences that once broke a rule. 137: the last known leader led again after a reassignment had removed
/// it.
const FOUND: [u64; 1] = [137];

fn is_up(image: &Image, partition: &PartitionRegistration, id: BrokerId) -> bool {
    let directory = partition.directory(id).expect("a replica has a directory");
    image.broker(id).is_some_and(|broker| broker.is_active() && broker.has_online_directory(directory))
}

fn distinct(ids: &[BrokerId]) -> bool {
    ids.iter().collect::<BTreeSet<_>>().len() == ids.len()
}

/// Checks the invariants of an image.
pub(super) fn check(image: &Image) {
    for topic in image.topics().iter() {
        for p in topic.partitions.values() {
            let replicas_only = |ids: &[BrokerId]| ids.iter().all(|id| p.is_replica(*id));
            assert!(!p.replicas.is_empty() && distinct(&p.replicas), "{p:?}");
            assert_eq!(p.replicas.len(), p.directories.len());
            assert!(distinct(&p.isr) && replicas_only(&p.isr), "{p:?}");
            assert!(replicas_only(&p.eligible_leader_replicas), "{p:?}");
            assert!(!p.eligible_leader_replicas.iter().any(|id| p.isr.contains(id)), "{p:?}");
            assert!(replicas_only(&p.adding_replicas) && replicas_only(&p.removing_replicas), "{p:?}");
            // Without eligible leader replicas, the ISR is empty if the last member lost its log.
            assert!(!p.isr.is_empty() || !p.has_leader(), "{p:?}");
            if p.leader_recovery_state == LeaderRecoveryState::Recovering {
                assert!(p.isr.len() <= 1, "{p:?}");
            }
            if p.is_reassigning() && p.leader_recovery_state == LeaderRecoveryState::Recovered {
                // A reassignment ends when all remaining replicas are in sync; after an unclean election,
                // with the next change.
                let mut stay = p.replicas.iter().filter(|id| !p.removing_replicas.contains(id));
                assert!(stay.any(|id| !p.isr.contains(id)), "{p:?}");
            }
            if p.has_leader() {
                assert!(p.isr.contains(&p.leader), "{p:?}");
                // A fenced broker never leads, not even after an abandoned controlled shutdown, as in Kafka.
                assert!(image.is_alive(p.leader), "{p:?}");
                let directory = p.directory(p.leader).expect("a leader is a replica");
                let broker = image.broker(p.leader).expect("it is alive");
                assert!(broker.has_online_directory(directory), "{p:?} {broker:?}");
            } else {
                // If a possible leader is up, there is a leader.
                let may = if p.isr.is_empty() { &p.eligible_leader_replicas } else { &p.isr };
                assert!(!may.iter().any(|id| is_up(image, p, *id)), "{p:?}");
            }
        }
    }
    let epochs: BTreeSet<i64> = image.cluster().brokers.values().map(|broker| broker.epoch.0).collect();
    assert_eq!(epochs.len(), image.cluster().brokers.len(), "broker epochs are unique");
}

/// The possible origins of a leader that was not in sync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exception {
    None,
    /// The ISR is the one in the step.
    Proposal,
    /// The operator's unclean election.
    Unclean,
}

/// Checks the invariants of a change.
fn check_change(state: &State, before: &Image, after: &Image, exception: Exception) {
    for topic in after.topics().iter() {
        let Some(old_topic) = before.topic_by_id(topic.id) else { continue };
        let unclean = exception == Exception::Unclean || state.unclean_election_enabled(&topic.name);
        for (index, new) in &topic.partitions {
            let Some(old) = old_topic.partition(*index) else { continue };
            assert!(new.partition_epoch >= old.partition_epoch && new.leader_epoch >= old.leader_epoch);
            if **old == **new {
                continue;
            }
            let what = format!("{old:?} becomes {new:?}");
            assert!(new.partition_epoch > old.partition_epoch, "{what}");
            if new.leader != old.leader || old.replicas.iter().any(|id| !new.is_replica(*id)) {
                assert!(new.leader_epoch > old.leader_epoch, "{what}");
            }
            if new.has_leader() && new.leader != old.leader && exception != Exception::Proposal {
                let was_in_sync = old.isr.contains(&new.leader);
                let was_eligible = old.eligible_leader_replicas.contains(&new.leader);
                let was_last = old.last_known_elr.contains(&new.leader);
                assert!(was_in_sync || was_eligible || unclean || was_last, "{what}");
            }
        }
    }
    for broker in after.cluster().brokers.values() {
        if let Some(old) = before.broker(broker.id) {
            assert!(broker.epoch >= old.epoch, "{old:?} {broker:?}");
            assert!(broker.epoch == old.epoch || broker.fenced, "a new process begins fenced");
        }
    }
}

/// A snapshot of the image, read back.
fn reloaded(image: &Image) -> Arc<Image> {
    let mut loader = Loader::new(Arc::new(Image::empty()));
    let records: Vec<_> = image
        .to_records()
        .iter()
        .map(|record| {
            let value = record.to_value().expect("the version holds the record");
            thalweg_wire::decode_metadata_value(value).expect("what was written can be read")
        })
        .collect();
    loader.load(image.provenance(), &records).expect("records fit");
    loader.publish();
    loader.image().clone()
}

/// Events for the pure state only: time, periodic passes, and a restart from a snapshot.
fn happens_of_itself(bench: &mut Bench, dice: u32, wait_ms: i64) {
    match dice {
        0 => bench.now.monotonic_ms += wait_ms,
        1 => while bench.fence_stale() {},
        2 => {
            let records = bench.state.balance_leaders().records;
            bench.apply(records);
        }
        3 => {
            let records = bench.state.elect_unclean_leaders().records;
            bench.apply(records);
        }
        _ => {
            let (image, next) = (reloaded(bench.state.image()), bench.state.next_offset());
            bench.restart(image, next);
        }
    }
}

fn turn_on_elr(bench: &mut Bench) {
    let update = FeatureUpdateKey {
        feature: "eligible.leader.replicas.version".to_owned(),
        max_version_level: 1,
        upgrade_type: 1,
        ..Default::default()
    };
    let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
    assert_eq!(bench.call(request).error_code, 0);
    assert!(bench.state.image().has_elr());
}

fn exception(step: &Step) -> Exception {
    match step {
        Step::Propose(_) => Exception::Proposal,
        Step::Elect { unclean: true, .. } => Exception::Unclean,
        _ => Exception::None,
    }
}

/// Prints the last steps of a sequence that breaks a rule.
#[derive(Default)]
struct History(Vec<String>);

impl Drop for History {
    #[expect(clippy::print_stderr, reason = "a test that fails says how it came to it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("The last steps: {:#?}", &self.0[self.0.len().saturating_sub(8)..]);
        }
    }
}

fn run(seed: u64) -> HashMap<&'static str, usize> {
    let mut seen: HashMap<&'static str, usize> = HashMap::default();
    let brokers = i32::try_from(1 + seed % 7).expect("a few");
    let mut steps = Steps::new(seed, brokers);
    let mut performer = Performer::new(Bench::new());
    if seed % 2 == 1 {
        turn_on_elr(&mut performer.cluster);
    }
    for id in 1..=brokers {
        performer.perform(&Step::Register { id, same_process: false, clean: false, rack: None });
    }
    let mut history = History::default();
    for _ in 0..STEPS {
        let before = performer.cluster.image();
        let mut allowed = Exception::None;
        if steps.rng.random_bool(0.12) {
            let (dice, wait_ms) = (steps.rng.random_range(0..5), steps.rng.random_range(0..SESSION_MS));
            history.0.push(format!("of itself {dice} {wait_ms}"));
            happens_of_itself(&mut performer.cluster, dice, wait_ms);
        } else {
            let step = steps.next_or_placed(&before);
            allowed = exception(&step);
            let answer = performer.perform(&step);
            history.0.push(format!("{step:?}: {answer:?}"));
        }
        let after = performer.cluster.image();
        check(&after);
        check_change(&performer.cluster.state, &before, &after, allowed);
        assert!(reloaded(&after).has_content_of(&after), "a snapshot says what the log says");
        note(&mut seen, &after);
    }
    seen
}

/// Counts the outcomes of sequences, to notice outcomes that never occur.
fn note(seen: &mut HashMap<&'static str, usize>, image: &Image) {
    let mut count = |what| *seen.entry(what).or_insert(0) += 1;
    for p in image.topics().iter().flat_map(|topic| topic.partitions.values()) {
        if !p.has_leader() {
            count("no leader");
        }
        if p.leader_recovery_state == LeaderRecoveryState::Recovering {
            count("recovering");
        }
        if p.is_reassigning() {
            count("reassigning");
        }
        if !p.eligible_leader_replicas.is_empty() {
            count("eligible");
        }
        if p.isr.is_empty() {
            count("nobody in sync");
        }
        if p.isr.len() > 1 {
            count("in sync");
        }
    }
    if image.cluster().brokers.values().any(|broker| broker.in_controlled_shutdown) {
        count("leaving");
    }
}

#[test]
fn whatever_happens_leaders_are_up_and_in_sync_and_epochs_rise() {
    let mut seen: HashMap<&'static str, usize> = HashMap::default();
    for seed in (0..SEEDS).chain(FOUND) {
        let result = std::panic::catch_unwind(|| run(seed));
        let Ok(counts) = result else { panic!("the sequence of seed {seed} breaks a rule, see above") };
        for (what, count) in counts {
            *seen.entry(what).or_insert(0) += count;
        }
    }
    let all = ["no leader", "recovering", "reassigning", "eligible", "nobody in sync", "in sync", "leaving"];
    for what in all {
        assert!(seen.get(what).is_some_and(|count| *count > 20), "{what}: {seen:?}");
    }
}
