//! Locks over several thread dumps: how many threads wait for each, where, and who holds it.
//!
//! An object's address differs between dumps, because the JVM moves objects. Locks are therefore the same if
//! they have one class and are waited for at one place in the code.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::{Dump, JavaThread};
use super::kind;
use crate::result::{Holder, Lock, LockUse};

/// Number of locks in a result.
const LOCKS_MAX: usize = 8;

/// Code between a thread and its lock.
const LIBRARY: [&str; 4] = ["java.util.concurrent.", "jdk.internal.", "java.lang.Object.", "sun.misc."];

#[derive(Default)]
struct LockSamples {
    waiting: u64,
    dumps: u32,
    waiting_max: u32,
    instances_max: u32,
    waiting_stacks: BTreeMap<Vec<String>, u32>,
    holders: BTreeMap<(String, Vec<String>), u32>,
    dumps_with_holder: u32,
}

/// The locks of some dumps.
pub(super) fn gather(dumps: &[&Dump]) -> LockUse {
    let mut seen: BTreeMap<(String, String), LockSamples> = BTreeMap::new();
    let (mut waiting, mut running) = (0, 0);
    for dump in dumps {
        running += dump.threads.iter().filter(|thread| thread.is_running).count() as u64;
        let mut groups: BTreeMap<(String, String), Vec<&JavaThread>> = BTreeMap::new();
        for thread in &dump.threads {
            if let Some(lock) = &thread.waits_for {
                waiting += 1;
                groups.entry((lock.class.clone(), waits_at(thread))).or_default().push(thread);
            }
        }
        for (key, threads) in groups {
            note(seen.entry(key).or_default(), dump, &threads);
        }
    }
    let mut locks: Vec<Lock> = seen
        .into_iter()
        .map(|((class, waits_at), seen)| Lock {
            class,
            waits_at,
            waiting: seen.waiting,
            dumps: seen.dumps,
            waiting_max: seen.waiting_max,
            instances_max: seen.instances_max,
            waiting_stack: most_frequent(seen.waiting_stacks).map(|(stack, _)| stack).unwrap_or_default(),
            holder: most_frequent(seen.holders).map(|((thread, stack), dumps)| Holder {
                thread,
                dumps,
                dumps_with_holder: seen.dumps_with_holder,
                stack,
            }),
        })
        .collect();
    locks.sort_by_key(|lock| std::cmp::Reverse(lock.waiting));
    locks.truncate(LOCKS_MAX);
    LockUse { dumps: u32::try_from(dumps.len()).unwrap_or(u32::MAX), waiting, running, locks }
}

/// Adds the threads of a dump that wait for a lock.
fn note(seen: &mut LockSamples, dump: &Dump, threads: &[&JavaThread]) {
    let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
    seen.waiting += threads.len() as u64;
    seen.dumps += 1;
    seen.waiting_max = seen.waiting_max.max(count);
    for thread in threads {
        *seen.waiting_stacks.entry(thread.stack.clone()).or_default() += 1;
    }
    let addresses: BTreeSet<&String> =
        threads.iter().filter_map(|thread| Some(&thread.waits_for.as_ref()?.address)).collect();
    seen.instances_max = seen.instances_max.max(u32::try_from(addresses.len()).unwrap_or(u32::MAX));
    let holds = |thread: &&JavaThread| thread.holds.iter().any(|held| addresses.contains(held));
    let mut has_holder = false;
    for holder in dump.threads.iter().filter(holds) {
        has_holder = true;
        *seen.holders.entry((kind(&holder.name), holder.stack.clone())).or_default() += 1;
    }
    seen.dumps_with_holder += u32::from(has_holder);
}

/// The innermost frame that is not of Java's library of locks.
fn waits_at(thread: &JavaThread) -> String {
    let own = thread.stack.iter().find(|frame| !LIBRARY.iter().any(|library| frame.starts_with(library)));
    own.or(thread.stack.first()).cloned().unwrap_or_default()
}

fn most_frequent<K>(of: BTreeMap<K, u32>) -> Option<(K, u32)> {
    of.into_iter().max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::dump::tests::TEXT;

    #[test]
    fn a_lock_has_its_waiting_threads_its_holder_and_both_stacks() {
        let first = Dump::parse(TEXT);
        // The object has moved.
        let second = Dump::parse(&TEXT.replace("0x000000069df3d298", "0x0000000700000000"));
        let calm = Dump::default();
        let found = gather(&[&first, &second, &calm]);
        assert_eq!((found.dumps, found.waiting, found.running), (3, 6, 2));
        let lock = &found.locks[0];
        assert_eq!(lock.class, "java.lang.Object");
        assert_eq!(lock.waits_at, "Contended.guarded(Contended.java:4)");
        assert_eq!((lock.waiting, lock.dumps, lock.waiting_max, lock.instances_max), (4, 2, 2, 1));
        let holder = lock.holder.as_ref().expect("it is known");
        assert_eq!((holder.thread.as_str(), holder.dumps, holder.dumps_with_holder), ("worker-*", 2, 2));
        assert_eq!(
            holder.stack[..2],
            ["java.lang.Thread.sleep(Native Method)", "Contended.guarded(Contended.java:4)"]
        );
        assert_eq!(found.share(lock), 0.5);
        let unowned = &found.locks[1];
        assert_eq!((unowned.waits_at.as_str(), unowned.waiting), ("Contended.locked(Contended.java:5)", 2));
        assert_eq!(unowned.holder, None);
    }
}
