//! Waits of a connection for other events than its peer's: its timeouts, and the broker's stop. Both are
//! registered once and not at each wait: with ten thousand quiet connections, each registration would touch
//! neighbours in the lists of timers and waiters in cold memory.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use thalweg_watch as watch;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is reset only if it has fired or has to fire earlier. It may therefore fire early.
#[derive(Debug)]
pub(super) struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    pub(super) fn new(at: Instant) -> Alarm {
        Alarm(Box::pin(sleep_until(at)))
    }

    /// Fires at this time, or earlier.
    pub(super) fn by(&mut self, at: Instant) -> impl Future<Output = ()> {
        if self.0.is_elapsed() || at < self.0.deadline() {
            self.0.as_mut().reset(at);
        }
        self.0.as_mut()
    }
}

/// The broker's stop.
pub(super) struct Stop {
    receiver: watch::Receiver<bool>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The waker of the registered task.
    registered: Option<Waker>,
    is_over: bool,
}

impl Stop {
    pub(super) fn new(receiver: watch::Receiver<bool>) -> Stop {
        let mut own = receiver.clone();
        let stopped = Box::pin(async move { stopped(&mut own).await });
        Stop { receiver, stopped, registered: None, is_over: false }
    }

    /// True if the broker is stopping.
    pub(super) fn has_begun(&self) -> bool {
        self.is_over || *self.receiver.borrow()
    }

    /// Waits for the stop.
    pub(super) fn begun(&mut self) -> StopFuture<'_> {
        StopFuture(self)
    }
}

/// The future of [`Stop::begun`].
pub(super) struct StopFuture<'a>(&'a mut Stop);

impl Future for StopFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let stop = &mut *self.0;
        if stop.has_begun() {
            return Poll::Ready(());
        }
        if stop.registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return Poll::Pending;
        }
        stop.registered = Some(context.waker().clone());
        let polled = stop.stopped.as_mut().poll(context);
        stop.is_over = polled.is_ready();
        polled
    }
}

/// Completes when the broker stops. The value is not borrowed during a wait.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    while !*stopping.borrow_and_update() {
        if stopping.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_is_never_late() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut alarm = Alarm::new(start + 10 * second);
        alarm.by(start + 3 * second).await;
        assert_eq!(start.elapsed(), 3 * second);
        alarm.by(start + 9 * second).await;
        assert_eq!(start.elapsed(), 9 * second);
        // A timer set for an earlier time fires then.
        drop(alarm.by(start + 11 * second));
        alarm.by(start + 20 * second).await;
        assert_eq!(start.elapsed(), 11 * second);
        alarm.by(start + 20 * second).await;
        assert_eq!(start.elapsed(), 20 * second);
    }

    #[tokio::test]
    async fn a_stop_is_noticed_by_the_task_that_waits_now() {
        let (sender, receiver) = watch::channel(false);
        let mut stop = Stop::new(receiver);
        for _ in 0..3 {
            tokio::select! {
                biased;
                () = stop.begun() => panic!("it has not begun"),
                () = tokio::task::yield_now() => {}
            }
        }
        let waiting = tokio::spawn(async move {
            stop.begun().await;
            stop.begun().await;
        });
        tokio::task::yield_now().await;
        sender.send_replace(true);
        tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("in time").expect("no panic");
    }
}
