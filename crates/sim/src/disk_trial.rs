//! A trial of a single broker whose disk fails one call or fills up: load, fault, end of the process,
//! restart, audit.
//!
//! A broker with its controller runs on an in-memory disk with two log directories, through several lives.
//! Each life has load, and ends by a clean stop, by SIGKILL or by a loss of power. A run without a failure
//! counts the calls to the disk. A run with a failure fails one of these calls, completes the life, and
//! starts the broker again. Then every acknowledged, unexpired record must exist once, at its offset, and
//! every partition must take records. Failures without a log line are counted. A run with a full directory
//! frees it before the life ends: the partitions of the other directory must not be affected.

mod audit;
mod books;
mod lines;
mod load;
mod node;
mod producer;
mod transactions;

use crate::chance::Chance;
use crate::machine::{ProcessEnd, SimMachine};
use crate::network::{Delays, MachineId, SharedNetwork};
use crate::panics;
use crate::plan::TICK_MS;
use books::Books;
use lines::Lines;
use load::Load;
use node::DIRS;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_log::disk::{CallEffect, CallError, DiskCall};

/// The machine of the broker and its controller.
const NODE: MachineId = 0;
const CLIENTS: MachineId = 1;
const NAMES: [&str; 2] = ["b1", "clients"];

/// Number of lives before the audited one.
const LIVES: usize = 3;
/// Time limit for the load of a life.
const LOAD_MS_MAX: u64 = 20_000;
/// Time limit for checking that every partition takes records.
const PROBE_MS_MAX: u64 = 60_000;
/// Time limit for a clean stop.
const STOP_MS_MAX: u64 = 15_000;
/// Time limits for the start of the last life and for its audit.
const START_MS_MAX: u64 = 30_000;
const AUDIT_MS_MAX: u64 = 60_000;
/// Time until a process is restarted.
const DOWN_MS: u64 = 200;

/// The end of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The process is stopped and closes its logs.
    Stop,
    /// SIGKILL: written data stays.
    Kill,
    /// A loss of power: unsynced data may be lost.
    PowerLoss,
}

/// The call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Call number, from 0.
    pub number: usize,
    /// The returned error.
    pub error: CallError,
    /// True if half of the call takes effect.
    pub half: bool,
    /// The end of the life with the failed call.
    pub ending: Ending,
}

/// A disk call of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCall {
    /// Kind of call.
    pub call: DiskCall,
    /// File of the call.
    pub path: PathBuf,
    /// Life of the broker, from 0.
    pub life: usize,
}

/// A log directory that fills up during a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullDir {
    /// Life of the broker, from 0.
    pub life: usize,
    /// Index of the directory.
    pub dir: usize,
    /// Time since the start of the load.
    pub after_ms: u64,
    /// Free bytes from then on.
    pub room: u64,
    /// Duration in milliseconds.
    pub for_ms: u64,
}

/// The settings of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The seed of all random choices.
    pub seed: u64,
    /// True if each record is synced before it is acknowledged, so that power may be lost.
    pub flushes: bool,
    /// The call that fails, if any.
    pub failed: Option<FailedCall>,
    /// The directory that fills up, if any.
    pub full: Option<FullDir>,
}

/// The outcome of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialOutcome {
    pub violations: Vec<String>,
    /// All calls of the lives before the audited one.
    pub calls: Vec<MadeCall>,
    /// The call that failed.
    pub failed: Option<MadeCall>,
    /// True if the failed call changes the disk and no log line reports the failure.
    pub is_silent: bool,
    /// Log lines since the failure, from INFO up.
    pub lines: Vec<String>,
    /// Number of acknowledged records.
    pub acknowledged: u64,
}

/// The calls so far, and the failing one.
struct Watch {
    calls: Vec<MadeCall>,
    life: usize,
    failing: Option<FailedCall>,
    /// True if the rest of a half-done write has to fail.
    rest_fails: bool,
    failed: Option<MadeCall>,
    lines: Lines,
}

struct TrialRun {
    trial: Trial,
    network: SharedNetwork,
    node: SimMachine,
    clients: SimMachine,
    now_ms: u64,
    books: Arc<Mutex<Books>>,
    watch: Arc<Mutex<Watch>>,
    chance: Chance,
}

impl FailedCall {
    /// A failure of a call by seed: an error that this kind of call can have.
    pub fn draw(seed: u64, number: usize, made: &MadeCall, flushes: bool) -> FailedCall {
        use CallError::{Denied, InputOutput, NoSpace, TooManyOpen};
        let mut chance = Chance::new(seed ^ (number as u64).wrapping_mul(0x0100_0000_01b3), 10);
        let errors: &[CallError] = match made.call {
            DiskCall::Create => &[NoSpace, InputOutput, Denied, TooManyOpen],
            DiskCall::CreateDir | DiskCall::Rename => &[NoSpace, InputOutput, Denied],
            DiskCall::Write => &[NoSpace, NoSpace, InputOutput],
            DiskCall::Truncate | DiskCall::Allocate | DiskCall::Sync | DiskCall::SyncAll => {
                &[NoSpace, InputOutput]
            }
            DiskCall::SyncDir => &[InputOutput, TooManyOpen],
            DiskCall::Open | DiskCall::List => &[InputOutput, Denied, TooManyOpen],
            DiskCall::Remove | DiskCall::Stat => &[InputOutput, Denied],
            DiskCall::Read => &[InputOutput],
        };
        let endings = [Ending::Kill, Ending::Kill, Ending::Stop, Ending::PowerLoss];
        // Power may be lost only if all acknowledged records are synced.
        let endings = if flushes { &endings[..] } else { &endings[..3] };
        let half = matches!(made.call, DiskCall::Write | DiskCall::Remove) && chance.one_in(3);
        FailedCall { number, error: *chance.pick(errors), half, ending: *chance.pick(endings) }
    }
}

impl Trial {
    /// The trial of a seed without a failure. In every second trial, records are synced before they are
    /// acknowledged.
    pub fn of(seed: u64) -> Trial {
        Trial { seed, flushes: seed % 2 == 1, failed: None, full: None }
    }

    /// The same trial with a directory that fills up.
    pub fn with_full_dir(self) -> Trial {
        let mut chance = Chance::new(self.seed, 11);
        let below = |end: usize, chance: &mut Chance| usize::try_from(chance.below(end as u64)).unwrap_or(0);
        let full = FullDir {
            life: below(LIVES, &mut chance),
            dir: below(DIRS.len(), &mut chance),
            after_ms: chance.below(2_000),
            room: chance.below(16_000),
            for_ms: chance.between(500, 5_000),
        };
        Trial { full: Some(full), ..self }
    }

    /// The same trial with a failed call; `whole` is the outcome without a failure.
    pub fn failing(self, number: usize, whole: &TrialOutcome) -> Trial {
        let failed = whole.calls.get(number);
        Trial { failed: failed.map(|made| FailedCall::draw(self.seed, number, made, self.flushes)), ..self }
    }

    /// Runs the trial.
    pub fn run(self) -> TrialOutcome {
        thalweg_ids::seed_ids_of_this_thread(Some(self.seed));
        thalweg_hash::seed_maps_of_this_thread(Some(self.seed));
        panics::watch();
        let lines = Lines::default();
        let outcome = lines.clone().record(|| {
            let mut running = TrialRun::new(self, lines);
            running.run();
            running.outcome()
        });
        thalweg_ids::seed_ids_of_this_thread(None);
        thalweg_hash::seed_maps_of_this_thread(None);
        outcome
    }
}

impl MadeCall {
    /// Kind of the call and its file, without offsets and ids.
    pub fn class(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let parent =
            self.path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let parent = parent.unwrap_or_default();
        let numbers = |text: &str| {
            let mut class = String::new();
            for part in text.split(['.', '-']) {
                let is_id =
                    part.len() > 20 || (!part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
                class.push_str(if is_id { "#" } else { part });
                class.push('.');
            }
            class
        };
        let place = match parent.as_str() {
            "__cluster_metadata-0" => "metadata/",
            "data" | "" => "",
            "a" | "b" => "dir/",
            _ if parent.ends_with("-future") => "future/",
            _ if parent.ends_with("-delete") => "deleted/",
            _ => "log/",
        };
        format!("{:?} {place}{}", self.call, numbers(&name).trim_end_matches('.'))
    }
}

impl Watch {
    fn answer(&mut self, call: DiskCall, path: &Path) -> CallEffect {
        if self.life >= LIVES {
            return CallEffect::Works;
        }
        let number = self.calls.len();
        self.calls.push(MadeCall { call, path: path.to_owned(), life: self.life });
        let Some(failing) = self.failing else { return CallEffect::Works };
        if std::mem::take(&mut self.rest_fails) && call == DiskCall::Write {
            return CallEffect::Fails(failing.error);
        }
        if number != failing.number {
            return CallEffect::Works;
        }
        self.failed = self.calls.last().cloned();
        self.lines.begin();
        self.rest_fails = failing.half;
        if failing.half { CallEffect::Half(failing.error) } else { CallEffect::Fails(failing.error) }
    }
}

impl TrialRun {
    fn new(trial: Trial, lines: Lines) -> TrialRun {
        let delays = Delays { least_ms: TICK_MS, usual_ms: TICK_MS, long_one_in: 0, long_ms: TICK_MS };
        let network = SharedNetwork::new(trial.seed, &NAMES, delays);
        let node = SimMachine::new(NODE, NAMES[NODE], &network);
        let clients = SimMachine::new(CLIENTS, NAMES[CLIENTS], &network);
        let watch = Watch {
            calls: Vec::new(),
            life: 0,
            failing: trial.failed,
            rest_fails: false,
            failed: None,
            lines,
        };
        let watch = Arc::new(Mutex::new(watch));
        let watching = Arc::clone(&watch);
        node.disk.watch_calls(move |call, path| watching.lock().answer(call, path));
        let books = Arc::new(Mutex::new(Books::default()));
        let chance = Chance::new(trial.seed, 9);
        TrialRun { trial, network, node, clients, now_ms: 0, books, watch, chance }
    }

    fn run(&mut self) {
        for life in 0..LIVES {
            self.watch.lock().life = life;
            self.live(life);
            if self.watch.lock().failed.is_some() {
                break;
            }
        }
        self.watch.lock().life = LIVES;
        self.audit();
    }

    /// Runs a life of the broker: start, load, end.
    fn live(&mut self, life: usize) {
        let load = Load::new(self.network.connector(CLIENTS), Arc::clone(&self.books), self.trial.seed, life);
        self.start();
        if !self.serves(START_MS_MAX) {
            self.note_end();
            return self.end(Ending::Kill);
        }
        let full = self.trial.full.filter(|full| full.life == life);
        self.clients.start_program(self.now_ms, load.run());
        let (began_ms, until_ms) = (self.now_ms, self.now_ms + LOAD_MS_MAX);
        let mut ended = false;
        let freed_ms = full.map_or(0, |full| full.after_ms + full.for_ms);
        while self.now_ms < until_ms && !ended {
            let at_ms = self.now_ms - began_ms;
            if at_ms > freed_ms && !self.clients.is_running() {
                break;
            }
            full.iter().for_each(|full| self.fill(full, at_ms));
            self.step();
            ended = self.node.ended().is_some();
        }
        self.clients.kill();
        self.note_end();
        if let Some(full) = full {
            self.node.disk.set_capacity(Path::new(DIRS[full.dir]), None);
            self.refused_elsewhere(full);
        }
        if !ended && (full.is_some() || self.watch.lock().failed.is_some()) {
            self.probe();
        }
        let ending = match self.trial.failed {
            Some(failed) if self.watch.lock().failed.is_some() => failed.ending,
            _ if life == 0 => Ending::Stop,
            _ if life == 1 || !self.trial.flushes => Ending::Kill,
            _ => Ending::PowerLoss,
        };
        self.end(ending);
    }

    /// Fills the directory at its time, and frees it again.
    fn fill(&self, full: &FullDir, at_ms: u64) {
        let (disk, dir) = (&self.node.disk, Path::new(DIRS[full.dir]));
        if (full.after_ms..full.after_ms + TICK_MS).contains(&at_ms) {
            self.watch.lock().lines.begin();
            disk.set_capacity(dir, Some(disk.used_bytes(dir) + full.room));
        } else if at_ms >= full.after_ms + full.for_ms {
            disk.set_capacity(dir, None);
        }
    }

    /// Reports refusals by partitions of the other directory while one was full. A broker that has ended has
    /// refused nothing.
    fn refused_elsewhere(&self, full: FullDir) {
        let mut books = self.books.lock();
        let refused = std::mem::take(&mut books.refused);
        if self.node.ended().is_some() {
            return;
        }
        for (name, why) in refused {
            let is_elsewhere = self.node.disk.files().iter().any(|(path, _)| {
                let other = Path::new(DIRS[1 - full.dir]);
                path.starts_with(other.join(format!("{name}-0")))
            });
            if is_elsewhere {
                let (full, other) = (DIRS[full.dir], DIRS[1 - full.dir]);
                books.violation(format!("{name}-0 in {other} refused while {full} was full: {why}"));
                return;
            }
        }
    }

    /// Checks that every partition takes records, or has no leader because its directory is offline.
    fn probe(&mut self) {
        let load =
            Load::new(self.network.connector(CLIENTS), Arc::clone(&self.books), self.trial.seed, LIVES);
        self.clients.start_program(self.now_ms, load.probe());
        let until_ms = self.now_ms + PROBE_MS_MAX;
        while self.now_ms < until_ms && self.clients.is_running() && self.node.ended().is_none() {
            self.step();
        }
        if self.node.ended().is_some() {
            // Refusals before the end of the broker are no violation.
            self.books.lock().stuck.clear();
        }
        self.clients.kill();
    }

    fn end(&mut self, ending: Ending) {
        match ending {
            Ending::Stop => {
                self.node.stop();
                let until_ms = self.now_ms + STOP_MS_MAX;
                while self.now_ms < until_ms && self.node.ended().is_none() {
                    self.step();
                }
                self.note_end();
                self.node.kill();
            }
            Ending::Kill => self.node.kill(),
            Ending::PowerLoss => {
                let chance = &mut self.chance;
                self.node.lose_power(&mut |end| chance.below(end));
            }
        }
        for _ in 0..DOWN_MS / TICK_MS {
            self.step();
        }
    }

    /// Runs the last life, on a working disk.
    fn audit(&mut self) {
        self.start();
        if !self.serves(START_MS_MAX) {
            let why = self.node.ended();
            return self.books.lock().violation(format!("the broker does not start: {why:?}"));
        }
        let connector = self.network.connector(CLIENTS);
        self.clients
            .start_program(self.now_ms, audit::audit(connector, Arc::clone(&self.books), self.trial.seed));
        let until_ms = self.now_ms + AUDIT_MS_MAX;
        while self.clients.is_running() {
            self.step();
            if let Some(ended) = self.node.ended() {
                return self.books.lock().violation(format!("the broker ended during the audit: {ended:?}"));
            }
            if self.now_ms > until_ms {
                return self.books.lock().violation("the audit does not end".to_owned());
            }
        }
    }

    fn start(&mut self) {
        self.network.power_on(NODE);
        let properties = node::properties(self.trial.flushes);
        self.node.start_node(self.now_ms, &properties);
    }

    /// Waits until the broker serves. Returns false after the time limit.
    fn serves(&mut self, within_ms: u64) -> bool {
        let until_ms = self.now_ms + within_ms;
        while self.now_ms < until_ms {
            self.step();
            if self.node.broker().is_some() {
                return true;
            }
            if matches!(self.node.ended(), Some(ProcessEnd::Failed(_))) {
                return false;
            }
        }
        false
    }

    fn step(&mut self) {
        self.now_ms += TICK_MS;
        self.network.advance(self.now_ms);
        self.node.run_until(self.now_ms);
        self.clients.run_until(self.now_ms);
    }

    /// Logs the reason why a process ended, as its last line.
    fn note_end(&self) {
        if let Some(ProcessEnd::Failed(why)) = self.node.ended() {
            tracing::error!(why, "Process ended");
        }
    }

    fn outcome(mut self) -> TrialOutcome {
        self.clients.kill();
        self.node.kill();
        let mut watch = self.watch.lock();
        let mut books = self.books.lock();
        let mut violations = std::mem::take(&mut books.violations);
        violations.extend(std::mem::take(&mut books.stuck));
        violations.extend(panics::take());
        let lines = watch.lines.since_begin();
        let is_silent = watch.failed.as_ref().is_some_and(|failed| changes(failed.call))
            && !lines.iter().any(|line| lines::is_warning(line));
        TrialOutcome {
            violations,
            calls: std::mem::take(&mut watch.calls),
            failed: watch.failed.take(),
            is_silent,
            lines,
            acknowledged: books.acknowledged(),
        }
    }
}

/// True if a call changes the disk. The failure of any other call may have no consequence.
fn changes(call: DiskCall) -> bool {
    !matches!(call, DiskCall::Open | DiskCall::Read | DiskCall::List | DiskCall::Stat | DiskCall::Allocate)
}
