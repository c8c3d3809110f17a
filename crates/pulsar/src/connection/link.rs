//! State shared by the handles and the task of a connection.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};

use super::{ConnectionId, ConsumerEvents, ProducerEvents};
use crate::error::{CloseReason, ConnectionClosed};
use crate::protocol::Command;

/// Maximum number of slices in one write. A batch has two.
const WRITE_SLICES_MAX: usize = 64;

pub(super) struct Link {
    pub id: ConnectionId,
    pub peer: Arc<str>,
    /// The broker's limit of a message, in bytes.
    pub message_bytes_max: usize,
    next_request_id: AtomicU64,
    /// True if a command arrived since the last look.
    is_alive: AtomicBool,
    outgoing: Mutex<Outgoing>,
    /// Notified when there is something to write, and when the last handle is dropped.
    queued: Notify,
    pub routes: Mutex<Routes>,
}

/// Bytes to write. Producers limit their batches, callers wait for the answers of their requests, and
/// acknowledgements are grouped, so the queue is limited.
#[derive(Default)]
struct Outgoing {
    queue: VecDeque<Bytes>,
    /// True once the last handle is dropped.
    is_abandoned: bool,
    /// True once the connection has ended.
    is_closed: bool,
}

/// Receivers of what the peer sends.
#[derive(Default)]
pub(super) struct Routes {
    requests: BTreeMap<u64, oneshot::Sender<Command>>,
    pub producers: BTreeMap<u64, Arc<dyn ProducerEvents>>,
    pub consumers: BTreeMap<u64, Arc<dyn ConsumerEvents>>,
    closed: Option<ConnectionClosed>,
}

/// A request that waits for its answer. Dropping it removes the request.
pub(super) struct PendingRequest<'a> {
    pub id: u64,
    link: &'a Link,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.link.routes.lock().requests.remove(&self.id);
    }
}

impl Routes {
    pub(super) fn add_producer(&mut self, id: u64, events: Arc<dyn ProducerEvents>) -> bool {
        if self.closed.is_none() {
            self.producers.insert(id, events);
        }
        self.closed.is_none()
    }

    pub(super) fn add_consumer(&mut self, id: u64, events: Arc<dyn ConsumerEvents>) -> bool {
        if self.closed.is_none() {
            self.consumers.insert(id, events);
        }
        self.closed.is_none()
    }
}

impl Link {
    pub(super) fn new(id: ConnectionId, peer: Arc<str>, message_bytes_max: usize) -> Link {
        Link {
            id,
            peer,
            message_bytes_max,
            next_request_id: AtomicU64::new(1),
            is_alive: AtomicBool::new(true),
            outgoing: Mutex::default(),
            queued: Notify::new(),
            routes: Mutex::default(),
        }
    }

    pub(super) fn closed(&self) -> Option<ConnectionClosed> {
        self.routes.lock().closed.clone()
    }

    pub(super) fn ended_by(&self, reason: CloseReason) -> ConnectionClosed {
        ConnectionClosed { peer: Arc::clone(&self.peer), reason }
    }

    /// A request id whose answer goes to `reply`; `None` if the connection has ended.
    pub(super) fn register_request(&self, reply: oneshot::Sender<Command>) -> Option<PendingRequest<'_>> {
        let id = self.next_request_id.fetch_add(1, Ordering::Relaxed);
        {
            let mut routes = self.routes.lock();
            if routes.closed.is_some() {
                return None;
            }
            routes.requests.insert(id, reply);
        }
        Some(PendingRequest { id, link: self })
    }

    /// Passes an answer to its request. A late answer has no receiver any more.
    pub(super) fn answered(&self, request_id: u64, answer: Command) {
        let reply = self.routes.lock().requests.remove(&request_id);
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
    }

    pub(super) fn note_life_sign(&self) {
        self.is_alive.store(true, Ordering::Relaxed);
    }

    /// True if a command arrived since the last call.
    pub(super) fn take_life_sign(&self) -> bool {
        self.is_alive.swap(false, Ordering::Relaxed)
    }

    /// Queues the bytes of one frame.
    pub(super) fn queue(&self, slices: &[Bytes]) {
        {
            let mut outgoing = self.outgoing.lock();
            if outgoing.is_closed {
                return;
            }
            outgoing.queue.extend(slices.iter().cloned());
        }
        self.queued.notify_one();
    }

    pub(super) fn abandon(&self) {
        self.outgoing.lock().is_abandoned = true;
        self.queued.notify_one();
    }

    /// Writes queued bytes until the last handle is dropped and the queue is empty.
    pub(super) async fn write_queued<W: AsyncWrite + Unpin>(&self, writer: &mut W) -> io::Result<()> {
        let mut slices: Vec<Bytes> = Vec::new();
        loop {
            {
                let mut outgoing = self.outgoing.lock();
                let count = outgoing.queue.len().min(WRITE_SLICES_MAX);
                slices.extend(outgoing.queue.drain(..count));
                if slices.is_empty() && outgoing.is_abandoned {
                    return Ok(());
                }
            }
            if slices.is_empty() {
                self.queued.notified().await;
                continue;
            }
            write_all(writer, &slices).await?;
            writer.flush().await?;
            slices.clear();
        }
    }

    /// Records the end, and notifies all users.
    pub(super) fn end(&self, reason: CloseReason) {
        let closed = self.ended_by(reason);
        let (requests, producers, consumers) = {
            let mut routes = self.routes.lock();
            routes.closed = Some(closed.clone());
            let routes = &mut *routes;
            (
                std::mem::take(&mut routes.requests),
                std::mem::take(&mut routes.producers),
                std::mem::take(&mut routes.consumers),
            )
        };
        let dropped = {
            let mut outgoing = self.outgoing.lock();
            outgoing.is_closed = true;
            std::mem::take(&mut outgoing.queue)
        };
        drop(dropped);
        // Dropping the senders notifies the receivers, which read the reason from the routes.
        drop(requests);
        for producer in producers.into_values() {
            producer.connection_ended(self.id, &closed);
        }
        for consumer in consumers.into_values() {
            consumer.connection_ended(self.id, &closed);
        }
    }
}

async fn write_all<W: AsyncWrite + Unpin>(writer: &mut W, bytes: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
    let mut slices = &mut slices[..];
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let written = writer.write_vectored(slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}
