//! Ctrl-C, SIGTERM and the end of a controlling process: the first of these ends the run cleanly, a second
//! signal ends the process at once.

use std::pin::Pin;

use thalweg_lab::run::{Interrupt, interrupt};
use tokio::signal::unix::{SignalKind, signal};

use super::control::End;
use crate::failure::EXIT_KILLED;

/// Listens for signals from now on, and for the end of the controlling process.
pub(crate) fn listen(control: Option<End>) -> anyhow::Result<Interrupt> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let (interrupter, heard) = interrupt();
    let mut control = control.map(|control| Box::pin(control.ended()));
    tokio::spawn(async move {
        let mut signals = 0;
        loop {
            let why = tokio::select! {
                _ = interrupted.recv() => "interrupted (SIGINT)",
                _ = terminate.recv() => "terminated (SIGTERM)",
                _ = hung_up.recv() => "terminal closed (SIGHUP)",
                () = ended(&mut control) => {
                    control = None;
                    interrupter.interrupt("stopped");
                    continue;
                }
            };
            signals += 1;
            if signals > 1 {
                // The guard process removes brokers and their files; workers exit at the end of their input.
                std::process::exit(EXIT_KILLED);
            }
            interrupter.interrupt(why);
        }
    });
    Ok(heard)
}

/// Waits for the end of the controlling process; without such a process, forever.
async fn ended(control: &mut Option<Pin<Box<impl Future<Output = ()>>>>) {
    match control {
        Some(control) => control.await,
        None => std::future::pending().await,
    }
}
