//! The worker's end of the protocol: one line with the assignment, lines with commands, lines with events.
//!
//! An empty line is a sign of life of the lab, for the agent in between.
//!
//! The link owns standard input and output. If the input ends, the lab has exited: [`Link::command`] reports
//! it, and a worker that does not exit within a few seconds is killed.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::clock::Clock;
use super::{Assignment, Command, Event};

/// Maximum length of a line. An assignment may list thousands of topics.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Maximum time for a driver to end its children after the lab has exited.
const GRACE: Duration = Duration::from_secs(3);
/// The exit code of a worker that was killed.
const EXIT_ABANDONED: i32 = 3;

/// A protocol error between lab and worker.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// An invalid line.
    #[error(transparent)]
    Line(#[from] LineUnreadable),
    /// Standard input or output failed.
    #[error("Failed to use a worker's standard input or output: {0}")]
    Io(#[from] io::Error),
    /// The lab has exited, or the worker was started by hand.
    #[error("Standard input ended before the assignment: workers are started by the lab")]
    NoAssignment,
}

/// An invalid line.
#[derive(Debug, thiserror::Error)]
#[error("A line on standard input is not a valid {expected}: {source}")]
pub struct LineUnreadable {
    /// The expected content.
    pub expected: &'static str,
    pub source: serde_json::Error,
}

/// The worker's end.
#[derive(Debug)]
pub struct Link {
    commands: mpsc::Receiver<Command>,
    events: EventWriter,
    late_us: u64,
}

/// Writes events; clones share standard output and write whole lines.
#[derive(Clone)]
pub struct EventWriter(Arc<Mutex<Box<dyn Write + Send>>>);

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

/// Reads the assignment, and starts listening for commands.
pub fn open() -> Result<(Assignment, Link), LinkError> {
    let mut input = io::BufReader::new(io::stdin());
    let line = next_line(&mut input)?.ok_or(LinkError::NoAssignment)?;
    let assignment = parse(&line, "assignment")?;
    let (to, commands) = mpsc::channel(16);
    let events = EventWriter(Arc::new(Mutex::new(Box::new(io::stdout()))));
    let to_lab = events.clone();
    std::thread::Builder::new().name("link".to_owned()).spawn(move || listen(&mut input, to, &to_lab))?;
    Ok((assignment, Link { commands, events, late_us: 0 }))
}

impl Link {
    /// The next command; `None` if the lab has exited. Works on any runtime.
    pub async fn command(&mut self) -> Option<Command> {
        let command = self.commands.recv().await;
        self.note(command)
    }

    /// The next command, for a driver without a runtime.
    pub fn command_blocking(&mut self) -> Option<Command> {
        let command = self.commands.blocking_recv();
        self.note(command)
    }

    /// Microseconds from the time of the start to its command, if that came too late.
    pub(super) fn late_us(&self) -> u64 {
        self.late_us
    }

    fn note(&mut self, command: Option<Command>) -> Option<Command> {
        if let Some(Command::Start { at_us, .. }) = command {
            self.late_us = Clock::of_process().now_us().saturating_sub(at_us);
        }
        command
    }

    /// Sends an event.
    pub fn send(&mut self, event: &Event) -> Result<(), LinkError> {
        self.events.send(event)
    }

    /// A sender for other threads.
    pub fn events(&self) -> EventWriter {
        self.events.clone()
    }
}

impl EventWriter {
    /// Sends an event.
    pub fn send(&self, event: &Event) -> Result<(), LinkError> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::from)?;
        line.push(b'\n');
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&line)?;
        Ok(out.flush()?)
    }
}

/// Forwards commands until the input ends, then ensures that the process exits.
fn listen(input: &mut impl BufRead, to: mpsc::Sender<Command>, events: &EventWriter) {
    forward(input, &to, events);
    drop(to);
    #[expect(clippy::disallowed_methods, reason = "a dedicated thread, which only waits")]
    std::thread::sleep(GRACE);
    std::process::exit(EXIT_ABANDONED);
}

fn forward(input: &mut impl BufRead, to: &mpsc::Sender<Command>, events: &EventWriter) {
    loop {
        match next_line(input).map(|line| line.map(|line| parse(&line, "command"))) {
            Ok(Some(Ok(command))) => {
                if to.blocking_send(command).is_err() {
                    break;
                }
            }
            Ok(Some(Err(error))) => {
                // The closed channel ends the worker.
                let _ = events.send(&Event::Failed { error: error.to_string() });
                break;
            }
            Ok(None) | Err(_) => break,
        }
    }
}

/// The next line that is not empty.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    loop {
        match read_line(input)? {
            Some(line) if line == b"\n" => {}
            line => return Ok(line),
        }
    }
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
    fn empty_lines_are_no_commands() {
        let mut input = io::Cursor::new(b"\n\n{\"command\":\"stop\"}\n\n".to_vec());
        let (to, mut commands) = mpsc::channel(4);
        let events = EventWriter(Arc::new(Mutex::new(Box::new(io::sink()))));
        forward(&mut input, &to, &events);
        drop(to);
        assert_eq!(commands.blocking_recv(), Some(Command::Stop));
        assert_eq!(commands.blocking_recv(), None);
    }

    #[test]
    fn a_late_start_is_noted() {
        let (to, commands) = mpsc::channel(2);
        let events = EventWriter(Arc::new(Mutex::new(Box::new(io::sink()))));
        let mut link = Link { commands, events, late_us: 0 };
        let now_us = Clock::of_process().now_us();
        let mut late_us = |at_us| {
            to.blocking_send(Command::Start { at_us, measure_from_us: at_us }).expect("there is room");
            link.command_blocking().expect("a command");
            link.late_us()
        };
        assert_eq!(late_us(now_us + 60_000_000), 0);
        let late = late_us(now_us - 300_000);
        assert!((300_000..60_000_000).contains(&late), "{late}");
    }

    #[test]
    fn lines_are_read_one_by_one_until_the_end() {
        let mut input = io::Cursor::new(b"{\"command\":\"stop\"}\n\n{\"command\":\"halt\"}".to_vec());
        let line = read_line(&mut input).expect("readable").expect("a line");
        assert_eq!(parse::<Command>(&line, "command").expect("a command"), Command::Stop);
        let empty = read_line(&mut input).expect("readable").expect("a line");
        assert!(parse::<Command>(&empty, "command").is_err());
        let wrong = read_line(&mut input).expect("readable").expect("a line");
        let error = parse::<Command>(&wrong, "command").expect_err("no such command");
        assert!(
            error.to_string().starts_with("A line on standard input is not a valid command: "),
            "{error}"
        );
        assert_eq!(read_line(&mut input).expect("readable"), None);
    }
}
