//! The signals that end a command cleanly: SIGINT from Ctrl-C, and SIGTERM from a service manager or
//! container.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::EXIT_KILLED;

/// The signals. None of them ends the process directly from [`EndSignals::listen`] on.
pub struct EndSignals(Vec<Signal>);

impl EndSignals {
    pub fn listen() -> std::io::Result<EndSignals> {
        EndSignals::of(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    /// The signals and those of a terminal, SIGQUIT from Ctrl-\ and SIGHUP, for a command that has changed
    /// the terminal's modes and must restore them.
    pub(crate) fn of_terminal() -> std::io::Result<EndSignals> {
        let all =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit(), SignalKind::hangup()];
        EndSignals::of(&all)
    }

    fn of(kinds: &[SignalKind]) -> std::io::Result<EndSignals> {
        Ok(EndSignals(kinds.iter().map(|kind| signal(*kind)).collect::<Result<_, _>>()?))
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        poll_fn(|context| match self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// Waits for either signal. From the first call on, neither signal ends the process directly.
pub(crate) async fn end() -> std::io::Result<()> {
    EndSignals::listen()?.next().await;
    Ok(())
}

/// Exits at the second signal, or this long after the first one: a command whose output is blocked cannot end
/// by itself. The task needs a thread that the output does not block.
pub(crate) fn exit_when_blocked(within: Duration) -> std::io::Result<()> {
    exit_when_blocked_by(EndSignals::listen()?, within, async {});
    Ok(())
}

/// [`exit_when_blocked`] by these signals. `last` is done before the exit, which it may make unnecessary.
pub(crate) fn exit_when_blocked_by(
    mut signals: EndSignals,
    within: Duration,
    last: impl Future<Output = ()> + Send + 'static,
) {
    tokio::spawn(async move {
        signals.next().await;
        tokio::select! {
            () = signals.next() => {}
            () = tokio::time::sleep(within) => {}
        }
        last.await;
        std::process::exit(EXIT_KILLED);
    });
}
