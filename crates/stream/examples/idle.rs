//! The cost of idle `kafka` sources: start time, memory per source, and processor time of all. Each source
//! first reads the one record of its topic, so it has joined, found its position and fetched.
//!
//! `cargo run --release -p thalweg-stream --example idle -- localhost:9092 TOPIC 1000 [group]`, where TOPIC
//! has one record.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use thalweg_stream::module::StageOutput;
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{RunOptions, Taps, start};
use thalweg_stream::{Cluster, Guarantee, OnError, Reach};
use tokio::time::{Instant, sleep};

/// How long the sources stay idle.
const IDLE: Duration = Duration::from_secs(30);
/// Limit for their start.
const START_MAX: Duration = Duration::from_secs(60);
/// The kernel's unit of processor time.
const TICKS_PER_SECOND: f64 = 100.0;

struct StandardOutput;

impl StageOutput for StandardOutput {
    fn line(&self, text: &str) {
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}

/// VmRSS, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// Processor time so far, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Skip the program's name, which may contain blanks.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, count, ..] = &arguments[..] else {
        return Err("usage: idle BOOTSTRAP TOPIC COUNT [group]".into());
    };
    let (count, in_group): (usize, bool) = (count.parse()?, arguments.len() > 3);
    let stream = |number: usize| {
        let group =
            if in_group { format!("--group=idle-{}-{number}", std::process::id()) } else { String::new() };
        format!("s{number} = kafka --bootstrap={bootstrap} --topics={topic} {group} | null\n")
    };
    let plan = Plan::read(&(0..count).map(stream).collect::<String>(), None, "stream")?;
    let options = RunOptions {
        reach: Reach::everything().into(),
        on_error: OnError::Fail,
        cluster: Cluster { bootstrap: bootstrap.clone(), properties: None },
        guarantee: Guarantee::AtLeastOnce,
        instance: "0".to_owned(),
        console: Arc::new(StandardOutput),
        taps: Taps::default(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let lines = runtime.block_on(async {
        let (before_kib, before_seconds, began) = (resident_kib(), processor_seconds(), Instant::now());
        let mut running = start(&plan, &options)?;
        let has_read = |running: &thalweg_stream::runtime::RunningStreams| {
            let figures = running.figures();
            figures.streams.iter().filter(|stream| stream.stages[0].messages_out > 0).count()
        };
        while has_read(&running) < count && began.elapsed() < START_MAX {
            sleep(Duration::from_millis(10)).await;
        }
        let (took, started) = (began.elapsed(), has_read(&running));
        let starting_seconds = processor_seconds() - before_seconds;
        sleep(Duration::from_secs(5)).await;
        let (idle_from, used) = (processor_seconds(), resident_kib().saturating_sub(before_kib));
        sleep(IDLE).await;
        let idle = (processor_seconds() - idle_from) / IDLE.as_secs_f64();
        let after = resident_kib().saturating_sub(before_kib);
        let lines = format!(
            "{started} of {count} sources have read their record after {:.2} s, with {starting_seconds:.2} s of processor time\n\
             {:.1} KiB each ({before_kib} KiB before, {used} KiB more, {after} KiB more at the end), {} threads in all\n\
             {:.1} % of a core while idle for {} s",
            took.as_secs_f64(),
            used as f64 / count as f64,
            threads(),
            100.0 * idle,
            IDLE.as_secs(),
        );
        running.stopper().stop();
        running.ended().await?;
        Ok::<_, Box<dyn std::error::Error>>(lines)
    })?;
    writeln!(std::io::stdout(), "{lines}")?;
    Ok(())
}
