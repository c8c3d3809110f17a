//! Waits for several futures on one task.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// Joins all futures, each polled once before any is waited for.
pub async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut begun: Vec<_> = futures.map(|future| Begun::Running(Box::pin(future))).collect();
    std::future::poll_fn(|cx| {
        for each in &mut begun {
            if let Begun::Running(future) = each
                && let Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *each = Begun::Done(output);
            }
        }
        Poll::Ready(())
    })
    .await;
    // From here on sequentially: each completion wakes this task, and polling all of them each time would be
    // quadratic.
    let mut outputs = Vec::with_capacity(begun.len());
    for each in begun {
        outputs.push(match each {
            Begun::Running(future) => future.await,
            Begun::Done(output) => output,
        });
    }
    outputs
}

/// A future that was polled once.
enum Begun<F: Future> {
    Running(Pin<Box<F>>),
    Done(F::Output),
}
