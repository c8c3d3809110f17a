//! `produce`: sends lines of standard input as records.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use thalweg_client::{
    AppendOutcome, Cluster, Delivery, DeliveryError, Producer, ProducerConfig, ProducerRecord, TopicRef,
};
use thalweg_record::{Header, Offset};
use thalweg_wire::ErrorCode;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::CommandFuture;
use super::connect::{Connect, TOPIC_WAIT, WAITS, warn_about_rest};
use super::failure::Usage;
use super::moment::now_ms;
use super::signals;

/// Number of lines read ahead.
const LINES_AHEAD: usize = 64;

/// Send the lines of standard input to a topic, one record per line.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  echo hello | thalweg produce orders
  echo 'alice:10' | thalweg produce orders --key-separator :
  echo 'trace=1,source=cli|alice:10' |
      thalweg produce orders --headers-separator '|' --key-separator :
  thalweg produce orders --compression zstd --acks all < orders.jsonl
  echo hello | thalweg produce orders --print-offsets")]
pub struct Produce {
    #[command(flatten)]
    connect: Connect,
    /// The topic to write to.
    topic: String,
    /// Use the part of a line before this text as the key.
    #[arg(long, short = 'K', value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    key_separator: Option<String>,
    /// Use the part of a line before this text as headers: name=value, separated by commas.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    headers_separator: Option<String>,
    /// Add a header to every record; can be repeated.
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Send a key or value that equals this text as null.
    #[arg(long, value_name = "TEXT")]
    null_marker: Option<String>,
    /// Send to this partition; otherwise the key decides, and without a key the producer.
    #[arg(long, short = 'p', value_name = "INDEX")]
    partition: Option<i32>,
    /// Required acknowledgements: 0 (none), 1 (leader), all (in-sync replicas) [default: all].
    #[arg(long, value_name = "ACKS", value_parser = ["0", "1", "all"])]
    acks: Option<String>,
    /// Compress with none, gzip, snappy, lz4 or zstd [default: none].
    #[arg(long, short = 'z', value_name = "CODEC")]
    compression: Option<String>,
    /// Print line number, partition and offset of each stored record, separated by tabs. The offset is -1
    /// with --acks 0.
    #[arg(long)]
    print_offsets: bool,
}

/// The parts of a line. The bytes of a part are sent unchanged, and need not be text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    headers: Vec<(&'a [u8], &'a [u8])>,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

/// The first failed delivery, reported at once: a person at a terminal would continue typing.
#[derive(Default)]
struct Failure {
    error: Mutex<Option<DeliveryError>>,
    notify: Notify,
}

impl Failure {
    fn report(&self, delivery: &Delivery<'_>, prints: bool) {
        match delivery.result {
            // The output may be closed, but the records are stored anyway.
            Ok(first) if prints => drop(print_offsets(delivery, first)),
            Ok(_) => {}
            Err(error) => {
                self.error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert_with(|| error.clone());
                self.notify.notify_one();
            }
        }
    }

    fn take(&self) -> Option<DeliveryError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Produce {
    /// Sends lines until the end of the input, or until Ctrl-C.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(self.produce_lines())
    }

    async fn produce_lines(&self) -> anyhow::Result<()> {
        let mut properties = self.connect.properties()?;
        for (key, value) in [("acks", &self.acks), ("compression.type", &self.compression)] {
            if let Some(value) = value {
                properties.set(key, value);
            }
        }
        let bootstrap = properties.take_bootstrap_servers()?;
        let mut config = ProducerConfig::take(&mut properties)?;
        config.connection.waits = Some(WAITS.clone());
        warn_about_rest(&properties);
        let line_bytes_max = config.request_bytes_max;
        let failure = Arc::new(Failure::default());
        let (failed, prints) = (Arc::clone(&failure), self.print_offsets);
        let cluster = Cluster::connect(&bootstrap, &config.connection).await?;
        let found = cluster.wait_for_topic(&self.topic, true, TOPIC_WAIT.min(config.max_block)).await;
        found.map_err(|error| self.with_right(error.error_code(), error.into()))?;
        let mut producer =
            Producer::new(cluster, config, move |delivery: &Delivery<'_>| failed.report(delivery, prints));
        let ended = Notify::new();
        let sent = tokio::select! {
            sent = self.send_lines(&mut producer, line_bytes_max, &ended) => sent,
            signal = end_twice(&ended) => {
                signal?;
                return Err(interrupted());
            }
            () = failure.notify.notified() => Ok(()),
        };
        // Send all lines read before a faulty line or a signal.
        tokio::select! {
            () = producer.close() => {}
            // The first signal ended the input; a second one gives up.
            signal = signals::end() => {
                signal?;
                return Err(interrupted());
            }
        }
        match failure.take() {
            Some(error) => Err(self.with_right(error.error_code(), error.into())),
            None => sent,
        }
    }

    /// Names the missing right if an ACL refuses the records. CLUSTER_AUTHORIZATION_FAILED comes from the
    /// request for a producer id, which needs WRITE on any topic.
    fn with_right(&self, code: Option<ErrorCode>, error: anyhow::Error) -> anyhow::Error {
        match code {
            Some(ErrorCode::TopicAuthorizationFailed | ErrorCode::ClusterAuthorizationFailed) => error
                .context(format!(
                    "Writing to topic {0} needs the right WRITE on it, as by `thalweg security acl add USER --topic {0} --allow write`",
                    self.topic
                )),
            _ => error,
        }
    }

    async fn send_lines(
        &self,
        producer: &mut Producer,
        line_bytes_max: usize,
        ended: &Notify,
    ) -> anyhow::Result<()> {
        let fixed = self.headers.iter().map(|header| split_header(header.as_bytes()));
        let fixed = fixed.collect::<Result<Vec<_>, _>>()?;
        let topic = producer.topic(&self.topic).await?;
        let prompt = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let mut lines = read_lines(prompt, line_bytes_max);
        let mut number = 0u64;
        while let Some(line) = next_line(&mut lines, ended).await {
            number += 1;
            let taken = self.send_line(producer, topic, &fixed, &line?, number).await;
            if taken.with_context(|| format!("Line {number}"))? == AppendOutcome::Filled {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn send_line(
        &self,
        producer: &mut Producer,
        topic: TopicRef,
        fixed: &[(&[u8], &[u8])],
        line: &[u8],
        number: u64,
    ) -> anyhow::Result<AppendOutcome> {
        let parts = self.split(line)?;
        let all = fixed.iter().chain(&parts.headers);
        let headers: Vec<Header<'_>> = all.map(|&(key, value)| Header { key, value: Some(value) }).collect();
        let record = ProducerRecord {
            topic,
            partition: self.partition,
            timestamp: now_ms(),
            key: parts.key,
            value: parts.value,
            headers: &headers,
            sent_at: Instant::now(),
            number,
        };
        Ok(producer.send(&record).await?)
    }

    fn split<'a>(&self, line: &'a [u8]) -> Result<Parts<'a>, Usage> {
        let mut parts = Parts::default();
        let mut rest = line;
        if let Some(separator) = &self.headers_separator {
            let (headers, after) = cut(rest, separator, "headers", "--headers-separator")?;
            for header in headers.split(|&byte| byte == b',').filter(|header| !header.is_empty()) {
                parts.headers.push(split_header(header)?);
            }
            rest = after;
        }
        if let Some(separator) = &self.key_separator {
            let (key, after) = cut(rest, separator, "a key", "--key-separator")?;
            parts.key = self.unless_null(key);
            rest = after;
        }
        parts.value = self.unless_null(rest);
        Ok(parts)
    }

    fn unless_null<'a>(&self, part: &'a [u8]) -> Option<&'a [u8]> {
        let marker = self.null_marker.as_ref().map(String::as_bytes);
        Some(part).filter(|&part| marker != Some(part))
    }
}

/// A line per record of a stored batch.
fn print_offsets(delivery: &Delivery<'_>, first: Offset) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let numbers = delivery.sent.iter().flat_map(|run| (run.number..).take(run.records as usize));
    for (place, number) in (0..).zip(numbers) {
        let offset = if first == Offset::NONE { -1 } else { first.0 + place };
        writeln!(out, "{number}\t{}\t{offset}", delivery.partition)?;
    }
    out.flush()
}

fn cut<'a>(line: &'a [u8], separator: &str, part: &str, option: &str) -> Result<(&'a [u8], &'a [u8]), Usage> {
    split_once(line, separator.as_bytes()).ok_or_else(|| {
        Usage(format!("{:?} has no {separator:?} after {part}, which {option} requires", shown(line)))
    })
}

fn split_header(header: &[u8]) -> Result<(&[u8], &[u8]), Usage> {
    split_once(header, b"=")
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| Usage(format!("the header {:?} is invalid: expected name=value", shown(header))))
}

/// The parts before and after the first `separator`, which is not empty.
fn split_once<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

/// The beginning of a line, for an error message.
fn shown(line: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]);
    if line.len() > SHOWN_MAX { format!("{text}...") } else { text.into_owned() }
}

/// The next line. Once the input has ended by a signal, only the lines read before are left.
async fn next_line<T>(lines: &mut mpsc::Receiver<T>, ended: &Notify) -> Option<T> {
    tokio::select! {
        biased;
        () = ended.notified() => lines.close(),
        line = lines.recv() => return line,
    }
    lines.recv().await
}

/// Ends the input at the first signal, and returns at the second one.
async fn end_twice(ended: &Notify) -> anyhow::Result<()> {
    signals::end().await?;
    ended.notify_one();
    Ok(signals::end().await?)
}

fn interrupted() -> anyhow::Error {
    anyhow::anyhow!("interrupted: the last records may not be stored")
}

/// A line is longer than the limit of a record.
#[derive(Debug, thiserror::Error)]
#[error("Line {number} is longer than max.request.size={limit_bytes} bytes")]
struct LineTooLong {
    number: u64,
    limit_bytes: usize,
}

/// Reads standard input on its own thread, a few lines ahead: a terminal must not block the producer.
fn read_lines(prompt: bool, line_bytes_max: usize) -> mpsc::Receiver<anyhow::Result<Vec<u8>>> {
    let (to, lines) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        for number in 1.. {
            if prompt {
                let mut out = std::io::stdout();
                // Reading goes on even if the prompt cannot be written.
                let _ = write!(out, ">").and_then(|()| out.flush());
            }
            let mut is_last = false;
            let read = match read_line(&mut input, line_bytes_max) {
                Ok(None) => {
                    if prompt {
                        // The next output on the terminal starts on a new line.
                        let _ = writeln!(std::io::stdout());
                    }
                    return;
                }
                Ok(Some(line)) if line.bytes.len() > line_bytes_max => {
                    Err(LineTooLong { number, limit_bytes: line_bytes_max }.into())
                }
                Ok(Some(line)) => {
                    is_last = !line.is_ended;
                    Ok(line.bytes)
                }
                Err(error) => Err(anyhow::Error::from(error).context("Standard input cannot be read")),
            };
            is_last |= read.is_err();
            if to.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
struct InputLine {
    /// The line without its end, LF or CR LF.
    bytes: Vec<u8>,
    /// True if the line has a line end. A line without an end is the last, and a terminal must not be read
    /// again.
    is_ended: bool,
}

/// The next line; `None` at the end of the input. A line above the limit is returned truncated, but still
/// above the limit.
fn read_line(input: &mut impl BufRead, bytes_max: usize) -> std::io::Result<Option<InputLine>> {
    let mut bytes = Vec::new();
    // The limit excludes the line end of at most two bytes.
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(2);
    if Read::by_ref(input).take(limit).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let is_ended = bytes.pop_if(|byte| *byte == b'\n').is_some();
    if is_ended {
        bytes.pop_if(|byte| *byte == b'\r');
    }
    Ok(Some(InputLine { bytes, is_ended }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        produce: Produce,
    }

    fn produce(options: &str) -> Produce {
        Line::parse_from(std::iter::once("produce").chain(options.split_whitespace())).produce
    }

    #[test]
    fn a_line_is_cut_into_headers_key_and_value() {
        let plain = produce("t");
        assert_eq!(plain.split(b"a:b").expect("a line").value, Some(&b"a:b"[..]));
        let keyed = produce("t --key-separator : --null-marker NULL");
        let parts = keyed.split(b"k\xff:v:w").expect("a line");
        assert_eq!((parts.key, parts.value), (Some(&b"k\xff"[..]), Some(&b"v:w"[..])));
        let tombstone = keyed.split(b"k:NULL").expect("a line");
        assert_eq!((tombstone.key, tombstone.value), (Some(&b"k"[..]), None));
        let error = keyed.split(b"no key").expect_err("a refusal");
        assert!(error.to_string().contains("--key-separator"), "{error}");
        let full = produce("t --key-separator :: --headers-separator |");
        let parts = full.split(b"a=1,b=|k:::v").expect("a line");
        assert_eq!(parts.headers, [(&b"a"[..], &b"1"[..]), (b"b", b"")]);
        assert_eq!((parts.key, parts.value), (Some(&b"k"[..]), Some(&b":v"[..])));
        assert!(Line::try_parse_from(["produce", "t", "--key-separator", ""]).is_err());
    }

    #[tokio::test]
    async fn lines_read_before_a_signal_are_sent() {
        let (to, mut lines) = mpsc::channel(3);
        let ended = Notify::new();
        for line in 1..=3 {
            to.send(line).await.expect("there is room");
        }
        assert_eq!(next_line(&mut lines, &ended).await, Some(1));
        ended.notify_one();
        assert_eq!(next_line(&mut lines, &ended).await, Some(2));
        to.send(4).await.expect_err("the input has ended");
        assert_eq!(next_line(&mut lines, &ended).await, Some(3));
        assert_eq!(next_line(&mut lines, &ended).await, None);
    }

    #[test]
    fn a_line_ends_with_lf_or_cr_lf_and_is_not_read_for_ever() {
        let mut input = &b"unix\ndos\r\n\n\r\r\n\xff\xfe\nlast\r"[..];
        let read = |input: &mut &[u8], bytes_max| read_line(input, bytes_max).expect("it is memory");
        let lines: Vec<InputLine> = std::iter::from_fn(|| read(&mut input, 100)).collect();
        let (last, ended) = lines.split_last().expect("lines");
        assert!(ended.iter().all(|line| line.is_ended) && !last.is_ended);
        let bytes: Vec<&[u8]> = lines.iter().map(|line| &line.bytes[..]).collect();
        assert_eq!(bytes, [&b"unix"[..], b"dos", b"", b"\r", b"\xff\xfe", b"last\r"]);
        let long = |mut input: &[u8]| read(&mut input, 4).expect("a line").bytes;
        assert_eq!(long(b"four\r\n"), b"four");
        assert!(long(b"fives\n").len() > 4);
        assert!(long(b"endless endless endless").len() > 4);
    }
}
