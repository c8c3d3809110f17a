//! The worker's end of the talk with the lab: one line with the assignment, lines with commands, lines with events.
//!
//! The link owns standard input and output. When the input ends, the lab is gone: [`Link::command`] says so, and a worker
//! that has not ended a few seconds later is ended.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Assignment, Command, Event};

/// The longest line that is read. An assignment names its topics, and there may be thousands.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Time for a driver to end its children after the lab is gone.
const GRACE: Duration = Duration::from_secs(3);
/// The exit code of a worker that had to be ended.
const EXIT_ABANDONED: i32 = 3;

/// The lab and the worker do not understand each other.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A line is not what it should be.
    #[error(transparent)]
    Line(#[from] LineUnreadable),
    /// Standard input or output failed.
    #[error("A worker's standard input or output failed: {0}")]
    Io(#[from] io::Error),
    /// The lab is gone, or somebody ran a worker by hand.
    #[error("Standard input ended before a line with the assignment: a worker is started by the lab")]
    NoAssignment,
}

/// A line is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("A line on standard input is no {expected}: {source}")]
pub struct LineUnreadable {
    /// What it should be.
    pub expected: &'static str,
    /// What is wrong.
    pub source: serde_json::Error,
}

/// The worker's end.
#[derive(Debug)]
pub struct Link {
    commands: mpsc::Receiver<Command>,
    events: EventWriter,
}

/// Writes events; clones write to the same standard output, whole lines each.
#[derive(Clone)]
pub struct EventWriter(Arc<Mutex<Box<dyn Write + Send>>>);

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

/// Reads the assignment, and begins to listen for commands.
pub fn open() -> Result<(Assignment, Link), LinkError> {
    let mut input = io::BufReader::new(io::stdin());
    let line = read_line(&mut input)?.ok_or(LinkError::NoAssignment)?;
    let assignment = parse(&line, "assignment")?;
    let (to, commands) = mpsc::channel(16);
    let events = EventWriter(Arc::new(Mutex::new(Box::new(io::stdout()))));
    let told = events.clone();
    std::thread::Builder::new().name("link".to_owned()).spawn(move || listen(&mut input, to, &told))?;
    Ok((assignment, Link { commands, events }))
}

impl Link {
    /// The next command; none when the lab is gone. Works on any runtime.
    pub async fn command(&mut self) -> Option<Command> {
        self.commands.recv().await
    }

    /// The next command, for a driver without a runtime.
    pub fn command_blocking(&mut self) -> Option<Command> {
        self.commands.blocking_recv()
    }

    /// Tells the lab.
    pub fn send(&mut self, event: &Event) -> Result<(), LinkError> {
        self.events.send(event)
    }

    /// For other threads, that have something to tell.
    pub fn events(&self) -> EventWriter {
        self.events.clone()
    }
}

impl EventWriter {
    /// Tells the lab.
    pub fn send(&self, event: &Event) -> Result<(), LinkError> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::from)?;
        line.push(b'\n');
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&line)?;
        Ok(out.flush()?)
    }
}

/// Passes commands on until the input ends; then sees to it that the process ends too.
fn listen(input: &mut impl BufRead, to: mpsc::Sender<Command>, events: &EventWriter) {
    loop {
        match read_line(input).map(|line| line.map(|line| parse(&line, "command"))) {
            Ok(Some(Ok(command))) => {
                if to.blocking_send(command).is_err() {
                    break;
                }
            }
            Ok(Some(Err(error))) => {
                // The worker goes on to its end, which the closed channel brings; the lab knows why.
                let _ = events.send(&Event::Failed { error: error.to_string() });
                break;
            }
            Ok(None) | Err(_) => break,
        }
    }
    drop(to);
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, that only waits")]
    std::thread::sleep(GRACE);
    std::process::exit(EXIT_ABANDONED);
}

fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

fn parse<T: serde::de::DeserializeOwned>(line: &[u8], expected: &'static str) -> Result<T, LineUnreadable> {
    serde_json::from_slice(line).map_err(|source| LineUnreadable { expected, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one_until_the_end() {
        let mut input = io::Cursor::new(b"{\"command\":\"stop\"}\n\n{\"command\":\"halt\"}".to_vec());
        let line = read_line(&mut input).expect("readable").expect("a line");
        assert_eq!(parse::<Command>(&line, "command").expect("a command"), Command::Stop);
        let empty = read_line(&mut input).expect("readable").expect("a line");
        assert!(parse::<Command>(&empty, "command").is_err());
        let wrong = read_line(&mut input).expect("readable").expect("a line");
        let error = parse::<Command>(&wrong, "command").expect_err("no such command");
        assert!(error.to_string().starts_with("A line on standard input is no command: "), "{error}");
        assert_eq!(read_line(&mut input).expect("readable"), None);
    }
}
