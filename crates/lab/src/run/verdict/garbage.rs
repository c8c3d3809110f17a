//! Garbage collection as the limit: the heap of a broker's JVM is too small for its load.

use super::{BROKERS, Finding, is_one_of};
use crate::result::{ProcessUse, Repetition};

/// The share of a JVM's processor time that goes to garbage, from which on it is the limit. Brokers with
/// enough heap are at about 4 %.
const SHARE_MIN: f64 = 0.2;
/// Minimum processors in use for garbage: a JVM that does nothing else is idle.
const PROCESSORS_MIN: f64 = 0.1;

pub(super) fn collected(repetition: &Repetition) -> Option<Finding> {
    let measured_s = repetition.measured_s.max(0.001);
    let brokers = repetition.processes.iter().filter(|used| is_one_of(&used.name, &BROKERS));
    let collecting =
        brokers.filter(|used| share(used) >= SHARE_MIN && collected_s(used) / measured_s >= PROCESSORS_MIN);
    let most = collecting.max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let reason = format!(
        "the JVM of {} used {:.0} % of its processor time to collect garbage, {:.2} of {:.2} processors: \
         its heap is too small for this load",
        most.name,
        share(most) * 100.0,
        collected_s(most) / measured_s,
        used_s(most) / measured_s
    );
    Some(Finding::new("garbage collection", reason))
}

/// The limit behind busy processors.
pub(super) fn behind(repetition: &Repetition, finding: Finding) -> Finding {
    if !["broker CPU", "machine CPU"].contains(&finding.limit.as_str()) {
        return finding;
    }
    let Some(mut collected) = collected(repetition) else { return finding };
    collected.reasons.extend(finding.reasons);
    collected
}

fn share(used: &ProcessUse) -> f64 {
    collected_s(used) / used_s(used).max(f64::MIN_POSITIVE)
}

fn collected_s(used: &ProcessUse) -> f64 {
    used.collector_s.unwrap_or_default()
}

fn used_s(used: &ProcessUse) -> f64 {
    used.user_s + used.system_s
}

#[cfg(test)]
mod tests {
    use crate::run::verdict::tests::limit;

    #[test]
    fn a_jvm_that_mostly_collects_garbage_is_the_limit() {
        let of = |collector_s: f64, cpu_s: f64| {
            limit(|r| {
                r.processes[0].user_s = cpu_s;
                r.processes[0].collector_s = Some(collector_s);
            })
        };
        let verdict = of(5.0, 10.0);
        assert_eq!(verdict.limit, "garbage collection");
        assert!(
            verdict.reasons[0].starts_with("the JVM of broker-1 used 50 % of its processor time"),
            "{verdict:?}"
        );
        assert_ne!(of(1.9, 10.0).limit, "garbage collection");
        assert_ne!(of(0.05, 0.1).limit, "garbage collection", "it is idle");
        assert_eq!(of(0.0, 0.0).limit, "unknown");
        let with = |change: fn(&mut crate::result::Repetition)| {
            limit(|r| {
                (r.processes[0].user_s, r.processes[0].collector_s) = (10.0, Some(5.0));
                change(r);
            })
        };
        let busy = with(|r| r.host.cpu_busy = 0.99);
        assert_eq!((busy.limit.as_str(), busy.reasons.len()), ("garbage collection", 2), "{busy:?}");
        assert_eq!(with(|r| r.processes[1].busiest_thread = 0.96).limit, "generator CPU");
    }
}
