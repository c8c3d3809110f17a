//! Samples of this machine on a thread of their own: files of other users' processes, or a file system that
//! hangs, may delay a sample, but no key and no signal.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use thalweg_lab::live::{LiveMachine, MachineUse};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// Time limit for a sample before it is called late.
const SAMPLE_WAIT: Duration = Duration::from_secs(6);

/// The result of a sample; none for the first one.
type MachineSample = Option<MachineUse>;

/// Samples this machine when asked.
pub(super) struct Sampler {
    ask: SyncSender<()>,
    samples: mpsc::Receiver<MachineSample>,
    /// The begin of the sample that is not there yet.
    began: Option<Instant>,
    last: MachineSample,
}

impl Sampler {
    /// Starts the thread, and the first sample.
    pub(super) fn start() -> io::Result<Sampler> {
        let mut machine = None;
        Sampler::run(move || {
            let machine = match &mut machine {
                Some(machine) => {
                    LiveMachine::sample(machine);
                    machine
                }
                none => none.insert(LiveMachine::begin()),
            };
            machine.last_use()
        })
    }

    /// Takes samples by `sample`. The thread ends with the sampler, or with the process.
    fn run(mut sample: impl FnMut() -> MachineSample + Send + 'static) -> io::Result<Sampler> {
        let (ask, asked) = sync_channel(1);
        let (sender, samples) = mpsc::channel(1);
        std::thread::Builder::new().name("machine".to_owned()).spawn(move || {
            while let Ok(()) = asked.recv()
                && sender.blocking_send(sample()).is_ok()
            {}
        })?;
        let mut sampler = Sampler { ask, samples, began: None, last: None };
        sampler.ask();
        Ok(sampler)
    }

    /// Begins a sample, unless one is on its way.
    pub(super) fn ask(&mut self) {
        if self.began.is_none() && self.ask.try_send(()).is_ok() {
            self.began = Some(Instant::now());
        }
    }

    /// Waits for a sample that was begun. Never ends without one.
    pub(super) async fn sampled(&mut self) {
        match self.samples.recv().await {
            Some(sampled) => (self.last, self.began) = (sampled, None),
            None => std::future::pending().await,
        }
    }

    /// Begins a sample after the last one, and waits for it within a limit.
    pub(super) async fn sample(&mut self) {
        let both = async {
            if self.began.is_some() {
                self.sampled().await;
            }
            self.ask();
            self.sampled().await;
        };
        // A late sample is named by the notes.
        let _ = timeout(SAMPLE_WAIT, both).await;
    }

    /// The use between the last two samples.
    pub(super) fn last_use(&self) -> Option<&MachineUse> {
        self.last.as_ref()
    }

    /// The reason for old figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let late = self.began.map(|began| began.elapsed()).filter(|age| *age >= SAMPLE_WAIT);
        let note = |age: Duration| {
            format!(
                "This machine: the sample has not ended for {:.0} s: a file of a process hangs.",
                age.as_secs_f64()
            )
        };
        late.map(note).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sample_that_hangs_delays_a_bounded_time() {
        let (end, ended) = sync_channel::<()>(1);
        let mut sampler = Sampler::run(move || {
            let _ = ended.recv();
            None
        });
        let sampler = sampler.as_mut().expect("a thread");
        let began = Instant::now();
        sampler.sample().await;
        assert!((SAMPLE_WAIT..2 * SAMPLE_WAIT).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(sampler.notes()[0].contains("has not ended for 6 s"), "{:?}", sampler.notes());
        drop(end);
        sampler.sampled().await;
        assert!(sampler.notes().is_empty());
    }

    #[tokio::test]
    async fn each_sample_follows_the_last() {
        let mut sampler = Sampler::start().expect("a thread");
        sampler.sample().await;
        assert!(sampler.last_use().is_some_and(|used| used.length_s > 0.0), "{:?}", sampler.last_use());
    }
}
