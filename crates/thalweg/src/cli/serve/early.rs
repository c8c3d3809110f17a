//! A stop by a signal before the node serves. The start may be in the middle of a recovery, on a thread that
//! cannot be interrupted. The process ends without that thread, and the next start recovers again.

use anyhow::Result;
use tokio::runtime::Runtime;

/// A signal arrived before the node served.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal before the start was complete; the next start recovers the logs again")]
pub(super) struct EarlyStop;

/// Runs a node until its end. After an early stop, only the start may still run.
pub(super) fn run(runtime: Runtime, life: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let ended = runtime.block_on(async move { tokio::spawn(life).await? });
    if ended.as_ref().is_err_and(|error| error.is::<EarlyStop>()) {
        // Leave the runtime to the end of the process. After a shutdown, a start that finishes its recovery
        // would panic at its next timer.
        std::mem::forget(runtime);
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Reports on drop whether the task has panicked.
    struct PanicReporter(mpsc::SyncSender<bool>);

    impl Drop for PanicReporter {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::panicking());
        }
    }

    #[test]
    fn a_start_that_leaves_its_recovery_after_an_early_stop_does_not_panic() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("it starts");
        let (recovered, recovery) = mpsc::sync_channel::<()>(1);
        let (ended, end) = mpsc::sync_channel(1);
        let life = async move {
            let (begun, beginning) = tokio::sync::oneshot::channel();
            let start = async move {
                let _ended = PanicReporter(ended);
                tokio::task::block_in_place(|| {
                    begun.send(()).expect("the node waits for it");
                    recovery.recv().expect("the recovery ends");
                });
                tokio::time::sleep(Duration::from_millis(1)).await;
            };
            drop(tokio::spawn(start));
            beginning.await.expect("the recovery begins");
            Err(EarlyStop.into())
        };
        assert!(run(runtime, life).is_err_and(|error| error.is::<EarlyStop>()));
        // A background shutdown of a runtime takes a moment.
        assert!(end.recv_timeout(Duration::from_millis(200)).is_err(), "it recovers");
        recovered.send(()).expect("it is in its recovery");
        assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(false), "the start did not panic");
    }
}
