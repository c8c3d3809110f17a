//! Runs seeds of the simulation, several at once, and prints seeds with violations.

use clap::Parser;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thalweg_sim::{FailedCall, MadeCall, Outcome, Plan, Trial, TrialOutcome, run_plan};

/// Runs a cluster in simulation, once for each seed, and checks that no acknowledged record is lost, that
/// groups of each protocol (classic, consumer, share, streams) keep their promises, and that the cluster
/// recovers after the last fault. Exits with 1 if a seed fails a check.
#[derive(Parser)]
#[command(name = "thalweg-sim", version)]
struct Arguments {
    /// The seeds: one, or FROM..TO without the last.
    #[arg(long, value_parser = seeds)]
    seeds: Range<u64>,
    /// Number of concurrent runs.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Log directories fill up, and have room again.
    #[arg(long)]
    full_disks: bool,
    /// In place of a cluster, a single broker of which one log directory fills up.
    #[arg(long)]
    full_dir: bool,
    /// In place of a cluster, a single broker whose disk fails one call: one run for every call of a seed's
    /// first run.
    #[arg(long)]
    failing_calls: bool,
    /// Fail only every Nth of the calls that may fail.
    #[arg(long, default_value_t = 1, requires = "failing_calls")]
    every: usize,
    /// Fail only calls of a kind and file whose name contains this, for example "Rename log/".
    #[arg(long, default_value = "", requires = "failing_calls")]
    class: String,
    /// Fail only the call with this number.
    #[arg(long, requires = "failing_calls")]
    call: Option<usize>,
    /// Runs each seed twice and compares.
    #[arg(long)]
    twice: bool,
    /// Print the logs of the processes, filtered by `RUST_LOG`.
    #[arg(long)]
    log: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is neither a seed nor FROM..TO");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.log {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(std::io::stderr).init();
    }
    if arguments.full_dir {
        return fill_dirs(&arguments);
    }
    if arguments.failing_calls {
        return fail_calls(&arguments);
    }
    let next = AtomicU64::new(arguments.seeds.start);
    let found = AtomicU64::new(0);
    let restless = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !arguments.seeds.contains(&seed) {
                        return;
                    }
                    let plan =
                        if arguments.full_disks { Plan::with_full_disks(seed) } else { Plan::of(seed) };
                    let plan = Plan { keeps_trace: arguments.twice, ..plan };
                    let mut outcome = run_plan(seed, plan.clone());
                    if arguments.twice {
                        let second = run_plan(seed, plan);
                        outcome.violations.extend(difference(&outcome, &second));
                    }
                    found.fetch_add(u64::from(!outcome.violations.is_empty()), Ordering::Relaxed);
                    restless.fetch_add(u64::from(outcome.unrest.is_some()), Ordering::Relaxed);
                    print(&outcome);
                }
            });
        }
    });
    let (found, restless) = (found.into_inner(), restless.into_inner());
    let seeds = arguments.seeds.end - arguments.seeds.start;
    print_line(&format!("{seeds} seeds, {found} with violations"));
    print_line(&format!("{seeds} seeds, {restless} not at rest"));
    if found == 0 && restless == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fails disk calls, one per run.
fn fail_calls(arguments: &Arguments) -> ExitCode {
    let (mut runs, mut found) = (0, 0);
    let kinds: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let silent = AtomicUsize::new(0);
    for seed in arguments.seeds.clone() {
        let whole = Trial::of(seed).run();
        let (calls, acknowledged) = (whole.calls.len(), whole.acknowledged);
        print_line(&format!("seed {seed}: {calls} calls, {acknowledged} acknowledged"));
        for what in &whole.violations {
            found += 1;
            print_line(&format!("seed {seed} without a failure: VIOLATION: {what}"));
        }
        let numbers = match arguments.call {
            Some(number) => vec![number],
            None => {
                let first = usize::try_from(seed).unwrap_or(0) % arguments.every.max(1);
                let every = (first..calls).step_by(arguments.every.max(1));
                every.filter(|number| whole.calls[*number].class().contains(&arguments.class)).collect()
            }
        };
        let next = AtomicUsize::new(0);
        let wrong = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..arguments.threads.max(1) {
                scope.spawn(|| {
                    while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let trial = Trial::of(seed).failing(number, &whole);
                        let outcome = trial.run();
                        for what in &outcome.violations {
                            let class = outcome.failed.as_ref().map(MadeCall::class).unwrap_or_default();
                            *kinds.lock().entry(format!("{class}: {}", kind_of(what))).or_insert(0) += 1;
                        }
                        silent.fetch_add(usize::from(outcome.is_silent), Ordering::Relaxed);
                        wrong.fetch_add(usize::from(!outcome.violations.is_empty()), Ordering::Relaxed);
                        print_trial(&trial, &outcome, arguments.call.is_some());
                    }
                });
            }
        });
        runs += numbers.len();
        found += wrong.into_inner();
    }
    for (kind, count) in kinds.into_inner() {
        print_line(&format!("{count:5} {kind}"));
    }
    print_line(&format!(
        "{runs} runs, {found} with violations, {} of which the log says nothing",
        silent.into_inner()
    ));
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fills a log directory of a single broker, in one run per seed.
fn fill_dirs(arguments: &Arguments) -> ExitCode {
    let mut found = 0;
    for seed in arguments.seeds.clone() {
        let trial = Trial::of(seed).with_full_dir();
        let outcome = trial.run();
        print_line(&format!("seed {seed}: {} acknowledged, {:?}", outcome.acknowledged, trial.full));
        found += usize::from(!outcome.violations.is_empty());
        for what in &outcome.violations {
            print_line(&format!("  VIOLATION: {what}"));
        }
        let shown = if arguments.log { usize::MAX } else { 6 * usize::from(!outcome.violations.is_empty()) };
        outcome.lines.iter().take(shown).for_each(|line| print_line(&format!("  | {line}")));
    }
    print_line(&format!("{found} seeds with violations"));
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A violation without its numbers, for grouping.
fn kind_of(what: &str) -> String {
    what.chars().filter(|letter| !letter.is_ascii_digit()).take(90).collect::<String>().replace('\n', " ")
}

fn print_trial(trial: &Trial, outcome: &TrialOutcome, all: bool) {
    let Some(FailedCall { number, error, half, ending }) = trial.failed else { return };
    let call = outcome.failed.as_ref().map_or_else(
        || "was not made".to_owned(),
        |made| format!("{:?} of {} in life {}", made.call, made.path.display(), made.life),
    );
    if !all && outcome.violations.is_empty() && !outcome.is_silent {
        return;
    }
    let half = if half { "half of it, then " } else { "" };
    print_line(&format!("seed {} call {number}, {call}: {half}{error:?}, then {ending:?}", trial.seed));
    for what in &outcome.violations {
        print_line(&format!("  VIOLATION: {what}"));
    }
    if outcome.is_silent {
        print_line("  the log says nothing of it");
    }
    for line in outcome.lines.iter().take(if all { usize::MAX } else { 6 }) {
        print_line(&format!("  | {line}"));
    }
}

/// The first difference between two runs of a seed.
fn difference(first: &Outcome, second: &Outcome) -> Option<String> {
    if first.digest == second.digest {
        return None;
    }
    let at = first.trace.iter().zip(&second.trace).take_while(|(one, other)| one == other).count();
    let line = |trace: &[String]| trace.get(at).map_or_else(|| "nothing".to_owned(), String::clone);
    let (one, other) = (line(&first.trace), line(&second.trace));
    Some(format!("a second run differs from message {at} on:\n  {one}\n  {other}"))
}

fn print(outcome: &Outcome) {
    let Outcome {
        seed,
        digest,
        acknowledged,
        read,
        committed,
        shared,
        streamed,
        messages,
        faults,
        simulated,
        violations,
        ..
    } = outcome;
    let seconds = simulated.as_secs();
    print_line(&format!(
        "seed {seed}: {acknowledged} acknowledged, {read} read, {committed} transactions, {shared} shared, {streamed} tasks, {faults} faults, {messages} messages, {seconds} s, {digest:016x}"
    ));
    if let Some(why) = &outcome.unrest {
        print_line(&format!("seed {seed}: not at rest: {why}"));
    }
    for what in violations {
        print_line(&format!("seed {seed}: VIOLATION: {what}"));
    }
}

/// Errors of a closed output are ignored: the exit code has the result.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
