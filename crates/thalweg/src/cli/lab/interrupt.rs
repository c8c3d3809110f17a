//! Ctrl-C and SIGTERM: the first ends the run cleanly, the second at once.

use thalweg_lab::run::{Interrupt, interrupt};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code after a second signal.
const EXIT_KILLED: i32 = 130;

/// Listens for signals from now on.
pub fn listen() -> anyhow::Result<Interrupt> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let (interrupter, heard) = interrupt();
    tokio::spawn(async move {
        let mut signals = 0;
        loop {
            let why = tokio::select! {
                _ = interrupted.recv() => "interrupted (SIGINT)",
                _ = terminate.recv() => "terminated (SIGTERM)",
                _ = hung_up.recv() => "terminal closed (SIGHUP)",
            };
            signals += 1;
            if signals > 1 {
                // The guard removes brokers and their files; workers exit at the end of their input.
                std::process::exit(EXIT_KILLED);
            }
            interrupter.interrupt(why);
        }
    });
    Ok(heard)
}
