//! A stop by a signal before the node serves. The start may be in the middle of a recovery, on a thread that
//! cannot be interrupted. The process ends without that thread, and the next start recovers again. Temporary
//! data has no next start and little to recover: the start is completed, and its node stopped like any other.
//! A start that takes longer, such as that of a broker without its controllers, is aborted. The process then
//! waits for the thread, which would write into the directory while it is removed.

use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// A signal arrived before the node served.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal before the start was complete{}", .0.consequence())]
pub(super) struct EarlyStop(pub AbandonedStart);

/// Time limit for a start with temporary data to complete.
const COMPLETE_MAX: Duration = Duration::from_secs(3);
/// Time limit for the end of an aborted start.
const END_MAX: Duration = Duration::from_secs(20);

/// What becomes of a start that a signal has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbandonedStart {
    /// The end of the process ends it.
    Left,
    /// The process waits for its end.
    Awaited,
}

impl AbandonedStart {
    /// Lets a start go no further than its recovery, or completes it and stops its node.
    pub(super) async fn end<N, E>(self, mut starting: JoinHandle<Result<N, E>>, stop: impl AsyncFnOnce(N)) {
        if self == AbandonedStart::Left {
            return starting.abort();
        }
        // Aborted, the parts that have started would log that the runtime ends under them.
        match tokio::time::timeout(COMPLETE_MAX, &mut starting).await {
            Ok(Ok(Ok(node))) => stop(node).await,
            Ok(_) => {}
            Err(_) => {
                starting.abort();
                // Past the limit, the directory stays.
                let _ = tokio::time::timeout(END_MAX, starting).await;
            }
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            AbandonedStart::Left => "; the next start recovers the logs again",
            AbandonedStart::Awaited => "",
        }
    }
}

/// Runs a node until its end. After an early stop, only the start may still run.
pub(super) fn run(
    runtime: Runtime,
    abandoned: AbandonedStart,
    life: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<()> {
    let ended = runtime.block_on(async move { tokio::spawn(life).await? });
    if ended.as_ref().is_err_and(|error| error.is::<EarlyStop>()) {
        match abandoned {
            // After a shutdown, a start that finishes its recovery would panic at its next timer.
            AbandonedStart::Left => std::mem::forget(runtime),
            // The start has ended, and its threads may still write.
            AbandonedStart::Awaited => runtime.shutdown_timeout(END_MAX),
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn runtime() -> Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().expect("it starts")
    }

    #[test]
    fn temporary_data_is_not_written_after_an_early_stop() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().to_owned();
        let life = async move {
            let (begun, beginning) = tokio::sync::oneshot::channel();
            let starting = tokio::spawn(async move {
                let write = move |name: &str| {
                    std::thread::park_timeout(Duration::from_millis(100));
                    std::fs::write(data.join(name), "").expect("the directory is there");
                };
                let later = write.clone();
                drop(tokio::task::spawn_blocking(move || later("blocking")));
                tokio::task::block_in_place(|| {
                    begun.send(()).expect("the node waits for it");
                    write("start");
                });
                tokio::time::sleep(END_MAX).await;
                Ok::<_, std::convert::Infallible>(())
            });
            beginning.await.expect("the start begins");
            AbandonedStart::Awaited.end(starting, async |()| panic!("the start takes too long")).await;
            Err(EarlyStop(AbandonedStart::Awaited).into())
        };
        assert!(run(runtime(), AbandonedStart::Awaited, life).is_err_and(|error| error.is::<EarlyStop>()));
        let mut names: Vec<_> = dir.path().read_dir().expect("it is there").flatten().collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        let names: Vec<_> = names.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(names, ["blocking", "start"], "all is written by now");
    }

    #[test]
    fn the_node_of_a_short_start_with_temporary_data_is_stopped() {
        let (stopped, stop) = mpsc::sync_channel(1);
        let life = async move {
            let starting = tokio::spawn(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok::<_, std::convert::Infallible>(7)
            });
            let stop = async |node: i32| stopped.send(node).expect("the test waits for it");
            AbandonedStart::Awaited.end(starting, stop).await;
            Err(EarlyStop(AbandonedStart::Awaited).into())
        };
        let ended = run(runtime(), AbandonedStart::Awaited, life).expect_err("it was stopped");
        assert_eq!(ended.to_string(), "stopped by a signal before the start was complete");
        assert_eq!(stop.try_recv(), Ok(7), "the node");
    }

    /// Reports on drop whether the task has panicked.
    struct PanicReporter(mpsc::SyncSender<bool>);

    impl Drop for PanicReporter {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::panicking());
        }
    }

    #[test]
    fn a_start_that_leaves_its_recovery_after_an_early_stop_does_not_panic() {
        let runtime = runtime();
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
            Err(EarlyStop(AbandonedStart::Left).into())
        };
        assert!(run(runtime, AbandonedStart::Left, life).is_err_and(|error| error.is::<EarlyStop>()));
        // A background shutdown of a runtime takes a moment.
        assert!(end.recv_timeout(Duration::from_millis(200)).is_err(), "it recovers");
        recovered.send(()).expect("it is in its recovery");
        assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(false), "the start did not panic");
    }
}
