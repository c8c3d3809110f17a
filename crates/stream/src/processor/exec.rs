//! `exec`: a user's program as a stage. Messages go to the program's standard input; its standard output
//! becomes messages. The program inherits standard error.
//!
//! Two tasks carry the bytes, so that a program that buffers input, or writes long output, cannot deadlock
//! the stream. Only the program knows how its output relates to its input. With `--replies=each` it answers
//! every message with one, in order, so that the stage holds the messages inside the program; otherwise they
//! are lost if the program dies.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker};
use crate::message::{BATCH_BYTES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::stage::{IoFailed, Processor, ProgramFailed, StageError, Turn, Wait};

/// Batches queued in each direction.
const WAITING_MAX: usize = 4;
/// Maximum number of messages inside a program that answers each, and of their bytes. A program that collects
/// more before it answers would wait forever.
const UNANSWERED_MAX: usize = 100_000;
const UNANSWERED_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64;
/// Maximum time that the program may run after it closes its output.
const END_WAITED: Duration = Duration::from_secs(2);

pub const MODULE: Module = Module {
    name: "exec",
    summary: "runs your own program as a stage, over its standard input and output",
    about: "The program is started once, by `sh -c`, and should exit when its input ends; an exit code other than 0 fails the stream. \
            With `--framing=lines`, a message of several lines is a bad message. A source that is read at least once needs \
            `--replies=each`: otherwise the stream cannot know which messages the program has finished.",
    options: &[
        OptionSpec {
            name: "command",
            takes: OptionType::Name,
            default: OptionDefault::Required,
            summary: "The shell command.",
        },
        OptionSpec {
            name: "framing",
            takes: OptionType::Choice(&["lines", "length"]),
            default: OptionDefault::Value("lines"),
            summary: "`lines`: a message per line. `length`: four bytes of length, big-endian, before each message.",
        },
        OptionSpec {
            name: "replies",
            takes: OptionType::Choice(&["any", "each"]),
            default: OptionDefault::Value("any"),
            summary: "`each`: the program writes exactly one message for each that it reads, in order, at most 100,000 messages or \
                      64 MiB later; this message keeps the key, the timestamp and the headers. `any`: any number, at any time.",
        },
    ],
    examples: &[
        ("stdin | exec --command='tr a-z A-Z' | stdout", "an ordinary program as a stage"),
        (
            "kafka --topics=in --group=shout | exec --command='sed -u s/a/A/' --replies=each | kafka --topic=out",
            "at least once, because each line has its reply",
        ),
    ],
    check: declaration::any,
    make: StageMaker::Processor(start),
};

fn start(settings: &Settings, _site: &Site) -> Result<Box<dyn Processor>, StageError> {
    let command = settings.text("command").to_owned();
    let framing = if settings.text("framing") == "lines" { Framing::Lines } else { Framing::Length };
    let spawned = Command::new("sh")
        .args(["-c", &command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        // Ctrl-C must not reach the program, which exits when its input ends.
        .process_group(0)
        .spawn();
    let failed = |source| IoFailed { action: "start", what: command.clone(), source };
    let mut child = spawned.map_err(failed)?;
    let input = child.stdin.take().expect("it is a pipe");
    let output = child.stdout.take().expect("it is a pipe");
    let (to_child, batches) = mpsc::channel(WAITING_MAX);
    let (sender, from_child) = mpsc::channel(WAITING_MAX);
    tokio::spawn(write(input, batches, framing));
    tokio::spawn(read(output, sender, framing));
    Ok(Box::new(Exec {
        command,
        framing,
        unanswered: (settings.text("replies") == "each").then(PendingReplies::default),
        child,
        to_child: Some(to_child),
        from_child,
        come: None,
        sequence: 0,
        has_ended: false,
        is_over: false,
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Lines,
    Length,
}

/// Writes batches to the program, until there are no more or the program closes its input.
async fn write(mut input: ChildStdin, mut batches: mpsc::Receiver<Batch>, framing: Framing) {
    let mut bytes = BytesMut::new();
    while let Some(batch) = batches.recv().await {
        bytes.clear();
        for message in batch.messages() {
            if framing == Framing::Length {
                bytes.extend_from_slice(&(message.value.len() as u32).to_be_bytes());
            }
            bytes.extend_from_slice(message.value);
            if framing == Framing::Lines {
                bytes.extend_from_slice(b"\n");
            }
        }
        // A program that closes its input is reported when it exits.
        if input.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads messages from the program, until there are no more or a frame is invalid.
async fn read(mut output: ChildStdout, pieces: mpsc::Sender<Result<Vec<Bytes>, String>>, framing: Framing) {
    let mut pending = BytesMut::new();
    loop {
        pending.reserve(BATCH_BYTES_MAX);
        let is_end = matches!(output.read_buf(&mut pending).await, Ok(0) | Err(_));
        let cut = match framing {
            Framing::Lines => Ok(cut_lines(&mut pending, is_end)),
            Framing::Length => cut_frames(&mut pending, is_end),
        };
        let cut = match cut {
            Ok(_) if pending.len() > MESSAGE_BYTES_MAX => {
                Err("writes a message of more than 64 MiB".to_owned())
            }
            cut => cut,
        };
        let is_over = is_end || cut.is_err();
        if cut.as_ref().map_or(true, |messages| !messages.is_empty()) && pieces.send(cut).await.is_err() {
            return;
        }
        if is_over {
            return;
        }
    }
}

fn cut_lines(pending: &mut BytesMut, is_end: bool) -> Vec<Bytes> {
    let mut lines = Vec::new();
    while let Some(end) = memchr(b'\n', pending) {
        lines.push(pending.split_to(end).freeze());
        pending.advance(1);
    }
    if is_end && !pending.is_empty() {
        lines.push(pending.split().freeze());
    }
    lines
}

fn cut_frames(pending: &mut BytesMut, is_end: bool) -> Result<Vec<Bytes>, String> {
    let mut frames = Vec::new();
    while let Some(length) = pending.first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(format!("announces a message of {length} bytes; the limit is 64 MiB"));
        }
        if pending.len() < 4 + length {
            break;
        }
        pending.advance(4);
        frames.push(pending.split_to(length).freeze());
    }
    match is_end && !pending.is_empty() {
        true => Err("ends in the middle of a message".to_owned()),
        false => Ok(frames),
    }
}

/// Messages inside the program, which answers them in order.
#[derive(Default)]
struct PendingReplies {
    batches: VecDeque<Batch>,
    /// Number of answered messages of the first batch.
    answered: usize,
    /// Number and size of the messages in all batches.
    count: usize,
    bytes: u64,
}

impl PendingReplies {
    fn send(&mut self, batch: &Batch) {
        if !batch.is_empty() {
            self.count += batch.len();
            self.bytes += batch.value_bytes();
            self.batches.push_back(batch.clone());
        }
    }

    /// Adds the answers to a batch, in place of the values of their messages. Returns false if there are more
    /// answers than messages.
    fn answer(&mut self, answers: Vec<Bytes>, out: &mut Batch) -> bool {
        let mut answers = answers.into_iter();
        while answers.len() > 0 {
            let Some(first) = self.batches.front() else { return false };
            let count = answers.len().min(first.len() - self.answered);
            out.append_with_values(first, self.answered, answers.by_ref().take(count));
            self.answered += count;
            if self.answered == first.len() {
                self.count -= first.len();
                self.bytes -= first.value_bytes();
                self.batches.pop_front();
                self.answered = 0;
            }
        }
        true
    }

    fn len(&self) -> usize {
        self.count - self.answered
    }

    fn is_full(&self) -> bool {
        self.len() >= UNANSWERED_MAX || self.bytes >= UNANSWERED_BYTES_MAX
    }

    /// The lowest sequence inside the program, or of the same batch.
    fn held_since(&self) -> Option<u64> {
        self.batches.iter().filter_map(Batch::lowest_sequence).min()
    }
}

struct Exec {
    command: String,
    framing: Framing,
    /// The messages inside the program, if it answers each.
    unanswered: Option<PendingReplies>,
    child: Child,
    to_child: Option<mpsc::Sender<Batch>>,
    from_child: mpsc::Receiver<Result<Vec<Bytes>, String>>,
    come: Option<Result<Vec<Bytes>, String>>,
    sequence: u64,
    /// The program's output has ended.
    has_ended: bool,
    /// The program has exited, or its time to exit has passed.
    is_over: bool,
}

impl Exec {
    fn failed(&self, reason: impl Into<String>) -> StageError {
        ProgramFailed { command: self.command.clone(), reason: reason.into() }.into()
    }

    fn add(&mut self, come: Result<Vec<Bytes>, String>, batch: &mut Batch) -> Result<(), StageError> {
        let messages = come.map_err(|reason| self.failed(reason))?;
        if let Some(unanswered) = &mut self.unanswered {
            return match unanswered.answer(messages, batch) {
                true => Ok(()),
                false => Err(self.failed("writes more messages than it reads; use --replies=any")),
            };
        }
        let time_ms = clock::time_ms();
        for message in messages {
            batch.push(message, None, time_ms, self.sequence);
            self.sequence += 1;
        }
        Ok(())
    }

    /// Sends a batch to the program, and collects its output meanwhile.
    async fn exchange(&mut self, batch: &mut Batch) -> Result<(), StageError> {
        let sent = std::mem::take(batch);
        if let Some(come) = self.come.take() {
            self.add(come, batch)?;
        }
        if sent.is_empty() {
            return Ok(());
        }
        let Some(sender) = self.to_child.clone() else { return Ok(()) };
        loop {
            let come = tokio::select! {
                biased;
                come = self.from_child.recv() => come,
                permit = sender.reserve() => match permit {
                    Ok(permit) => {
                        if let Some(unanswered) = &mut self.unanswered {
                            unanswered.send(&sent);
                        }
                        permit.send(sent);
                        return Ok(());
                    }
                    Err(_gone) => None,
                },
            };
            match come {
                Some(come) => self.add(come, batch)?,
                None => return Err(self.end_of_child().await),
            }
        }
    }

    /// The error for a program that exited too early.
    async fn end_of_child(&mut self) -> StageError {
        match self.child.wait().await {
            Ok(status) => self.failed(format!("ended before its input did ({status})")),
            Err(error) => self.failed(format!("cannot be waited for: {error}")),
        }
    }

    async fn finish(&mut self, batch: &mut Batch) -> Result<(), StageError> {
        self.to_child = None;
        while let Some(come) = match self.come.take() {
            Some(come) => Some(come),
            None => self.from_child.recv().await,
        } {
            self.add(come, batch)?;
        }
        let status: io::Result<_> = self.child.wait().await;
        match status {
            Ok(status) if status.success() => match self.unanswered.as_ref().map_or(0, PendingReplies::len) {
                0 => Ok(()),
                left => Err(self.failed(format!("ended without a reply to {left} messages"))),
            },
            Ok(status) => Err(self.failed(format!("failed ({status})"))),
            Err(error) => Err(self.failed(format!("cannot be waited for: {error}"))),
        }
    }
}

impl Processor for Exec {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.framing == Framing::Length {
            return Ok(());
        }
        let mut failed = Ok(());
        batch.retain(|message| {
            let is_line = memchr(b'\n', message.value).is_none();
            if !is_line && failed.is_ok() {
                failed = turn.bad.take(&message, "it has more than one line; use --framing=length");
            }
            is_line
        });
        failed
    }

    fn settle<'a>(&'a mut self, batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        Some(Box::pin(self.exchange(batch)))
    }

    fn is_full(&self) -> bool {
        self.unanswered.as_ref().is_some_and(PendingReplies::is_full)
    }

    fn wake(&mut self) -> Option<Wait<'_, ()>> {
        if self.is_over || self.come.is_some() {
            return None;
        }
        Some(Box::pin(async {
            if !self.has_ended {
                self.come = self.from_child.recv().await;
                self.has_ended = self.come.is_none();
            }
            if self.has_ended {
                // The program is usually about to exit, and its exit code gives the reason.
                let _ = timeout(END_WAITED, self.child.wait()).await;
                self.is_over = true;
            }
        }))
    }

    fn held_since(&self) -> Option<u64> {
        self.unanswered.as_ref().and_then(PendingReplies::held_since)
    }

    fn deadline(&self) -> Option<Instant> {
        (self.come.is_some() || self.is_over).then(Instant::now)
    }

    fn tick(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.is_over && self.to_child.is_some() {
            let status = self.child.try_wait().ok().flatten();
            let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
            return Err(self.failed(format!("ended before its input did{status}")));
        }
        while let Some(come) = self.come.take().or_else(|| self.from_child.try_recv().ok()) {
            self.add(come, batch)?;
        }
        Ok(())
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(self.finish(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn a_reply_has_the_place_of_its_message() {
        let mut unanswered = PendingReplies::default();
        let mut batch = |sequences: std::ops::Range<u64>| {
            let mut batch = Batch::new();
            for sequence in sequences {
                batch.push(Bytes::from_static(b"in"), Some(format!("k{sequence}").into()), 7, sequence);
            }
            unanswered.send(&batch);
        };
        batch(10..12);
        batch(0..0);
        batch(3..5);
        assert_eq!((unanswered.held_since(), unanswered.len()), (Some(3), 4));
        let answers = |count: u8| (0..count).map(|at| Bytes::from(vec![b'a' + at])).collect::<Vec<_>>();
        let mut out = Batch::new();
        assert!(unanswered.answer(answers(3), &mut out));
        let message = |message: Message<'_>| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let key = message.key.map(text).unwrap_or_default();
            format!("{} {} {key} {}", message.sequence, message.time_ms, text(message.value))
        };
        let messages: Vec<String> = out.messages().map(message).collect();
        let expected = ["10 7 k10 a", "11 7 k11 b", "3 7 k3 c"];
        assert_eq!(messages, expected);
        assert_eq!((unanswered.held_since(), unanswered.len()), (Some(3), 1));
        assert!(unanswered.answer(answers(1), &mut out));
        assert_eq!((unanswered.held_since(), unanswered.len()), (None, 0));
        assert!(!unanswered.answer(answers(1), &mut out), "nothing was asked");
    }

    #[test]
    fn the_messages_inside_a_program_have_a_bound() {
        let mut unanswered = PendingReplies::default();
        let mut batch = Batch::new();
        (0..1000).for_each(|sequence| batch.push(Bytes::from_static(b"in"), None, 7, sequence));
        (0..UNANSWERED_MAX / 1000).for_each(|_| unanswered.send(&batch));
        assert!(unanswered.is_full());
        assert!(unanswered.answer(vec![Bytes::from_static(b"out"); 1001], &mut Batch::new()));
        assert!(!unanswered.is_full());
        let left = (UNANSWERED_MAX - 1001, UNANSWERED_MAX as u64 * 2 - 2000);
        assert_eq!((unanswered.len(), unanswered.bytes), left);
        let mut large = Batch::new();
        large.push(vec![0; MESSAGE_BYTES_MAX].into(), None, 7, 0);
        unanswered.send(&large);
        assert!(unanswered.is_full());
    }
}
