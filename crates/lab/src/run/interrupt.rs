//! The word to end a run early, from whoever started it.

use tokio::sync::watch;

/// Gives the word. Dropped without it, nobody is interrupted.
#[derive(Debug)]
pub struct Interrupter(watch::Sender<Option<String>>);

/// Hears the word.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<Option<String>>);

/// The two ends.
pub fn interrupt() -> (Interrupter, Interrupt) {
    let (sender, receiver) = watch::channel(None);
    (Interrupter(sender), Interrupt(receiver))
}

impl Interrupter {
    /// Ends the run, for this reason.
    pub fn interrupt(&self, why: &str) {
        self.0.send_replace(Some(why.to_owned()));
    }
}

impl Interrupt {
    /// Why the run is to end; none while it is not.
    pub fn given(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits for the word, and tells why.
    pub async fn wait(&self) -> String {
        let mut receiver = self.0.clone();
        let given = receiver.wait_for(Option::is_some).await.map(|why| (*why).clone());
        match given {
            Ok(why) => why.unwrap_or_default(),
            // Nobody is left who could give it.
            Err(_) => std::future::pending().await,
        }
    }
}
