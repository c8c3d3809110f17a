//! Letters to other brokers. Each broker gets one request at a time; letters that arrive meanwhile share the
//! next request.
//!
//! The task that finds the connection free sends all waiting letters, so that no task runs while there is
//! nothing to send.
//!
//! Owns: the connections. Refuses: the content of requests, which belongs to the [`Letter`], and retries.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_dial::Connection;
use thalweg_metadata::BrokerId;
use tokio::sync::oneshot;

use crate::peers::{PeerError, Peers};

/// A part of a request to another broker.
pub trait Letter: Send + Sync + Sized + 'static {
    /// Name of the connection in the other broker's logs.
    const PURPOSE: &'static str;
    /// Message of the log line when the other broker does not answer.
    const FAILURE: &'static str;
    /// The kind of letters that share requests, usually the API. Letters of different kinds do not wait for
    /// each other.
    type Kind: Copy + Ord + fmt::Debug + Send + Sync;
    /// Contents of a request, as far as they decide whether another letter fits.
    type Load: Default;
    /// The answer to a letter.
    type Answer: Send;

    /// The kind of this letter.
    fn kind(&self) -> Self::Kind;
    /// Adds the letter to a request. Returns false if it has to wait for the next request.
    fn join(&self, load: &mut Self::Load) -> bool;
    /// Sends a request. Returns an answer per letter, in order.
    fn send(
        connection: &Connection,
        broker: BrokerId,
        letters: &[Self],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, PeerError>> + Send;
}

/// The other broker did not answer. It may or may not have received the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker did not answer")]
pub struct NoAnswer;

/// Queues of letters to other brokers. A caller that finds the connection free sends all waiting letters.
pub struct Outbox<L: Letter> {
    peers: Arc<Peers>,
    queues: Mutex<Queues<L>>,
}

type Queues<L> = BTreeMap<(BrokerId, <L as Letter>::Kind), Arc<Queue<L>>>;

/// Letters of one kind to one broker.
struct Queue<L: Letter> {
    waiting: Mutex<Vec<PendingLetter<L>>>,
    /// The task that holds the connection sends all waiting letters.
    connection: tokio::sync::Mutex<Option<Connection>>,
}

struct PendingLetter<L: Letter> {
    letter: L,
    answer: oneshot::Sender<Result<L::Answer, NoAnswer>>,
}

impl<L: Letter> fmt::Debug for Outbox<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("queues", &self.queues.lock().keys()).finish_non_exhaustive()
    }
}

impl<L: Letter> Outbox<L> {
    /// An outbox without connections.
    pub fn new(peers: Arc<Peers>) -> Outbox<L> {
        Outbox { peers, queues: Mutex::default() }
    }

    /// Sends a letter, and returns the answer.
    pub async fn ask(&self, broker: BrokerId, letter: L) -> Result<L::Answer, NoAnswer> {
        let queue = Arc::clone(self.queues.lock().entry((broker, letter.kind())).or_default());
        let (answer, mut answered) = oneshot::channel();
        queue.waiting.lock().push(PendingLetter { letter, answer });
        let mut connection = queue.connection.lock().await;
        loop {
            match answered.try_recv() {
                Ok(answer) => return answer,
                // The task that sent the letter was dropped.
                Err(oneshot::error::TryRecvError::Closed) => return Err(NoAnswer),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let (letters, senders): (Vec<L>, Vec<_>) =
                queue.take().into_iter().map(|PendingLetter { letter, answer }| (letter, answer)).unzip();
            match self.send(broker, &mut connection, &letters).await {
                Ok(answers) => {
                    debug_assert_eq!(answers.len(), senders.len(), "each letter has an answer");
                    for (sender, answer) in senders.into_iter().zip(answers) {
                        let _ = sender.send(Ok(answer));
                    }
                }
                Err(error) => {
                    tracing::info!(%broker, letters = letters.len(), %error, "{}", L::FAILURE);
                    for sender in senders {
                        let _ = sender.send(Err(NoAnswer));
                    }
                }
            }
        }
    }

    /// Sends a request, and drops the connection after a failed or cancelled request.
    async fn send(
        &self,
        broker: BrokerId,
        connection: &mut Option<Connection>,
        letters: &[L],
    ) -> Result<Vec<L::Answer>, PeerError> {
        let open = match connection.take().filter(|connection| !connection.is_closed()) {
            Some(open) => open,
            None => self.peers.connect(broker, L::PURPOSE, self.peers.request_timeout()).await?,
        };
        let answers = L::send(&open, broker, letters).await?;
        *connection = Some(open);
        Ok(answers)
    }
}

impl<L: Letter> Default for Queue<L> {
    fn default() -> Self {
        Queue { waiting: Mutex::default(), connection: tokio::sync::Mutex::default() }
    }
}

impl<L: Letter> Queue<L> {
    /// Takes the letters of the next request, at least one if any waits.
    fn take(&self) -> Vec<PendingLetter<L>> {
        let mut waiting = self.waiting.lock();
        let mut load = L::Load::default();
        let (now, later) =
            std::mem::take(&mut *waiting).into_iter().partition(|waiting| waiting.letter.join(&mut load));
        *waiting = later;
        now
    }
}
