//! The busiest threads and the most contended lock of each target's last point, in a line each.

use crate::quantity;
use crate::report::clean;
use crate::result::{PointResult, ProcessProfile, Repetition, Wait, system};

/// Kinds of threads in a line.
const THREADS_MAX: usize = 3;

/// The lines; empty without `--look-inside`.
pub(super) fn lines(points: &[PointResult]) -> String {
    let mut targets: Vec<&str> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for point in points.iter().rev() {
        let last = point.repetitions.iter().rev().find_map(|one| Some((one, one.profile.as_ref()?)));
        let Some((repetition, profile)) = last else { continue };
        if targets.contains(&point.target.as_str()) {
            continue;
        }
        targets.push(&point.target);
        let mut text = String::new();
        let cpu_s = |process: &&ProcessProfile| -> f64 {
            process.threads.iter().map(|used| used.user_s + used.system_s).sum()
        };
        let brokers = profile.processes.iter().filter(|process| process.name.starts_with("broker"));
        if let Some(broker) = brokers.max_by(|a, b| cpu_s(a).total_cmp(&cpu_s(b))) {
            let inside = inside(repetition, broker);
            let line = format!("{}, {}, {}: {inside}", point.point.label, system(&point.target), broker.name);
            text += &format!("  Inside {}\n", clean(&line));
        }
        for what in &profile.missing {
            text += &format!("    not seen: {}\n", clean(what));
        }
        texts.push(text);
    }
    texts.into_iter().rev().collect()
}

fn inside(repetition: &Repetition, broker: &ProcessProfile) -> String {
    let measured_s = repetition.measured_s.max(0.001);
    let threads = broker.threads.iter().take(THREADS_MAX).map(|used| {
        let processors = quantity::number((used.user_s + used.system_s) / measured_s);
        format!("{} {processors} processors", used.name)
    });
    let mut parts: Vec<String> = threads.collect();
    if let Some(waits) = &broker.waits {
        let lock = waits.places.iter().find(|wait| wait.place == Wait::PARTITION_LOCK);
        let waiting = lock.map_or(0.0, |wait| waits.at_once(wait));
        parts.push(match waiting > 0.0 {
            true => format!("{} threads wait for {}", quantity::number(waiting), Wait::PARTITION_LOCK),
            false => format!("no thread waited for {}", Wait::PARTITION_LOCK),
        });
    }
    if let Some(locks) = &broker.locks {
        parts.push(match locks.locks.first() {
            Some(lock) => format!(
                "{} of running and waiting threads wait for {} at {}",
                quantity::percent(locks.share(lock)),
                lock.class,
                lock.waits_at
            ),
            None => format!("no thread waited for a lock in {} dumps", locks.dumps),
        });
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::{point, repetition, result};
    use crate::result::{LockUse, Profile, ThreadUse};

    #[test]
    fn the_busiest_broker_of_a_target_has_a_line() {
        let process = |name: &str, user_s| ProcessProfile {
            name: name.to_owned(),
            threads: vec![ThreadUse { name: format!("{name} thread"), user_s, ..ThreadUse::default() }],
            locks: Some(LockUse { dumps: 7, ..LockUse::default() }),
            ..ProcessProfile::default()
        };
        let mut one = repetition();
        one.measured_s = 10.0;
        one.profile = Some(Profile {
            processes: vec![process("broker-1", 1.0), process("broker-2", 5.0), process("producer-0", 9.0)],
            missing: vec!["clients: x".to_owned()],
        });
        let text = lines(&[result(point(), "embedded", vec![one])]);
        assert_eq!(
            text,
            "  Inside a point, Thalweg, broker-2: broker-2 thread 0.500 processors, no thread waited for a lock in 7 dumps\n    \
             not seen: clients: x\n"
        );
        assert_eq!(lines(&[result(point(), "embedded", vec![repetition()])]), "");
    }
}
