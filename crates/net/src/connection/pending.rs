//! Answers that wait for their turn.

use super::{ApiSlot, Frame, Reply};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A pending answer, or a ready one behind a pending one.
pub(super) enum PendingAnswer {
    Ready(ApiSlot, Frame),
    Awaited { slot: ApiSlot, answer: Pin<Box<dyn Future<Output = Reply> + Send>>, reads_on: bool },
}

/// The answer at the front of the queue. The answers behind it are polled too: a batch of produce requests
/// that wait for the same flush becomes ready as a whole.
pub(super) async fn first_answer(pending: &mut VecDeque<PendingAnswer>, ready_bytes: &mut usize) -> Reply {
    poll_fn(|context: &mut Context<'_>| {
        let mut each = pending.iter_mut();
        let first = match each.next() {
            Some(PendingAnswer::Awaited { answer, .. }) => answer.as_mut().poll(context),
            Some(PendingAnswer::Ready(..)) | None => Poll::Pending,
        };
        advance(each, ready_bytes, context);
        first
    })
    .await
}

/// Polls pending answers and never returns. An answer may hold a resource that requests of other connections
/// wait for, such as the turn to flush a partition, and must not keep it while a peer does not read.
pub(super) async fn go_on(pending: &mut VecDeque<PendingAnswer>, ready_bytes: &mut usize) -> Infallible {
    poll_fn(|context: &mut Context<'_>| {
        advance(pending.iter_mut(), ready_bytes, context);
        Poll::Pending
    })
    .await
}

/// Polls pending answers. Ready answers keep their positions until their turn.
fn advance<'a>(
    pending: impl Iterator<Item = &'a mut PendingAnswer>,
    ready_bytes: &mut usize,
    context: &mut Context<'_>,
) {
    for entry in pending {
        let PendingAnswer::Awaited { slot, answer, .. } = entry else { continue };
        let slot = *slot;
        let Poll::Ready(reply) = answer.as_mut().poll(context) else { continue };
        *entry = match reply {
            Reply::Now(frame) => {
                *ready_bytes += frame.bytes_in_memory();
                PendingAnswer::Ready(slot, frame)
            }
            reply => {
                PendingAnswer::Awaited { slot, answer: Box::pin(std::future::ready(reply)), reads_on: true }
            }
        };
    }
}
