//! Requests to stop the node: SIGTERM, SIGINT and, with `--until-stdin-closes`, the end of standard input.
//!
//! The system closes a pipe when the process at its other end exits for any reason, `kill -9` included, so a
//! node whose standard input is a pipe from the program that started it does not outlive that program.

use std::io::{self, ErrorKind, Read};

use thalweg_cli::signals::EndSignals;
use tokio::sync::oneshot;

/// The sources of requests to stop.
pub(super) struct StopRequests {
    signals: EndSignals,
    /// Pending until standard input closes; none without `--until-stdin-closes`, or after the end.
    input_end: Option<oneshot::Receiver<()>>,
}

impl StopRequests {
    /// From here on, neither signal ends the process directly.
    pub(super) fn listen(until_stdin_closes: bool) -> io::Result<StopRequests> {
        Ok(StopRequests {
            signals: EndSignals::listen()?,
            input_end: until_stdin_closes.then(watch_input).transpose()?,
        })
    }

    /// Waits for the next request.
    pub(super) async fn next(&mut self) {
        let StopRequests { signals, input_end } = self;
        let end = async {
            match input_end {
                Some(end) => drop(end.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = signals.next() => {}
            () = end => {
                tracing::info!("Standard input is closed");
                self.input_end = None;
            }
        }
    }

    /// Waits for the next signal: the end of standard input does not hurry a stop.
    pub(super) async fn next_signal(&mut self) {
        self.signals.next().await;
    }
}

/// Reads standard input to its end, and discards the bytes. On a separate thread, which the end of the
/// process does not wait for, unlike tokio's blocking tasks.
fn watch_input() -> io::Result<oneshot::Receiver<()>> {
    let (closed, end) = oneshot::channel();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut discarded = [0; 4096];
        let mut input = io::stdin().lock();
        loop {
            match input.read(&mut discarded) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        // The receiver is gone if the node has stopped.
        let _ = closed.send(());
    })?;
    Ok(end)
}
