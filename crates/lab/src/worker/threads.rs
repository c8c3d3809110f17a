//! The threads of a worker, from ready to done: the same for producers and consumers, and for all drivers in
//! the process.
//!
//! Each thread connects its clients, reports that it is ready, waits for the start command, works, and
//! returns its results. The worker's main thread listens to the lab meanwhile and reports once per second.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clock::Clock;
use super::counts::{self, Counts, SharedCounts, Window, lock};
use super::{Assignment, Command, Event, WorkerError, link::Link};

const INTERVAL: Duration = Duration::from_secs(1);

/// The state of the work, for all threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Wait,
    Begin(Window),
    /// Send no more records.
    Stop,
}

/// The context of a thread.
#[derive(Debug)]
pub(super) struct Crew {
    /// The numbers of its clients.
    pub(super) clients: Vec<u32>,
    /// The thread's counts.
    pub(super) counts: SharedCounts,
    /// The lab's commands.
    pub(super) word: watch::Receiver<Word>,
    /// The worker's clock.
    pub(super) clock: Clock,
    ready: mpsc::Sender<()>,
}

/// The results of a thread's clients, once all have ended.
pub(super) async fn ended<T: 'static>(
    mut clients: JoinSet<Result<T, WorkerError>>,
) -> Result<Vec<T>, WorkerError> {
    let mut results = Vec::with_capacity(clients.len());
    while let Some(ended) = clients.join_next().await {
        results.push(ended.map_err(WorkerError::driver)??);
    }
    Ok(results)
}

impl Crew {
    /// Reports that this thread's clients are ready.
    pub(super) async fn ready(&self) {
        // The receiver was dropped if the worker has failed, which ends the thread.
        let _ = self.ready.send(()).await;
    }

    /// Waits for the start command, and then until the start time. `None` if the lab has cancelled.
    pub(super) async fn begin(&mut self) -> Option<Window> {
        let window = match *self.word.wait_for(|word| *word != Word::Wait).await.ok()? {
            Word::Begin(window) => window,
            Word::Wait | Word::Stop => return None,
        };
        let start = self.clock.instant(window.start_us);
        tokio::select! {
            () = tokio::time::sleep_until(start) => Some(window),
            () = stopped(&mut self.word) => None,
        }
    }
}

/// Waits for the stop command.
pub(super) async fn stopped(word: &mut watch::Receiver<Word>) {
    // Dropping the sender also stops the thread.
    let _ = word.wait_for(|word| *word == Word::Stop).await;
}

/// Runs `work` on each thread, and reports to the lab; `client` is the client's name and version. Returns the
/// threads' counters and results.
pub(super) fn run<T, W>(
    assignment: &Assignment,
    link: &mut Link,
    client: String,
    work: W,
) -> Result<(Vec<SharedCounts>, Vec<T>), WorkerError>
where
    T: Send,
    W: AsyncFnOnce(Crew) -> Result<T, WorkerError> + Copy + Send,
{
    let clock = Clock::of_process();
    let threads = assignment.threads.clamp(1, assignment.clients.max(1));
    let (signals, word) = watch::channel(Word::Wait);
    let (ready, mut all_ready) = mpsc::channel(threads as usize);
    let (done, mut all_done) = mpsc::channel(threads as usize);
    let counts: Vec<SharedCounts> = (0..threads).map(|_| Counts::shared()).collect();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let crew = Crew {
                clients: (thread..assignment.clients)
                    .step_by(threads as usize)
                    .map(|client| assignment.first_client + client)
                    .collect(),
                counts: counts[thread as usize].clone(),
                word: word.clone(),
                clock,
                ready: ready.clone(),
            };
            let done = done.clone();
            let name = format!("clients-{thread}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
                // A panicking thread has reported it on standard error; the others must not wait for it.
                let run = std::panic::AssertUnwindSafe(|| run_thread(crew, work));
                let outcome = std::panic::catch_unwind(run).unwrap_or(Err(WorkerError::driver(ThreadEnded)));
                // The channel has room for all results.
                let _ = done.blocking_send(outcome);
            })?;
        }
        drop((ready, done));
        let worker = Worker { assignment, client, clock, counts: &counts, signals };
        let outcomes = runtime()?.block_on(worker.run(link, &mut all_ready, &mut all_done));
        outcomes.map(|brought| (counts.clone(), brought))
    })
}

/// The work of one thread, cancelled if the worker fails.
fn run_thread<T>(
    crew: Crew,
    work: impl AsyncFnOnce(Crew) -> Result<T, WorkerError>,
) -> Result<T, WorkerError> {
    let mut word = crew.word.clone();
    runtime()?.block_on(async {
        tokio::select! {
            outcome = work(crew) => outcome,
            () = async { while word.changed().await.is_ok() {} } => Err(WorkerError::driver(ThreadEnded)),
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, WorkerError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(WorkerError::driver)
}

/// The worker's main thread.
struct Worker<'a> {
    assignment: &'a Assignment,
    client: String,
    clock: Clock,
    counts: &'a [SharedCounts],
    /// Dropped at the end, which ends all threads.
    signals: watch::Sender<Word>,
}

impl Worker<'_> {
    async fn run<T>(
        self,
        link: &mut Link,
        ready: &mut mpsc::Receiver<()>,
        done: &mut mpsc::Receiver<Result<T, WorkerError>>,
    ) -> Result<Vec<T>, WorkerError> {
        let threads = self.counts.len();
        let mut brought = Vec::with_capacity(threads);
        for _ in 0..threads {
            tokio::select! {
                biased;
                outcome = done.recv() => brought.push(outcome.ok_or_else(|| WorkerError::driver(ThreadEnded))??),
                Some(()) = ready.recv() => {}
                command = link.command() => match command {
                    Some(Command::Stop) => { self.signals.send_replace(Word::Stop); }
                    Some(Command::Start { .. }) => {}
                    None => return Err(WorkerError::driver(LabGone)),
                },
            }
        }
        link.send(&Event::Ready { client: self.client.clone(), children: Vec::new() })?;
        let mut since_us = self.clock.now_us();
        let mut tick = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        let mut begun = false;
        while brought.len() < threads {
            tokio::select! {
                biased;
                outcome = done.recv() => brought.push(outcome.ok_or_else(|| WorkerError::driver(ThreadEnded))??),
                command = link.command() => match command {
                    Some(Command::Start { at_us, measure_from_us }) => {
                        let window = Window::new(at_us, measure_from_us, self.assignment.stop)
                            .paced(self.assignment.records_per_s.is_some())
                            .draining(self.assignment.reports_backlog());
                        self.counts.iter().for_each(|counts| lock(counts).measure(window));
                        self.signals.send_replace(Word::Begin(window));
                        since_us = at_us;
                        tick.reset_at(self.clock.instant(at_us) + INTERVAL);
                        begun = true;
                    }
                    Some(Command::Stop) => { self.signals.send_replace(Word::Stop); }
                    None => return Err(WorkerError::driver(LabGone)),
                },
                _ = tick.tick(), if begun => self.interval(link, &mut since_us)?,
            }
        }
        if begun {
            self.interval(link, &mut since_us)?;
        }
        Ok(brought)
    }

    fn interval(&self, link: &mut Link, since_us: &mut u64) -> Result<(), WorkerError> {
        let at_us = self.clock.now_us();
        let interval = counts::interval(self.counts, *since_us, at_us);
        *since_us = at_us;
        Ok(link.send(&Event::Interval(interval))?)
    }
}

/// A thread ended before its work was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A worker thread ended early; its last output is on standard error")]
struct ThreadEnded;

/// The lab has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Standard input ended: the lab has exited")]
struct LabGone;
