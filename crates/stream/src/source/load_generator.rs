//! `load-generator`: generates messages in memory, as fast as the stream accepts them.
//!
//! In copy mode each message is written: its sequence, as eight bytes, then filler that differs between
//! messages. Buffers returned by the sink are reused. In reference mode all messages refer to the same bytes,
//! and only slots are written. Several producers run as separate tasks, each with its own sequence.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings, StageMaker, WrongMix};
use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch};
use crate::stage::{FillResult, Source, StageError, Turn, Wait};

/// Batches queued by all producers.
const WAITING_BATCHES_MAX: usize = 8;
/// Size of the sequence at the start of a message.
const STAMP_BYTES: usize = 8;
/// Size of Spring XD's sequence (four bytes) and time (eight bytes).
const TIMESTAMP_BYTES: usize = 12;

pub const MODULE: Module = Module {
    name: "load-generator",
    summary: "generates messages of one size in memory, as fast as possible",
    about: "Each message begins with its sequence (eight bytes, big-endian) if it is large enough; `throughput` checks it. With \
            `--mode=reference` all messages refer to the same bytes, and no message is written.",
    options: &[
        OptionSpec {
            name: "producers",
            takes: OptionType::Integer(1, 64),
            default: OptionDefault::Value("1"),
            summary: "The number of producers. A single one runs on the stream's thread, several on others.",
        },
        OptionSpec {
            name: "messageCount",
            takes: OptionType::Integer(0, u64::MAX),
            default: OptionDefault::Value("1000"),
            summary: "The number of messages per producer; 0 is unlimited.",
        },
        OptionSpec {
            name: "messageSize",
            takes: OptionType::Size,
            default: OptionDefault::Value("1000"),
            summary: "The size of a message, at most 64 MiB.",
        },
        OptionSpec {
            name: "rate",
            takes: OptionType::Number(0.0, f64::MAX),
            default: OptionDefault::Value("0"),
            summary: "Messages per second and producer; 0 is unlimited.",
        },
        OptionSpec {
            name: "mode",
            takes: OptionType::Choice(&["copy", "reference"]),
            default: OptionDefault::Value("copy"),
            summary: "Write each message (copy), or let all refer to the same bytes (reference).",
        },
        OptionSpec {
            name: "generateTimestamp",
            takes: OptionType::Flag,
            default: OptionDefault::Value("false"),
            summary: "Begin each message with its number (four bytes) and a clock's nanoseconds (eight bytes).",
        },
    ],
    examples: &[
        (
            "load-generator --messageCount=500000000 --messageSize=1000 | throughput",
            "500 million messages, counted and checked",
        ),
        (
            "load-generator --messageCount=0 --messageSize=100 --rate=50000 | throughput --reportEveryMs=5000",
            "50,000 messages per second until stopped",
        ),
    ],
    check,
    make: StageMaker::Source(|settings, _site| {
        let shape = Shape {
            count: match settings.integer("messageCount") {
                0 => u64::MAX,
                count => count,
            },
            size: (settings.integer("messageSize") as usize).min(crate::message::MESSAGE_BYTES_MAX),
            rate: settings.optional_number("rate").filter(|rate| *rate > 0.0),
            is_shared: settings.text("mode") == "reference",
            has_timestamp: settings.flag("generateTimestamp"),
        };
        let producers = settings.integer("producers") as u32;
        if producers == 1 {
            return Ok(Box::new(Producer::new(shape, 0)));
        }
        Ok(Box::new(Producers::start(&shape, producers)))
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let size = settings.integer("messageSize");
    if size > crate::message::MESSAGE_BYTES_MAX as u64 {
        return Err(WrongMix::new("messageSize", "A message is at most 64 MiB", "Use 64MiB or less."));
    }
    if !settings.flag("generateTimestamp") {
        return Ok(());
    }
    if settings.text("mode") == "reference" {
        let message = "Messages that share the same bytes cannot have timestamps";
        return Err(WrongMix::new("generateTimestamp", message, "Remove it, or use --mode=copy."));
    }
    if size < TIMESTAMP_BYTES as u64 {
        let message = format!("A number and a timestamp take {TIMESTAMP_BYTES} bytes");
        return Err(WrongMix::new("generateTimestamp", message, "Use a larger --messageSize."));
    }
    Ok(())
}

/// The messages to generate.
#[derive(Clone)]
struct Shape {
    count: u64,
    size: usize,
    rate: Option<f64>,
    is_shared: bool,
    has_timestamp: bool,
}

struct Producer {
    shape: Shape,
    origin: u32,
    made: u64,
    started: Option<Instant>,
    shared: Bytes,
    is_closed: bool,
}

impl Producer {
    fn new(shape: Shape, origin: u32) -> Producer {
        let shared = if shape.is_shared { Bytes::from(vec![0; shape.size]) } else { Bytes::new() };
        Producer { shape, origin, made: 0, started: None, shared, is_closed: false }
    }

    /// The number of messages that the rate allows now.
    fn allowed(&self, now: Instant, started: Instant) -> u64 {
        let left = self.shape.count - self.made;
        let Some(rate) = self.shape.rate else { return left };
        let due = (now.duration_since(started).as_secs_f64() * rate) as u64 + 1;
        due.saturating_sub(self.made).min(left)
    }

    fn make(&mut self, batch: &mut Batch, now: Instant, time_ms: i64) -> FillResult {
        let started = *self.started.get_or_insert(now);
        if self.is_closed || self.made == self.shape.count {
            return FillResult::End;
        }
        let size = self.shape.size;
        let fitting = (BATCH_BYTES_MAX / size.max(1)).clamp(1, BATCH_MESSAGES_MAX);
        let count = (self.allowed(now, started) as usize).min(fitting);
        if count == 0 {
            return FillResult::Pending;
        }
        let first = self.made;
        if self.shape.is_shared {
            batch.clear();
            batch.push_run(self.shared.clone(), size, count, true, time_ms, first);
        } else {
            let used = batch.take_buffers().next().and_then(|buffer| buffer.try_into_mut().ok());
            let mut buffer = used.unwrap_or_default();
            self.write(&mut buffer, count, started);
            batch.push_run(buffer.freeze(), size, count, false, time_ms, first);
            batch.is_stamped = size >= STAMP_BYTES && !self.shape.has_timestamp;
        }
        batch.origin = self.origin;
        self.made += count as u64;
        FillResult::Ready
    }

    /// Writes messages in full.
    fn write(&self, buffer: &mut BytesMut, count: usize, started: Instant) {
        let size = self.shape.size;
        buffer.resize(size * count, 0);
        if size == 0 {
            return;
        }
        let nanoseconds = if self.shape.has_timestamp { started.elapsed().as_nanos() as u64 } else { 0 };
        for (sequence, message) in (self.made..).zip(buffer.chunks_exact_mut(size)) {
            if self.shape.has_timestamp && size >= TIMESTAMP_BYTES {
                message[..4].copy_from_slice(&(sequence as u32).to_be_bytes());
                message[4..TIMESTAMP_BYTES].copy_from_slice(&nanoseconds.to_be_bytes());
                message[TIMESTAMP_BYTES..].fill(sequence as u8);
            } else if let Some((stamp, rest)) = message.split_first_chunk_mut::<STAMP_BYTES>() {
                *stamp = sequence.to_be_bytes();
                rest.fill(sequence as u8);
            } else {
                message.fill(sequence as u8);
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let due = Duration::try_from_secs_f64(self.made as f64 / self.shape.rate?).ok()?;
        Some(self.started? + due)
    }
}

impl Source for Producer {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        Ok(self.make(batch, turn.now, turn.time_ms))
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {
            if let Some(due) = self.next_due() {
                sleep_until(due).await;
            }
        })
    }

    fn close(&mut self) {
        self.is_closed = true;
    }
}

/// Several producers as separate tasks.
struct Producers {
    batches: mpsc::Receiver<Batch>,
    next: Option<Batch>,
    has_ended: bool,
    // Aborted with the source.
    _tasks: JoinSet<()>,
}

impl Producers {
    fn start(shape: &Shape, count: u32) -> Producers {
        let (sender, batches) = mpsc::channel(WAITING_BATCHES_MAX);
        let mut tasks = JoinSet::new();
        for origin in 0..count {
            tasks.spawn(produce(Producer::new(shape.clone(), origin), sender.clone()));
        }
        Producers { batches, next: None, has_ended: false, _tasks: tasks }
    }
}

async fn produce(mut producer: Producer, batches: mpsc::Sender<Batch>) {
    loop {
        let mut batch = Batch::new();
        match producer.make(&mut batch, Instant::now(), crate::clock::time_ms()) {
            FillResult::End => return,
            FillResult::Pending => producer.ready().await,
            FillResult::Ready => {
                if batches.send(batch).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Source for Producers {
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        match self.next.take().or_else(|| self.batches.try_recv().ok()) {
            Some(next) => {
                *batch = next;
                Ok(FillResult::Ready)
            }
            None if self.has_ended => Ok(FillResult::End),
            None => Ok(FillResult::Pending),
        }
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {
            if self.next.is_none() {
                self.next = self.batches.recv().await;
                self.has_ended = self.next.is_none();
            }
        })
    }

    fn close(&mut self) {
        self.batches.close();
    }
}
