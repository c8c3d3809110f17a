//! The threads of a worker, from ready to done: the same for producers and consumers, and for every driver in the process.
//!
//! Each thread connects its clients, says that it is ready, waits for the word to begin, works, and gives what it has. The
//! worker's first thread listens to the lab meanwhile and tells it once a second how it goes.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::counts::{self, Counts, SharedCounts, Window, lock};
use super::thalweg::ThreadEnded;
use super::{Assignment, Command, Event, WorkerError, link::Link};

const INTERVAL: Duration = Duration::from_secs(1);

/// What a thread hears from the lab.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    /// Wait.
    Wait,
    /// Begin.
    Begin(Window),
    /// Send no more.
    Stop,
}

/// What a thread works with.
#[derive(Debug)]
pub(super) struct Crew {
    /// The numbers of its clients.
    pub(super) clients: Vec<u32>,
    /// Its counts.
    pub(super) counts: SharedCounts,
    /// What the lab says.
    pub(super) word: watch::Receiver<Word>,
    /// The clock of the whole worker.
    pub(super) clock: Clock,
    ready: mpsc::Sender<()>,
}

impl Crew {
    /// Says that this thread's clients are ready.
    pub(super) async fn ready(&self) {
        // The worker that does not listen any more has failed, and ends the thread.
        let _ = self.ready.send(()).await;
    }

    /// Waits for the word to begin, until the very time. None when the lab wants no work any more.
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

/// Waits until the lab says stop.
pub(super) async fn stopped(word: &mut watch::Receiver<Word>) {
    // The worker that is gone wants no work either.
    let _ = word.wait_for(|word| *word == Word::Stop).await;
}

/// Runs `work` on each thread, and tells the lab, to which `client` names the client's software. Gives the threads'
/// counts and what each has brought.
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
    let clock = Clock::now();
    let threads = assignment.threads.clamp(1, assignment.clients.max(1));
    let (tell, word) = watch::channel(Word::Wait);
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
                // A thread that panics has told why on standard error; the others must not wait for it.
                let run = std::panic::AssertUnwindSafe(|| run_thread(crew, work));
                let outcome = std::panic::catch_unwind(run).unwrap_or(Err(WorkerError::driver(ThreadEnded)));
                // There is room for each thread's outcome.
                let _ = done.blocking_send(outcome);
            })?;
        }
        drop((ready, done));
        let worker = Worker { assignment, client, clock, counts: &counts, tell };
        let outcomes = runtime()?.block_on(worker.run(link, &mut all_ready, &mut all_done));
        outcomes.map(|brought| (counts.clone(), brought))
    })
}

/// The work of one thread, unless the worker gives it up: then whatever it waits for is left.
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

/// The worker's first thread.
struct Worker<'a> {
    assignment: &'a Assignment,
    client: String,
    clock: Clock,
    counts: &'a [SharedCounts],
    /// Dropped at the end, which ends all threads.
    tell: watch::Sender<Word>,
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
                    Some(Command::Stop) => { self.tell.send_replace(Word::Stop); }
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
                        let window = Window::new(at_us, measure_from_us, self.assignment.stop);
                        self.counts.iter().for_each(|counts| lock(counts).measure(window));
                        self.tell.send_replace(Word::Begin(window));
                        since_us = at_us;
                        tick.reset_at(self.clock.instant(at_us) + INTERVAL);
                        begun = true;
                    }
                    Some(Command::Stop) => { self.tell.send_replace(Word::Stop); }
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

/// The lab is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Standard input ended: the lab is gone")]
struct LabGone;
