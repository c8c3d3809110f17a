//! Waits before a repetition until the other targets' brokers are idle. Otherwise their remaining work, as
//! after an unsustained rate, would disturb the measurement of the next target.

use std::time::Duration;

use tokio::time::Instant;

use crate::proc;

/// Duration of each measurement of the brokers' processor time.
const LOOK: Duration = Duration::from_millis(500);
/// Processors in use, below which the brokers count as idle. An idle JVM takes some hundredths.
const REST: f64 = 0.2;
/// Maximum wait for idle brokers.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until these processes are idle. After the timeout, returns a note for readers of the result.
pub(super) async fn await_idle(processes: &[u32]) -> Option<String> {
    let began = Instant::now();
    let mut before = used(processes);
    loop {
        let looked_at = Instant::now();
        tokio::time::sleep(LOOK).await;
        let now = used(processes);
        let share = since(&before, &now).as_secs_f64() / looked_at.elapsed().as_secs_f64();
        if share <= REST {
            return None;
        }
        if began.elapsed() >= TIMEOUT {
            return Some(format!(
                "brokers of other targets still used {:.0} % of a processor when this began, after {} s of waiting",
                share * 100.0,
                TIMEOUT.as_secs()
            ));
        }
        before = now;
    }
}

/// Processor time that each process has used; `None` for a process that has exited.
fn used(processes: &[u32]) -> Vec<Option<Duration>> {
    processes.iter().map(|&pid| proc::processor_time(pid)).collect()
}

/// Processor time used between two measurements. A process that has exited meanwhile must not hide the use of
/// the others.
fn since(before: &[Option<Duration>], now: &[Option<Duration>]) -> Duration {
    let each = before.iter().zip(now);
    each.filter_map(|(before, now)| Some((*now)?.saturating_sub((*before)?))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn busy_processes_are_waited_for() {
        // Several, so that their share is large on a machine with many other busy processes, too.
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("starts");
        let mut busy = [spin(), spin(), spin(), spin()];
        let pids = busy.each_ref().map(|process| process.id());
        let waited = tokio::time::timeout(LOOK * 4, await_idle(&pids)).await;
        for process in &mut busy {
            process.kill().expect("ends");
            process.wait().expect("ended");
        }
        waited.expect_err("they are not at rest");
    }

    #[test]
    fn a_process_that_ends_hides_no_other() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let used = since(&[ms(90_000), ms(100), None], &[None, ms(400), ms(7)]);
        assert_eq!(used, Duration::from_millis(300));
    }

    #[tokio::test]
    async fn processes_at_rest_and_none_at_all_are_not() {
        let mut idle = Command::new("sleep").arg("60").spawn().expect("starts");
        let note = await_idle(&[idle.id()]).await;
        idle.kill().expect("ends");
        idle.wait().expect("ended");
        assert_eq!(note, None);
        assert_eq!(await_idle(&[]).await, None);
    }
}
