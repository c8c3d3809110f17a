//! A lock as the limit: the threads of a broker wait for each other. Locks of JVMs are those of thread dumps;
//! of Thalweg, the lock of a partition is timed by the broker.

use super::Finding;
use crate::quantity;
use crate::result::{Lock, LockUse, ProcessProfile, Repetition, Wait};

/// The share of running and waiting threads that wait for a lock, from which on it is the limit.
const SHARE_MIN: f64 = 0.5;
/// Minimum number of waiting threads, in the mean of all dumps: a single thread that waits beside a single
/// one that runs is no crowd.
const WAITING_MIN: f64 = 1.0;
/// Minimum number of thread dumps.
const DUMPS_MIN: u32 = 5;

pub(super) fn contended(repetition: &Repetition) -> Option<Finding> {
    in_dumps(repetition).or_else(|| timed(repetition))
}

/// The lock of a partition for which at least as many threads of a broker waited as ran.
fn timed(repetition: &Repetition) -> Option<Finding> {
    let processes = repetition.profile.iter().flat_map(|profile| &profile.processes);
    processes
        .filter_map(|process| {
            let waits = process.waits.as_ref()?;
            let wait = waits.places.iter().find(|wait| wait.place == Wait::PARTITION_LOCK)?;
            let cpu_s: f64 = process.threads.iter().map(|used| used.user_s + used.system_s).sum();
            let (waiting, running) = (waits.at_once(wait), cpu_s / repetition.measured_s.max(0.001));
            (waiting >= WAITING_MIN && waiting / (waiting + running) >= SHARE_MIN).then(|| {
                let each_us = wait.waited_s * 1e6 / (wait.count as f64).max(1.0);
                let reason = format!(
                    "{waiting:.1} threads of {} waited for {} in the mean, {} each, while {running:.2} ran",
                    process.name,
                    wait.place,
                    quantity::time_us(each_us)
                );
                Finding::new("lock", reason)
            })
        })
        .next()
}

fn in_dumps(repetition: &Repetition) -> Option<Finding> {
    let processes = repetition.profile.iter().flat_map(|profile| &profile.processes);
    let locks = processes.filter_map(|process| Some((process, process.locks.as_ref()?)));
    let all = locks.flat_map(|(process, used)| used.locks.iter().map(move |lock| (process, used, lock)));
    let limits = all.filter(|(_, used, lock)| {
        used.dumps >= DUMPS_MIN
            && lock.waiting as f64 >= WAITING_MIN * f64::from(used.dumps)
            && used.share(lock) >= SHARE_MIN
    });
    let (process, used, lock) =
        limits.max_by(|(_, used, a), (_, other, b)| used.share(a).total_cmp(&other.share(b)))?;
    Some(Finding { limit: "lock".to_owned(), reasons: reasons(process, used, lock) })
}

fn reasons(process: &ProcessProfile, used: &LockUse, lock: &Lock) -> Vec<String> {
    let share = used.share(lock) * 100.0;
    let waiting = format!(
        "{share:.0} % of the running and waiting threads of {} waited for {}, at {}, in {} thread dumps",
        process.name, lock.class, lock.waits_at, used.dumps
    );
    let held = match &lock.holder {
        Some(holder) => format!(
            "in {} of {} dumps with a holder, {} held it, at {}",
            holder.dumps,
            holder.dumps_with_holder,
            holder.thread,
            holder.stack.first().map_or("an unknown frame", String::as_str)
        ),
        None => "no dump showed its holder".to_owned(),
    };
    // Locks of different dumps are the same by class and place, not by address.
    let instances = (lock.instances_max > 1).then(|| {
        format!(
            "in one dump, threads waited for {} objects of this class: it may be no single lock",
            lock.instances_max
        )
    });
    [waiting, held].into_iter().chain(instances).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Holder, Profile, ThreadUse, Waits};
    use crate::run::verdict::tests::limit;

    fn with(waiting: u64, running: u64, dumps: u32) -> crate::result::Verdict {
        with_instances(waiting, running, dumps, 1)
    }

    fn with_instances(waiting: u64, running: u64, dumps: u32, instances_max: u32) -> crate::result::Verdict {
        limit(|one| {
            let lock = Lock {
                class: "java.lang.Object".to_owned(),
                waits_at: "UnifiedLog.append(UnifiedLog.scala:7)".to_owned(),
                waiting,
                dumps,
                instances_max,
                holder: Some(Holder {
                    thread: "request-handler-*".to_owned(),
                    dumps: 6,
                    dumps_with_holder: 9,
                    stack: vec!["FileChannelImpl.force(FileChannelImpl.java:3)".to_owned()],
                }),
                ..Lock::default()
            };
            let locks = LockUse { dumps, waiting, running, locks: vec![lock] };
            let broker = ProcessProfile {
                name: "broker-1".to_owned(),
                locks: Some(locks),
                ..ProcessProfile::default()
            };
            one.profile = Some(Profile { processes: vec![broker], missing: Vec::new() });
        })
    }

    #[test]
    fn the_lock_of_a_partition_for_which_most_threads_wait_is_the_limit() {
        let with = |waited_s: f64, user_s: f64| {
            limit(|one| {
                let wait = Wait { place: Wait::PARTITION_LOCK.to_owned(), count: 20_000, waited_s };
                let broker = ProcessProfile {
                    name: "broker-1".to_owned(),
                    threads: vec![ThreadUse { user_s, ..ThreadUse::default() }],
                    waits: Some(Waits { seconds: 10.0, places: vec![wait] }),
                    ..ProcessProfile::default()
                };
                one.profile = Some(Profile { processes: vec![broker], missing: Vec::new() });
            })
        };
        let found = with(40.0, 20.0);
        assert_eq!(found.limit, "lock");
        assert_eq!(
            found.reasons,
            [
                "4.0 threads of broker-1 waited for the lock of a partition in the mean, 2.00 ms each, while 2.00 ran"
            ]
        );
        assert_eq!(with(40.0, 60.0).limit, "unknown", "more run than wait");
        assert_eq!(with(8.0, 1.0).limit, "unknown", "less than a thread waits");
    }

    #[test]
    fn a_lock_for_which_most_threads_wait_is_the_limit_with_its_holder() {
        let found = with(60, 40, 10);
        assert_eq!(found.limit, "lock");
        assert_eq!(
            found.reasons,
            [
                "60 % of the running and waiting threads of broker-1 waited for java.lang.Object, at \
                 UnifiedLog.append(UnifiedLog.scala:7), in 10 thread dumps",
                "in 6 of 9 dumps with a holder, request-handler-* held it, at \
                 FileChannelImpl.force(FileChannelImpl.java:3)"
            ]
        );
        let many = with_instances(60, 40, 10, 12);
        assert_eq!(
            many.reasons[2],
            "in one dump, threads waited for 12 objects of this class: it may be no single lock"
        );
        assert_eq!(with(40, 60, 10).limit, "unknown", "most threads run");
        assert_eq!(with(9, 1, 10).limit, "unknown", "less than a thread waits");
        assert_eq!(with(60, 40, 4).limit, "unknown", "there are too few dumps");
    }
}
