//! `throughput`: counts messages and bytes, and prints rates at intervals and at the end in Spring XD's
//! format. The sink also checks that no producer's message is missing: sequences must be consecutive, and are
//! compared with the first bytes of stamped messages.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::declaration::{
    self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker, StageOutput,
};
use crate::message::Batch;
use crate::stage::{Sink, StageError, Turn};

const TIME_UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];
const SIZE_UNITS: [&str; 7] = ["B", "KB", "MB", "GB", "KiB", "MiB", "GiB"];

pub const MODULE: Module = Module {
    name: "throughput",
    summary: "measures messages and bytes per second",
    about: "Prints at intervals and at the end: the messages of the interval and in total, then the bytes likewise. As in Spring \
            XD, an MB has 2^20 bytes; `--sizeUnit` changes that. At the end it says whether any message of a producer was \
            missing. After a `filter`, sequences have gaps.",
    options: &[
        OptionSpec {
            name: "reportEveryMs",
            takes: OptionType::Integer(0, u64::MAX / 1_000_000),
            default: OptionDefault::Value("1000"),
            summary: "Print at this interval in milliseconds; 0 prints only at the end.",
        },
        OptionSpec {
            name: "reportEveryNumber",
            takes: OptionType::Integer(0, u64::MAX),
            default: OptionDefault::Value("0"),
            summary: "Print after this many messages, rounded to batches; 0 disables.",
        },
        OptionSpec {
            name: "reportEveryBytes",
            takes: OptionType::Size,
            default: OptionDefault::Value("0"),
            summary: "Print after this many bytes, rounded to batches; 0 disables.",
        },
        OptionSpec {
            name: "totalExpected",
            takes: OptionType::Integer(0, u64::MAX),
            default: OptionDefault::Value("0"),
            summary: "Print after this many messages and reset the totals; 0 disables.",
        },
        OptionSpec {
            name: "timeUnit",
            takes: OptionType::Choice(&TIME_UNITS),
            default: OptionDefault::Value("s"),
            summary: "The unit of times.",
        },
        OptionSpec {
            name: "sizeUnit",
            takes: OptionType::Choice(&SIZE_UNITS),
            default: OptionDefault::None,
            summary: "The unit of sizes; by default bytes, and MB of 2^20 bytes for rates.",
        },
        OptionSpec {
            name: "logger",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The prefix of each line; by default the name of the stream.",
        },
    ],
    examples: &[(
        "load-generator --messageCount=500000000 --messageSize=1000 | throughput",
        "the throughput of a stream in memory",
    )],
    check: declaration::any,
    make: StageMaker::Sink(|settings, site| {
        let positive = |name: &str| Some(settings.integer(name)).filter(|value| *value > 0);
        Ok(Box::new(Throughput {
            every: positive("reportEveryMs").map(Duration::from_millis),
            every_messages: positive("reportEveryNumber"),
            every_bytes: positive("reportEveryBytes"),
            expected: positive("totalExpected"),
            form: Form {
                time_unit: settings.text("timeUnit").to_owned(),
                size_unit: settings.optional_text("sizeUnit").map(str::to_owned),
            },
            name: settings.optional_text("logger").unwrap_or(&site.stream).to_owned(),
            started: None,
            last: None,
            all: Counts::default(),
            interval: Counts::default(),
            interval_started: None,
            next: Vec::new(),
            order: Order::default(),
            findings: site.findings.clone(),
            console: site.console.clone(),
        }))
    }),
};

#[derive(Clone, Copy, Default)]
struct Counts {
    messages: u64,
    bytes: u64,
}

/// The result of the sequence check.
#[derive(Clone, Copy, Default)]
struct Order {
    /// Number of messages that do not follow their predecessor.
    gaps: u64,
    /// Number of messages whose first bytes differ from their sequence.
    unlike: u64,
    /// Number of messages whose first bytes were compared.
    read: u64,
}

struct Throughput {
    every: Option<Duration>,
    every_messages: Option<u64>,
    every_bytes: Option<u64>,
    expected: Option<u64>,
    form: Form,
    name: String,
    started: Option<Instant>,
    /// The time of the last message: the time behind it is not part of the total rate.
    last: Option<Instant>,
    all: Counts,
    interval: Counts,
    interval_started: Option<Instant>,
    /// The expected next sequence of each producer.
    next: Vec<u64>,
    order: Order,
    findings: Findings,
    console: Arc<dyn StageOutput>,
}

impl Throughput {
    fn check(&mut self, batch: &Batch) -> u64 {
        let origin = batch.origin as usize;
        if self.next.len() <= origin {
            self.next.resize(origin + 1, 0);
        }
        let mut next = self.next[origin];
        let mut bytes = 0;
        let mut order = self.order;
        if batch.is_stamped {
            for message in batch.messages() {
                bytes += message.value.len() as u64;
                order.gaps += u64::from(message.sequence != next);
                let stamp = message.value.first_chunk().map(|stamp| u64::from_be_bytes(*stamp));
                order.unlike += u64::from(stamp != Some(message.sequence));
                next = message.sequence + 1;
            }
            order.read += batch.len() as u64;
        } else {
            for message in batch.messages() {
                bytes += message.value.len() as u64;
                order.gaps += u64::from(message.sequence != next);
                next = message.sequence + 1;
            }
        }
        self.order = order;
        self.next[origin] = next;
        bytes
    }

    fn is_due(&self, now: Instant) -> bool {
        let reached = |count: u64, limit: Option<u64>| limit.is_some_and(|limit| count >= limit);
        reached(self.interval.messages, self.every_messages)
            || reached(self.interval.bytes, self.every_bytes)
            || reached(self.all.messages, self.expected)
            || self.deadline().is_some_and(|deadline| deadline <= now)
    }

    fn print(&mut self, now: Instant) {
        let (Some(started), Some(interval_started)) = (self.started, self.interval_started) else { return };
        let in_interval = now - interval_started;
        let in_all = self.last.unwrap_or(now).saturating_duration_since(started);
        let lines = self.form.lines((self.interval, in_interval), (self.all, in_all));
        for line in lines {
            self.console.line(&format!("{}: {line}", self.name));
        }
        self.interval = Counts::default();
        self.interval_started = Some(now);
        let seconds = in_all.as_secs_f64().max(1e-9);
        self.findings.set("messages", self.all.messages);
        self.findings.set("bytes", self.all.bytes);
        self.findings.set("seconds", seconds);
        self.findings.set("messages_per_s", self.all.messages as f64 / seconds);
        self.findings.set("mib_per_s", self.all.bytes as f64 / seconds / f64::from(1 << 20));
        self.findings.set("out_of_sequence", self.order.gaps);
        if self.expected.is_some_and(|expected| self.all.messages >= expected) {
            self.started = None;
            self.interval_started = None;
            self.all = Counts::default();
        }
    }
}

impl Sink for Throughput {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.started.get_or_insert(turn.now);
        self.interval_started.get_or_insert(turn.now);
        let bytes = self.check(batch);
        for counts in [&mut self.all, &mut self.interval] {
            counts.messages += batch.len() as u64;
            counts.bytes += bytes;
        }
        self.last = Some(Instant::now());
        if self.is_due(turn.now) {
            self.print(turn.now);
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.interval_started? + self.every?)
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.is_due(turn.now) {
            self.print(turn.now);
        }
        Ok(())
    }

    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.print(Instant::now());
        let Order { gaps, unlike, read } = self.order;
        self.findings.set("first_bytes_read", read);
        self.findings.set("first_bytes_unlike_sequence", unlike);
        let verdict = match (gaps, unlike, read) {
            (0, 0, 0) => "No message is missing: the sequences have no gaps".to_owned(),
            (0, 0, _) => {
                "No message is missing: the sequences have no gaps, and match the messages".to_owned()
            }
            (gaps, 0, _) => format!("{gaps} gaps in the sequences"),
            (gaps, unlike, _) => {
                format!("{gaps} gaps in the sequences, and {unlike} messages do not contain their sequence")
            }
        };
        self.console.line(&format!("{}: {verdict}", self.name));
        Ok(())
    }
}

/// The output format.
struct Form {
    time_unit: String,
    size_unit: Option<String>,
}

impl Form {
    /// Spring XD's four lines: messages of the interval and in total, then bytes.
    fn lines(&self, interval: (Counts, Duration), all: (Counts, Duration)) -> [String; 4] {
        let messages = |(counts, time): (Counts, Duration)| {
            let (time, unit) = (self.time(time), &self.time_unit);
            format!(
                "Messages: {:>10} in {time:>5.2}{unit} = {:>11.2}/{unit}",
                counts.messages,
                rate(counts.messages as f64, time)
            )
        };
        let bytes = |(counts, time): (Counts, Duration)| {
            let (time, unit) = (self.time(time), &self.time_unit);
            let (amount, size_unit) = match &self.size_unit {
                None => (format!("{:>12}", counts.bytes), "MB"),
                Some(size_unit) => (
                    format!("{:>12.2}{size_unit}", counts.bytes as f64 / size(size_unit)),
                    size_unit.as_str(),
                ),
            };
            let scale = if self.size_unit.is_none() { f64::from(1 << 20) } else { size(size_unit) };
            let per_time = rate(counts.bytes as f64 / scale, time);
            format!("Throughput: {amount} in {time:>5.2}{unit} = {per_time:>11.2}{size_unit}/{unit}")
        };
        [messages(interval), messages(all), bytes(interval), bytes(all)]
    }

    fn time(&self, time: Duration) -> f64 {
        let seconds = time.as_secs_f64();
        match self.time_unit.as_str() {
            "ms" => seconds * 1000.0,
            "m" => seconds / 60.0,
            "h" => seconds / 3600.0,
            "d" => seconds / 86_400.0,
            _ => seconds,
        }
    }
}

fn rate(amount: f64, time: f64) -> f64 {
    if time > 0.0 { amount / time } else { 0.0 }
}

fn size(unit: &str) -> f64 {
    match unit {
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_the_original() {
        let form = Form { time_unit: "s".to_owned(), size_unit: None };
        let interval = (Counts { messages: 5_126_920, bytes: 5_126_920_000 }, Duration::from_secs(1));
        let all = (Counts { messages: 500_000_000, bytes: 500_000_000_000 }, Duration::from_millis(97_525));
        assert_eq!(
            form.lines(interval, all),
            [
                "Messages:    5126920 in  1.00s =  5126920.00/s",
                "Messages:  500000000 in 97.53s =  5126890.54/s",
                "Throughput:   5126920000 in  1.00s =     4889.41MB/s",
                "Throughput: 500000000000 in 97.53s =     4889.38MB/s",
            ]
        );
    }

    #[test]
    fn units_can_be_chosen() {
        let form = Form { time_unit: "ms".to_owned(), size_unit: Some("KiB".to_owned()) };
        let counts = (Counts { messages: 10, bytes: 10_240 }, Duration::from_millis(5));
        let lines = form.lines(counts, counts);
        assert_eq!(lines[0], "Messages:         10 in  5.00ms =        2.00/ms");
        assert_eq!(lines[2], "Throughput:        10.00KiB in  5.00ms =        2.00KiB/ms");
    }
}
