//! Letters to other brokers, which collect: each broker gets one request at a time, and what waits meanwhile goes together
//! with the next.
//!
//! The task that finds the connection free sends for all that wait, so that no task runs while there is nothing to send.
//!
//! Owns: the connections. Refuses: the content of requests, which is the [`Letter`]'s, and another attempt after a failure.

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
    /// The name of the connection in the other broker's logs.
    const PURPOSE: &'static str;
    /// What fails where the other broker does not answer, for log lines.
    const FAILURE: &'static str;
    /// Letters of different kinds do not wait for each other: the API, or nothing.
    type Kind: Copy + Ord + fmt::Debug + Send + Sync;
    /// The letters in a request, as far as it matters for the next one.
    type Load: Default;
    /// The answer to a letter.
    type Answer: Send;

    /// Its kind.
    fn kind(&self) -> Self::Kind;
    /// Puts it into a request, or returns false: it waits for the next request.
    fn join(&self, load: &mut Self::Load) -> bool;
    /// Sends a request. There is an answer for each letter, in their order.
    fn send(
        connection: &Connection,
        broker: BrokerId,
        letters: &[Self],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, PeerError>> + Send;
}

/// The other broker did not answer. Whether it has received the letter is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker did not answer")]
pub struct NoAnswer;

/// See the head of this file.
pub struct Outbox<L: Letter> {
    peers: Arc<Peers>,
    queues: Mutex<Queues<L>>,
}

type Queues<L> = BTreeMap<(BrokerId, <L as Letter>::Kind), Arc<Queue<L>>>;

/// Letters of one kind to one broker.
struct Queue<L: Letter> {
    waiting: Mutex<Vec<Waiting<L>>>,
    /// The task that has it sends for all that wait.
    connection: tokio::sync::Mutex<Option<Connection>>,
}

struct Waiting<L: Letter> {
    letter: L,
    answer: oneshot::Sender<Result<L::Answer, NoAnswer>>,
}

impl<L: Letter> fmt::Debug for Outbox<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("queues", &self.queues.lock().keys()).finish_non_exhaustive()
    }
}

impl<L: Letter> Outbox<L> {
    /// No connections yet.
    pub fn new(peers: Arc<Peers>) -> Outbox<L> {
        Outbox { peers, queues: Mutex::default() }
    }

    /// Sends a letter, and returns the answer.
    pub async fn ask(&self, broker: BrokerId, letter: L) -> Result<L::Answer, NoAnswer> {
        let queue = Arc::clone(self.queues.lock().entry((broker, letter.kind())).or_default());
        let (answer, mut answered) = oneshot::channel();
        queue.waiting.lock().push(Waiting { letter, answer });
        let mut connection = queue.connection.lock().await;
        loop {
            match answered.try_recv() {
                Ok(answer) => return answer,
                // The task that sent it was dropped.
                Err(oneshot::error::TryRecvError::Closed) => return Err(NoAnswer),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let (letters, senders): (Vec<L>, Vec<_>) =
                queue.take().into_iter().map(|Waiting { letter, answer }| (letter, answer)).unzip();
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

    /// A connection on which a request has failed, or is given up, is not used again.
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
    /// The letters of the next request, at least one if any waits.
    fn take(&self) -> Vec<Waiting<L>> {
        let mut waiting = self.waiting.lock();
        let mut load = L::Load::default();
        let (now, later) =
            std::mem::take(&mut *waiting).into_iter().partition(|waiting| waiting.letter.join(&mut load));
        *waiting = later;
        now
    }
}
