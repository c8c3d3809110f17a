//! The signals that end a command in order: SIGINT, as of Ctrl-C, and SIGTERM, as of a service manager or container.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for either. From the first call on, neither ends the process by itself.
pub async fn end() -> std::io::Result<()> {
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    Ok(())
}
