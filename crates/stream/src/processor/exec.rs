//! `exec`: a user's program as a stage. Messages go to the program's standard input; its standard output
//! becomes messages. The program inherits standard error.
//!
//! Two tasks carry the bytes, so that a program that buffers input, or writes long output, cannot deadlock
//! the stream. The stage takes no more messages while the program does not read, and no more output than a
//! batch at a time, so that its memory is bounded. Only the program knows how its output relates to its
//! input. With `--replies=each` it answers every message with one, in order, so that the stage holds the
//! messages inside the program; otherwise they are lost if the program dies.

mod program;

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use memchr::memchr;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock;
use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker};
use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::stage::{IoFailed, Processor, ProgramFailed, StageError, Turn, Wait};
use program::{Framing, GRACE, Program, ProgramOutput};

/// Maximum number of messages inside a program that answers each, and of their bytes. A program that collects
/// more before it answers would wait forever.
const UNANSWERED_MAX: usize = 100_000;
const UNANSWERED_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64;
/// Maximum time that the program may run after it closes its output or its input.
const END_WAITED: Duration = Duration::from_secs(2);
/// The number of SIGKILL, which a killed program has as its status.
const KILLED: i32 = 9;

pub const MODULE: Module = Module {
    name: "exec",
    summary: "runs your own program as a stage, over its standard input and output",
    about: "The program is started once, by `sh -c`, and should exit when its input ends; an exit code other than 0 fails the stream. \
            With `--framing=lines`, a message of several lines is a bad message. The program writes messages of at most 64 MiB; a \
            longer one fails the stream. A program that writes faster than later stages take its messages has to wait, as does a source \
            in front of a program that does not read. A source that is read at least once needs `--replies=each`: otherwise the stream \
            cannot know which messages the program has finished.\n\n\
            The program, and the processes that it has started in its process group, end with the stream: they get SIGTERM and, two \
            seconds later, SIGKILL, also when the stream fails or the process of the stream is killed. A program that does not exit within \
            `--endTimeout` is ended in the same way, with a warning. That fails the stream if the program was still writing, or owes \
            replies.",
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
        OptionSpec {
            name: "endTimeout",
            takes: OptionType::Duration,
            default: OptionDefault::Value("1m"),
            summary: "How long the program may take for its last messages and its exit once the stream has no more input for it.",
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
    let failed = |source| IoFailed { action: "start", what: command.clone(), source };
    let program = Program::start(&command, framing).map_err(failed)?;
    Ok(Box::new(Exec {
        command,
        framing,
        unanswered: (settings.text("replies") == "each").then(PendingReplies::default),
        end_timeout: settings.duration("endTimeout"),
        program,
        unsent: VecDeque::new(),
        come: None,
        sequence: 0,
        has_closed_input: false,
        has_ended: false,
        exit_by: None,
        is_over: false,
        end: None,
        has_finished: false,
    }))
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

/// The end of the program's input.
struct InputEnd {
    /// The time at which the program is terminated; after its termination, the time at which it has ended.
    until: Instant,
    /// The time of the program's latest output since.
    latest_output: Option<Instant>,
    terminated_at: Option<Instant>,
}

struct Exec {
    command: String,
    framing: Framing,
    /// The messages inside the program, if it answers each.
    unanswered: Option<PendingReplies>,
    end_timeout: Duration,
    program: Program,
    /// Messages that wait until the program reads.
    unsent: VecDeque<Batch>,
    come: Option<ProgramOutput>,
    sequence: u64,
    /// The program reads no more.
    has_closed_input: bool,
    /// The program's output has ended.
    has_ended: bool,
    /// The time by which a program that has closed its output or its input should have exited.
    exit_by: Option<Instant>,
    /// The program has exited, or its time to exit has passed.
    is_over: bool,
    /// Set when no more messages follow.
    end: Option<InputEnd>,
    /// All output has been emitted, and the program has exited.
    has_finished: bool,
}

impl Exec {
    fn failed(&self, reason: impl Into<String>) -> StageError {
        ProgramFailed { command: self.command.clone(), reason: reason.into() }.into()
    }

    fn add(&mut self, come: ProgramOutput, batch: &mut Batch) -> Result<(), StageError> {
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

    /// Sends waiting messages, as far as there is room.
    fn send(&mut self) {
        let Some(input) = &self.program.input else { return };
        while !self.unsent.is_empty() {
            match input.try_reserve() {
                Ok(permit) => {
                    let Some(batch) = self.unsent.pop_front() else { return };
                    if let Some(unanswered) = &mut self.unanswered {
                        unanswered.send(&batch);
                    }
                    permit.send(batch);
                }
                Err(TrySendError::Full(())) => break,
                Err(TrySendError::Closed(())) => {
                    self.has_closed_input = true;
                    break;
                }
            }
        }
        if self.has_closed_input {
            self.expect_exit();
        }
    }

    /// Adds available output, up to the size of a batch.
    fn collect(&mut self, batch: &mut Batch) -> Result<(), StageError> {
        while batch.len() < BATCH_MESSAGES_MAX && batch.value_bytes() < BATCH_BYTES_MAX as u64 {
            let come = match self.come.take() {
                Some(come) => come,
                None => match self.program.output.try_recv() {
                    Ok(come) => come,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        self.has_ended = true;
                        self.expect_exit();
                        break;
                    }
                },
            };
            self.add(come, batch)?;
        }
        Ok(())
    }

    /// Notes that the program has closed an end. The time for its exit starts once: waits for the exit may be
    /// cancelled.
    fn expect_exit(&mut self) -> Instant {
        *self.exit_by.get_or_insert_with(|| Instant::now() + END_WAITED)
    }

    /// Waits for output, or for room in the input if messages wait. Cancel safe.
    async fn event(&mut self) {
        let input = self.program.input.as_ref().filter(|_| !self.unsent.is_empty() && !self.has_closed_input);
        let room = async {
            match input {
                Some(input) => input.reserve().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let output = &mut self.program.output;
        let come = async {
            match self.has_ended {
                true => std::future::pending().await,
                false => output.recv().await,
            }
        };
        tokio::select! {
            biased;
            come = come => {
                self.has_ended = come.is_none();
                self.come = come;
            }
            has_room = room => self.has_closed_input = !has_room,
        }
    }

    /// Emits output after the last message of the input, a batch at a time, until the program has exited.
    async fn finish(&mut self, batch: &mut Batch) -> Result<(), StageError> {
        let until = Instant::now() + self.end_timeout;
        self.end.get_or_insert(InputEnd { until, latest_output: None, terminated_at: None });
        while !self.has_finished {
            self.send();
            if self.unsent.is_empty() {
                self.program.input = None;
            }
            self.collect(batch)?;
            let (until, is_terminated) =
                self.end.as_ref().map_or((until, false), |end| (end.until, end.terminated_at.is_some()));
            if Instant::now() >= until {
                match is_terminated {
                    false => self.terminate().await?,
                    true if batch.is_empty() || Instant::now() >= until + self.end_timeout => {
                        return self.give_up();
                    }
                    // The stream takes the output later than the program wrote it.
                    true => {}
                }
            }
            if !batch.is_empty() {
                break;
            }
            if self.has_ended {
                match timeout_at(until, self.program.child.wait()).await {
                    Ok(Ok(status)) => return self.conclude(status, until).await,
                    Ok(Err(error)) => return Err(self.failed(format!("cannot be waited for: {error}"))),
                    Err(_elapsed) => continue,
                }
            }
            let _ = timeout_at(until, self.event()).await;
        }
        if let Some(end) = &mut self.end
            && !batch.is_empty()
        {
            end.latest_output = Some(Instant::now());
        }
        Ok(())
    }

    /// The outcome of a program that has exited.
    async fn conclude(&mut self, status: ExitStatus, until: Instant) -> Result<(), StageError> {
        self.has_finished = true;
        let terminated_at = self.end.as_ref().and_then(|end| end.terminated_at);
        if !status.success() && terminated_at.is_none() {
            return Err(self.failed(format!("failed ({status})")));
        }
        // A process that the program leaves behind may keep the input open.
        let until = until.min(Instant::now() + END_WAITED);
        if !self.unsent.is_empty() || !self.program.has_taken_all(until).await {
            return Err(self.failed(format!("ended before its input did ({status})")));
        }
        let latest_output = self.end.as_ref().and_then(|end| end.latest_output);
        if status.signal() == Some(KILLED) && latest_output > terminated_at {
            return Err(self.not_in_time());
        }
        match self.unanswered.as_ref().map_or(0, PendingReplies::len) {
            0 => Ok(()),
            left => Err(self.failed(format!("ended without a reply to {left} messages"))),
        }
    }

    /// Begins to end a program whose time is over. Its last output is still emitted.
    async fn terminate(&mut self) -> Result<(), StageError> {
        tracing::warn!(
            command = self.command,
            seconds = self.end_timeout.as_secs_f64(),
            "Terminated a program that did not exit after its last input"
        );
        let is_writing = self.is_writing() && !self.has_ended && self.unanswered.is_none();
        let has_read = self.unsent.is_empty() && self.program.has_taken_all(Instant::now()).await;
        self.program.terminate();
        if is_writing || !has_read {
            self.has_finished = true;
            let _ = timeout(GRACE * 2, self.program.child.wait()).await;
            return Err(self.not_in_time());
        }
        if let Some(end) = &mut self.end {
            let now = Instant::now();
            (end.until, end.terminated_at) = (now + GRACE * 2, Some(now));
        }
        Ok(())
    }

    /// Ends the wait for a terminated program, or for the end of its output.
    fn give_up(&mut self) -> Result<(), StageError> {
        self.has_finished = true;
        // Without effect unless the guard itself was killed.
        let _ = self.program.child.start_kill();
        let owes = self.unanswered.as_ref().is_some_and(|unanswered| unanswered.len() > 0);
        if owes || self.is_writing() { Err(self.not_in_time()) } else { Ok(()) }
    }

    /// True if the latest output of the program is recent.
    fn is_writing(&self) -> bool {
        let latest_output = self.end.as_ref().and_then(|end| end.latest_output);
        latest_output.is_some_and(|at| at.elapsed() < GRACE)
    }

    fn not_in_time(&self) -> StageError {
        let reason = "did not finish its last messages in time and was terminated; --endTimeout=";
        self.failed(format!("{reason}{}s allows no more", self.end_timeout.as_secs_f64()))
    }
}

impl Processor for Exec {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let mut failed = Ok(());
        if self.framing == Framing::Lines {
            batch.retain(|message| {
                let is_line = memchr(b'\n', message.value).is_none();
                if !is_line && failed.is_ok() {
                    failed = turn.bad.take(&message, "it has more than one line; use --framing=length");
                }
                is_line
            });
        }
        failed?;
        let sent = std::mem::take(batch);
        if !sent.is_empty() {
            self.unsent.push_back(sent);
        }
        self.send();
        self.collect(batch)
    }

    fn is_full(&self) -> bool {
        !self.unsent.is_empty() || self.unanswered.as_ref().is_some_and(PendingReplies::is_full)
    }

    fn wake(&mut self) -> Option<Wait<'_, ()>> {
        if self.is_over || self.come.is_some() {
            return None;
        }
        Some(Box::pin(async {
            if !self.has_ended && !self.has_closed_input {
                self.event().await;
            }
            if self.has_ended || self.has_closed_input {
                // The program is usually about to exit, and its exit code gives the reason.
                let exit_by = self.expect_exit();
                let _ = timeout_at(exit_by, self.program.child.wait()).await;
                self.is_over = true;
            }
        }))
    }

    fn relieve<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async {
            if self.has_ended || self.has_closed_input {
                return Err(self.failed("ended before its input did"));
            }
            if timeout(self.end_timeout, self.event()).await.is_err() {
                let reason = "takes no more messages; --endTimeout=";
                return Err(
                    self.failed(format!("{reason}{}s allows no more", self.end_timeout.as_secs_f64()))
                );
            }
            self.send();
            self.collect(batch)
        })
    }

    fn keeps_sequences(&self) -> bool {
        self.unanswered.is_some()
    }

    fn held_since(&self) -> Option<u64> {
        let unsent = self.unsent.iter().filter_map(Batch::lowest_sequence).min();
        let unanswered = self.unanswered.as_ref()?.held_since();
        unsent.into_iter().chain(unanswered).min()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.come.is_some() || self.is_over { Some(Instant::now()) } else { self.exit_by }
    }

    fn releases_by(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.is_over |= self.exit_by.is_some_and(|at| at <= Instant::now());
        if self.is_over && self.end.is_none() {
            let end = if self.has_closed_input { "input" } else { "output" };
            let status = self.program.child.try_wait();
            return Err(self.failed(match status {
                Ok(Some(status)) => format!("ended before its input did ({status})"),
                _ => format!("closed its {end} before the end of its messages"),
            }));
        }
        self.send();
        self.collect(batch)
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(self.finish(batch))
    }

    fn has_finished(&self) -> bool {
        self.has_finished
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
