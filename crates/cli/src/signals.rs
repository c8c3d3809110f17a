//! The signals that end a command cleanly: SIGINT from Ctrl-C, and SIGTERM from a service manager or
//! container.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::EXIT_KILLED;

/// Both signals. Neither ends the process directly from [`EndSignals::listen`] on.
pub struct EndSignals {
    interrupted: Signal,
    terminated: Signal,
}

impl EndSignals {
    pub fn listen() -> std::io::Result<EndSignals> {
        Ok(EndSignals {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
        }
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
    let mut signals = EndSignals::listen()?;
    tokio::spawn(async move {
        signals.next().await;
        tokio::select! {
            () = signals.next() => {}
            () = tokio::time::sleep(within) => {}
        }
        std::process::exit(EXIT_KILLED);
    });
    Ok(())
}
