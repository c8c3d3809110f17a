//! The signals that end a command cleanly: SIGINT from Ctrl-C, and SIGTERM from a service manager or
//! container.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for either signal. From the first call on, neither signal ends the process directly.
pub(crate) async fn end() -> std::io::Result<()> {
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    Ok(())
}
