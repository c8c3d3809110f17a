//! The word to stop: given once, heard by every stream.

use tokio::sync::watch;

/// Gives the word.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

/// Hears the word.
#[derive(Clone)]
pub struct Stop(watch::Receiver<bool>);

/// Both ends.
pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Gives the word.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Whether the word was given.
    pub fn is_given(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the word. Without anybody to give it, for ever.
    pub async fn given(&mut self) {
        if self.0.wait_for(|given| *given).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
