//! The signal to end a run early.

use tokio::sync::watch;

/// Sends the signal. Dropping it sends nothing.
#[derive(Debug)]
pub struct Interrupter(watch::Sender<Option<String>>);

/// Receives the signal.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<Option<String>>);

/// Creates both ends.
pub fn interrupt() -> (Interrupter, Interrupt) {
    let (sender, receiver) = watch::channel(None);
    (Interrupter(sender), Interrupt(receiver))
}

impl Interrupter {
    /// Ends the run, with a reason.
    pub fn interrupt(&self, why: &str) {
        self.0.send_replace(Some(why.to_owned()));
    }
}

impl Interrupt {
    /// The reason to end, if any.
    pub fn given(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits for the signal, and returns the reason.
    pub async fn wait(&self) -> String {
        let mut receiver = self.0.clone();
        let given = receiver.wait_for(Option::is_some).await.map(|why| (*why).clone());
        match given {
            Ok(why) => why.unwrap_or_default(),
            // The sender was dropped.
            Err(_) => std::future::pending().await,
        }
    }
}
