//! The inside of the processes of a workload's points: threads and locks of the representative repetition,
//! and stacks of all of them.

use super::flame;
use super::palette::Palette;
use super::text::{escape, folded, table};
use super::timeline::typical;
use crate::quantity;
use crate::result::{
    CpuProfile, Lock, LockUse, PointResult, ProcessProfile, Repetition, ThreadUse, Waits, WorkloadResult,
};

/// Kinds of threads with a row, of which the others share one, and places of waits.
const ROWS_MAX: usize = 12;

/// The tables; empty for runs without `--look-inside`.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let mut missing: Vec<&String> = Vec::new();
    let mut points = String::new();
    for point in &workload.points {
        let Some(repetition) = typical(point).map(|index| &point.repetitions[index]) else { continue };
        let Some(profile) = &repetition.profile else { continue };
        let title = format!("{}, {}", point.point.label, palette.of_point(point).name);
        let all = point.repetitions.iter().filter_map(|one| one.profile.as_ref());
        let cpu = all.clone().flat_map(|profile| &profile.processes).filter_map(|one| one.cpu.as_ref());
        let flames = match flame::markup(&cpu.collect::<Vec<&CpuProfile>>()) {
            empty if empty.is_empty() => empty,
            graph => format!("<h4>Processor time of the brokers by stack, all repetitions</h4>{graph}"),
        };
        points += &folded(&title, &(of_point(point, repetition, &profile.processes) + &flames), false);
        missing.extend(all.flat_map(|profile| &profile.missing));
    }
    if points.is_empty() && missing.is_empty() {
        return String::new();
    }
    missing.sort();
    missing.dedup();
    let mut markup =
        "<p class=\"dim\">The repetition with the median rate. Digits in the names of threads are *. \
                      Threads are sampled about once a second, locks by thread dumps.</p>"
            .to_owned();
    for what in missing {
        markup += &format!("<p class=\"dim\">Not seen: {}.</p>", escape(what));
    }
    markup + &points
}

fn of_point(point: &PointResult, repetition: &Repetition, processes: &[ProcessProfile]) -> String {
    let measured_s = repetition.measured_s.max(0.001);
    let rows: Vec<Vec<String>> =
        processes.iter().flat_map(|process| thread_rows(process, measured_s)).collect();
    let heads = [
        "process",
        "threads",
        "count",
        "processors",
        "in the kernel",
        "busiest thread",
        "gave up its processor, /s",
        "lost its processor, /s",
        "ready without a processor",
    ];
    let mut markup = if rows.is_empty() { String::new() } else { table(&heads, 2, &rows) };
    for process in processes {
        if let Some(waits) = &process.waits {
            markup += &of_waits(&process.name, waits);
        }
        if let Some(locks) = &process.locks {
            markup += &of_locks(&process.name, locks, &point.verdict.limit);
        }
    }
    markup
}

fn thread_rows(process: &ProcessProfile, measured_s: f64) -> Vec<Vec<String>> {
    let (shown, others) = process.threads.split_at(process.threads.len().min(ROWS_MAX));
    let name = escape(&process.name);
    let mut rows: Vec<Vec<String>> =
        shown.iter().map(|used| thread_row(&name, &escape(&used.name), used, measured_s)).collect();
    if !others.is_empty() {
        let mut sum = ThreadUse { run_queue_s: Some(0.0), ..ThreadUse::default() };
        for used in others {
            sum.threads += used.threads;
            sum.user_s += used.user_s;
            sum.system_s += used.system_s;
            sum.busiest = sum.busiest.max(used.busiest);
            sum.voluntary_switches += used.voluntary_switches;
            sum.involuntary_switches += used.involuntary_switches;
            sum.run_queue_s = sum.run_queue_s.zip(used.run_queue_s).map(|(sum, more)| sum + more);
        }
        let title = format!("<span class=\"dim\">{} other kinds</span>", others.len());
        rows.push(thread_row(&name, &title, &sum, measured_s));
    }
    if process.unseen_cpu_s > 0.0 {
        let title = "<span class=\"dim\">in no sample of a thread</span>".to_owned();
        let processors = quantity::number(process.unseen_cpu_s / measured_s);
        let mut row = vec![name, title, String::new(), processors];
        row.resize(9, String::new());
        rows.push(row);
    }
    rows
}

fn thread_row(process: &str, title: &str, used: &ThreadUse, measured_s: f64) -> Vec<String> {
    let number = |value: f64| if value == 0.0 { "0".to_owned() } else { quantity::number(value) };
    let waited = match used.run_queue_s {
        Some(waited_s) => quantity::percent(waited_s / measured_s / f64::from(used.threads.max(1))),
        None => "<span class=\"dim\">unknown</span>".to_owned(),
    };
    vec![
        process.to_owned(),
        title.to_owned(),
        quantity::count(u64::from(used.threads)),
        number((used.user_s + used.system_s) / measured_s),
        number(used.system_s / measured_s),
        quantity::percent(used.busiest),
        number(used.voluntary_switches as f64 / measured_s),
        number(used.involuntary_switches as f64 / measured_s),
        waited,
    ]
}

/// The waits in a broker, by place.
fn of_waits(process: &str, waits: &Waits) -> String {
    let head = format!("<h4>Waits in {}</h4>", escape(process));
    if waits.places.is_empty() {
        return format!("{head}<p>Nothing waited.</p>");
    }
    let rows: Vec<Vec<String>> = waits
        .places
        .iter()
        .take(ROWS_MAX)
        .map(|wait| {
            let mean_us = wait.waited_s * 1e6 / (wait.count as f64).max(1.0);
            vec![
                escape(&wait.place),
                quantity::number(wait.count as f64 / waits.seconds.max(0.001)),
                quantity::time_us(mean_us),
                quantity::number(waits.at_once(wait)),
            ]
        })
        .collect();
    let note = "<p class=\"dim\">From the broker's metrics at the start and the end of the measurement. A request passes \
                through several stages; threads wait for locks and syncs while they serve it.</p>";
    format!("{head}{note}{}", table(&["place", "waits/s", "mean", "waiting at once"], 1, &rows))
}

fn of_locks(process: &str, used: &LockUse, limit: &str) -> String {
    let head = format!(
        "<h4>Locks of {}</h4><p>In {} thread dumps, {} threads waited for a lock, and {} ran.</p>",
        escape(process),
        quantity::count(u64::from(used.dumps)),
        quantity::count(used.waiting),
        quantity::count(used.running),
    );
    let locks = used.locks.iter().enumerate().map(|(number, lock)| {
        let open = number == 0 && limit == "lock";
        folded(&title(used, lock), &stacks(lock), open)
    });
    head + &locks.collect::<String>()
}

fn title(used: &LockUse, lock: &Lock) -> String {
    let held = match &lock.holder {
        Some(holder) => format!(
            "held by {} at {} ({} of {} dumps)",
            holder.thread,
            holder.stack.first().map_or("an unknown frame", String::as_str),
            holder.dumps,
            holder.dumps_with_holder
        ),
        None => "no dump shows its holder".to_owned(),
    };
    let instances = match lock.instances_max {
        0 | 1 => String::new(),
        count => format!(", up to {count} locks of this kind at once"),
    };
    format!(
        "{} of running and waiting threads: {} at {}, up to {} waiting at once{instances}; {held}",
        quantity::percent(used.share(lock)),
        lock.class,
        lock.waits_at,
        lock.waiting_max,
    )
}

fn stacks(lock: &Lock) -> String {
    let stack = |title: &str, frames: &[String]| {
        format!("<p>{title}</p><pre class=\"scroll\" tabindex=\"0\">{}</pre>", escape(&frames.join("\n")))
    };
    let mut markup = stack("The most frequent stack of waiting threads:", &lock.waiting_stack);
    if let Some(holder) = &lock.holder {
        markup += &stack("The most frequent stack of the holder:", &holder.stack);
    }
    markup
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;
    use crate::result::{Holder, Profile, Wait};

    #[test]
    fn threads_and_locks_are_shown_with_both_stacks_and_what_is_missing() {
        let mut run = testing::run(&[("1 broker", 2.0)]);
        let thread = |name: &str| ThreadUse {
            name: name.to_owned(),
            threads: 8,
            user_s: 20.0,
            voluntary_switches: 1230,
            ..ThreadUse::default()
        };
        let lock = Lock {
            class: "java.lang.Object".to_owned(),
            waits_at: "Log.append(Log.scala:7)".to_owned(),
            waiting: 60,
            waiting_max: 9,
            waiting_stack: vec!["Log.append(Log.scala:7)".to_owned(), "Thread.<init>".to_owned()],
            holder: Some(Holder {
                thread: "cleaner".to_owned(),
                dumps: 2,
                dumps_with_holder: 3,
                stack: vec!["Log.roll(Log.scala:9)".to_owned()],
            }),
            ..Lock::default()
        };
        let process = ProcessProfile {
            name: "broker-1".to_owned(),
            threads: (0..ROWS_MAX + 2).map(|number| thread(&format!("kind {number}"))).collect(),
            unseen_cpu_s: 5.0,
            locks: Some(LockUse { dumps: 10, waiting: 60, running: 40, locks: vec![lock] }),
            cpu: Some(CpuProfile {
                method: "perf".to_owned(),
                samples: 7,
                frames: vec!["a thread".to_owned()],
                stacks: vec![(vec![0], 7)],
                ..CpuProfile::default()
            }),
            ..ProcessProfile::default()
        };
        for point in &mut run.workloads[0].points {
            for one in &mut point.repetitions {
                one.measured_s = 10.0;
                one.profile = Some(Profile {
                    processes: vec![process.clone()],
                    missing: vec!["locks of <x>: none".to_owned()],
                });
            }
        }
        let page = crate::report::html(&run);
        assert!(page.contains("<td>kind 11</td><td class=\"n\">8</td><td class=\"n\">2.00</td>"), "{page}");
        assert!(
            !page.contains("<td>kind 12</td>")
                && page.contains("2 other kinds</span></td><td class=\"n\">16</td>")
        );
        assert!(
            page.contains(
                "in no sample of a thread</span></td><td class=\"n\"></td><td class=\"n\">0.500</td>"
            )
        );
        assert!(
            page.contains("Not seen: locks of &lt;x&gt;: none.") && page.contains("<td class=\"n\">123</td>")
        );
        let title = "60 % of running and waiting threads: java.lang.Object at Log.append(Log.scala:7), up to 9 waiting at \
                     once; held by cleaner at Log.roll(Log.scala:9) (2 of 3 dumps)";
        assert!(page.contains(title), "{page}");
        assert!(page.contains("Log.append(Log.scala:7)\nThread.&lt;init&gt;</pre>"), "{page}");
        assert!(page.contains("21 samples, by perf."), "those of three repetitions: {page}");
        assert!(page.contains(">unknown</span>"), "no time in run queues: {page}");
        assert!(!crate::report::html(&testing::run(&[("1 broker", 2.0)])).contains("Inside the processes"));
    }

    #[test]
    fn waits_are_shown_by_place() {
        let place = Wait { place: "syncs of logs".to_owned(), count: 100, waited_s: 5.0 };
        let markup = of_waits("broker-<1>", &Waits { seconds: 10.0, places: vec![place] });
        let row = "syncs of logs</th><td class=\"n\">10.0</td><td class=\"n\">50.0 ms</td><td class=\"n\">0.500</td>";
        assert!(markup.contains(row) && markup.contains("Waits in broker-&lt;1&gt;"), "{markup}");
        assert!(of_waits("broker-1", &Waits::default()).contains("Nothing waited."));
    }
}
