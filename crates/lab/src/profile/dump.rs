//! The text of a thread dump: what each thread does, waits for and holds.

/// Frames kept of a stack.
const FRAMES_MAX: usize = 24;
/// Classes of locks of `java.util.concurrent` on which threads wait for each other. Others, such as
/// conditions, are waits for work.
const LOCK_CLASSES: [&str; 3] = [
    "java.util.concurrent.locks.ReentrantLock$",
    "java.util.concurrent.locks.ReentrantReadWriteLock$",
    "java.util.concurrent.locks.StampedLock",
];
/// Native methods in which threads wait for events, although Java calls them runnable.
const IDLE: [&str; 8] = [
    "EPoll.wait",
    "epollWait",
    "Net.poll",
    "Net.accept",
    "accept0",
    "waitForReferencePendingList",
    "readBytes",
    "Unsafe.park",
];

/// A thread dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dump {
    pub threads: Vec<JavaThread>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JavaThread {
    pub name: String,
    /// The kernel's id of the thread.
    pub id: Option<u32>,
    /// True in Java code, or in native code other than waits for events.
    pub is_running: bool,
    /// The stack, innermost frame first.
    pub stack: Vec<String>,
    /// The lock for which the thread waits.
    pub waits_for: Option<LockReference>,
    /// The addresses of held locks.
    pub holds: Vec<String>,
}

/// A lock in a dump. Its address changes when the JVM moves the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockReference {
    pub address: String,
    pub class: String,
    /// True for a lock whose owner plain dumps do not show.
    pub is_unowned: bool,
}

impl Dump {
    /// Reads a dump as of `jcmd PID Thread.print`; unknown lines are skipped.
    pub(super) fn parse(text: &str) -> Dump {
        let mut threads: Vec<JavaThread> = Vec::new();
        for part in text.split("\n\"").skip(1) {
            let mut lines = part.lines();
            let Some(mut thread) = lines.next().and_then(header) else { continue };
            let mut state = "";
            let mut released = ReleasedObjects::default();
            for line in lines.map(str::trim) {
                if let Some(text) = line.strip_prefix("java.lang.Thread.State: ") {
                    state = text;
                } else if let Some(frame) = line.strip_prefix("at ") {
                    if thread.stack.len() < FRAMES_MAX {
                        thread.stack.push(without_module(frame));
                    }
                } else if let Some(lock) = line.strip_prefix("- ") {
                    note_lock(&mut thread, lock, state, &mut released);
                } else if line.starts_with("JNI global refs") {
                    break;
                }
            }
            let idles = thread.stack.first().is_none_or(|top| {
                top.contains("(Native Method)") && IDLE.iter().any(|idle| top.contains(idle))
            });
            thread.is_running = state.starts_with("RUNNABLE") && !idles;
            threads.push(thread);
        }
        Dump { threads }
    }

    /// True if a thread waits for a lock whose owner the dump does not show.
    pub(super) fn waits_for_unowned(&self) -> bool {
        self.threads.iter().filter_map(|thread| thread.waits_for.as_ref()).any(|lock| {
            lock.is_unowned && !self.threads.iter().any(|thread| thread.holds.contains(&lock.address))
        })
    }
}

/// The first line of a thread, after its first quote: name and kernel's id, `nid=0x5af` or from Java 19
/// `nid=1455`.
fn header(line: &str) -> Option<JavaThread> {
    let (name, rest) = line.rsplit_once('"')?;
    let id = rest.split_once("nid=").and_then(|(_, id)| {
        let id = id.split_ascii_whitespace().next()?;
        match id.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => id.parse().ok(),
        }
    });
    Some(JavaThread { name: name.to_owned(), id, ..JavaThread::default() })
}

/// `java.lang.Object.wait(java.base@17.0.15/Native Method)` without the module.
fn without_module(frame: &str) -> String {
    match frame.split_once('(') {
        Some((method, place)) => {
            let place = place.rsplit_once('/').map_or(place, |(_, place)| place);
            format!("{method}({place}")
        }
        None => frame.to_owned(),
    }
}

/// Objects on which a thread waits for a notification: it does not hold them meanwhile.
#[derive(Default)]
struct ReleasedObjects<'a> {
    addresses: Vec<&'a str>,
    /// True if the JVM does not know the object.
    is_unknown: bool,
}

/// Notes the lock of a line; its thread has this state.
fn note_lock<'a>(thread: &mut JavaThread, text: &'a str, state: &str, released: &mut ReleasedObjects<'a>) {
    let Some((words, address, class)) = lock(text) else {
        released.is_unknown |= text.starts_with("waiting on <no object reference");
        return;
    };
    let is_lock_class = || LOCK_CLASSES.iter().any(|of| class.starts_with(of));
    let reference =
        |is_unowned| LockReference { address: address.to_owned(), class: class.to_owned(), is_unowned };
    match words {
        "waiting to lock" => thread.waits_for = Some(reference(false)),
        "waiting to re-lock in wait()" => {
            released.addresses.push(address);
            // Java 9 to 11 print these words for threads that wait for their notification, too.
            if state.starts_with("BLOCKED") {
                thread.waits_for = Some(reference(false));
            }
        }
        "parking to wait for" if is_lock_class() => thread.waits_for = Some(reference(true)),
        "waiting on" => released.addresses.push(address),
        // With an unknown object, any of the locks may be the released one.
        "locked" if released.is_unknown || released.addresses.contains(&address) => {}
        // A line without words is of the list of locks of java.util.concurrent.
        "locked" | "" => thread.holds.push(address.to_owned()),
        _ => {}
    }
}

/// `waiting to lock <0x69df3d298> (a java.lang.Object)`: words, address and class.
fn lock(text: &str) -> Option<(&str, &str, &str)> {
    let (words, rest) = text.split_once('<')?;
    let (address, rest) = rest.split_once('>')?;
    let class = rest.trim().strip_prefix("(a ")?.strip_suffix(')')?;
    Some((words.trim(), address, class))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A dump of Java 17: a holder that sleeps, two threads that wait for it, a parked one, a poller and idle
    /// ones.
    pub(crate) const TEXT: &str = r#"2026-11-30 16:46:41
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6-Debian-1deb12u1 mixed mode, sharing):

"worker-0" #22 prio=5 os_prio=0 cpu=1.88ms elapsed=5.16s tid=0x00007ff718018020 nid=0x5af waiting on condition  [0x1]
   java.lang.Thread.State: TIMED_WAITING (sleeping)
	at java.lang.Thread.sleep(java.base@17.0.15/Native Method)
	at Contended.guarded(Contended.java:4)
	- locked <0x000000069df3d298> (a java.lang.Object)
	at Contended.lambda$main$0(Contended.java:7)

   Locked ownable synchronizers:
	- None

"worker-1" #23 prio=5 os_prio=0 cpu=1.88ms elapsed=5.16s tid=0x00007ff718018021 nid=0x5b0 waiting for monitor entry  [0x2]
   java.lang.Thread.State: BLOCKED (on object monitor)
	at Contended.guarded(Contended.java:4)
	- waiting to lock <0x000000069df3d298> (a java.lang.Object)
	at Contended.lambda$main$0(Contended.java:7)

"worker-2" #24 prio=5 os_prio=0 cpu=1.88ms elapsed=5.16s tid=0x00007ff718018022 nid=1457 waiting for monitor entry  [0x3]
   java.lang.Thread.State: BLOCKED (on object monitor)
	at Contended.guarded(Contended.java:4)
	- waiting to lock <0x000000069df3d298> (a java.lang.Object)
	at Contended.lambda$main$0(Contended.java:7)

"rw-1" #26 prio=5 os_prio=0 cpu=0.88ms elapsed=5.16s tid=0x00007ff718018023 nid=0x5b2 waiting on condition  [0x4]
   java.lang.Thread.State: WAITING (parking)
	at jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)
	- parking to wait for  <0x000000069df40000> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)
	at java.util.concurrent.locks.LockSupport.park(java.base@17.0.15/LockSupport.java:211)
	at Contended.locked(Contended.java:5)

"Finalizer" #3 daemon prio=8 os_prio=0 cpu=0.32ms elapsed=5.03s tid=0x00007ff7180f8030 nid=0x5b7 in Object.wait()  [0x5]
   java.lang.Thread.State: WAITING (on object monitor)
	at java.lang.Object.wait(java.base@17.0.15/Native Method)
	- waiting on <0x000000069dd0c318> (a java.lang.ref.ReferenceQueue$Lock)
	at java.lang.ref.ReferenceQueue.remove(java.base@17.0.15/ReferenceQueue.java:155)
	- locked <0x000000069dd0c318> (a java.lang.ref.ReferenceQueue$Lock)

"a \"quoted\" poller" #4 prio=5 os_prio=0 cpu=0.38ms elapsed=4.96s tid=0x00007ff7180ffca0 nid=0x5b8 runnable  [0x6]
   java.lang.Thread.State: RUNNABLE
	at sun.nio.ch.EPoll.wait(java.base@17.0.15/Native Method)
	at sun.nio.ch.EPollSelectorImpl.doSelect(java.base@17.0.15/EPollSelectorImpl.java:118)

"busy" #5 prio=5 os_prio=0 cpu=0.38ms elapsed=4.96s tid=0x00007ff7180ffca1 nid=0x5b9 runnable  [0x7]
   java.lang.Thread.State: RUNNABLE
	at Contended.work(Contended.java:9)

"consumer" #6 prio=5 os_prio=0 cpu=0.38ms elapsed=4.96s tid=0x00007ff7180ffca2 nid=0x5ba waiting on condition  [0x8]
   java.lang.Thread.State: WAITING (parking)
	at jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)
	- parking to wait for  <0x7> (a java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject)

"VM Thread" os_prio=0 cpu=24.44ms elapsed=5.05s tid=0x00007ff7180f2f90 nid=0x5b5 runnable

JNI global refs: 17, weak refs: 0
"#;

    #[test]
    fn threads_of_a_dump_have_stacks_waits_and_held_locks() {
        let dump = Dump::parse(TEXT);
        let of = |name: &str| dump.threads.iter().find(|thread| thread.name == name).expect("it is there");
        assert_eq!(dump.threads.len(), 9);
        assert_eq!((of("worker-0").id, of("worker-2").id), (Some(0x5af), Some(1457)));
        assert_eq!(of("worker-0").holds, ["0x000000069df3d298"]);
        assert_eq!(of("worker-0").stack[0], "java.lang.Thread.sleep(Native Method)");
        let lock = of("worker-1").waits_for.as_ref().expect("it waits");
        assert_eq!((lock.address.as_str(), lock.class.as_str()), ("0x000000069df3d298", "java.lang.Object"));
        let parked = of("rw-1").waits_for.as_ref().expect("it waits");
        assert_eq!(parked.class, "java.util.concurrent.locks.ReentrantLock$NonfairSync");
        assert!(of("Finalizer").holds.is_empty(), "it has released what it waits on");
        assert_eq!(of("consumer").waits_for, None, "it waits for work");
        let running: Vec<&str> =
            dump.threads.iter().filter(|thread| thread.is_running).map(|thread| &*thread.name).collect();
        assert_eq!(running, ["busy"]);
        assert!(dump.waits_for_unowned());
    }

    #[test]
    fn a_list_of_owned_locks_names_the_holder() {
        let text = format!(
            "{TEXT}\n\"rw-0\" #25 prio=5 tid=0x1 nid=0x5b1 sleeping [0x1]\n   java.lang.Thread.State: TIMED_WAITING\n\tat \
             Contended.locked(Contended.java:5)\n\n   Locked ownable synchronizers:\n\t- <0x000000069df40000> (a \
             java.util.concurrent.locks.ReentrantLock$NonfairSync)\n"
        );
        let dump = Dump::parse(&text);
        assert_eq!(dump.threads.last().expect("there").holds, ["0x000000069df40000"]);
        assert!(!dump.waits_for_unowned());
    }

    /// A thread in `Object.wait` as Java 11 prints it, with this state and object.
    fn in_wait(state: &str, object: &str) -> JavaThread {
        let text = format!(
            "\n\"reaper\" #9 prio=5 tid=0x1 nid=0x7 in Object.wait()  [0x1]\n   java.lang.Thread.State: {state}\n\tat \
             java.lang.Object.wait(java.base@11.0.2/Native Method)\n\t- waiting on {object}\n\tat \
             Reaper.next(Reaper.java:5)\n\t- {words} <0x7> (a java.lang.Object)\n",
            words = if object.starts_with("<no") { "locked" } else { "waiting to re-lock in wait()" },
        );
        Dump::parse(&text).threads.remove(0)
    }

    #[test]
    fn a_thread_in_wait_waits_for_a_lock_only_after_its_notification() {
        let idle = in_wait("WAITING (on object monitor)", "<0x7> (a java.lang.Object)");
        assert_eq!((idle.waits_for, idle.holds), (None, Vec::new()));
        let blocked = in_wait("BLOCKED (on object monitor)", "<0x7> (a java.lang.Object)");
        assert_eq!(blocked.waits_for.map(|lock| lock.address), Some("0x7".to_owned()));
        assert_eq!(blocked.holds, Vec::<String>::new());
    }

    #[test]
    fn a_thread_in_wait_for_an_unknown_object_holds_nothing() {
        let idle = in_wait("WAITING (on object monitor)", "<no object reference available>");
        assert_eq!((idle.waits_for, idle.holds), (None, Vec::new()));
    }

    #[test]
    fn text_that_is_no_dump_has_no_threads() {
        for text in ["", "\"", "x\n\"y", "\n\"\"\n- locked <"] {
            assert!(Dump::parse(text).threads.iter().all(|thread| thread.stack.is_empty()), "{text:?}");
        }
    }
}
