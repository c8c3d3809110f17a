//! The stop signal: sent once, received by every stream.

use tokio::sync::watch;

/// Sends the signal.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

/// Receives the signal.
#[derive(Clone)]
pub struct Stop(watch::Receiver<bool>);

/// Creates both ends.
pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Sends the signal.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// True if the signal was sent.
    pub fn is_given(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal; forever if the sender was dropped.
    pub async fn given(&mut self) {
        if self.0.wait_for(|given| *given).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
