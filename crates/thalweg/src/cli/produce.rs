//! `produce`: lines of standard input become records.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use thalweg_client::{Cluster, Delivery, Producer, ProducerConfig, ProducerRecord, Taken};
use thalweg_record::Header;
use tokio::time::Instant;

use super::connect::{Connect, TOPIC_WAIT, warn_about_rest};
use super::failure::Usage;

/// Send lines of standard input to a topic, a record for each line.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  echo hello | thalweg produce orders
  echo 'alice:10' | thalweg produce orders --key-separator :
  echo 'trace=1,source=cli|alice:10' |
      thalweg produce orders --headers-separator '|' --key-separator :
  thalweg produce orders --compression zstd --acks all < orders.jsonl")]
pub struct Produce {
    #[command(flatten)]
    connect: Connect,
    /// The topic.
    topic: String,
    /// Take what stands before this text in a line as the key.
    #[arg(long, short = 'K', value_name = "TEXT")]
    key_separator: Option<String>,
    /// Take what stands before this text in a line as headers: name=value, with commas between them.
    #[arg(long, value_name = "TEXT")]
    headers_separator: Option<String>,
    /// Add a header to every record; can be repeated.
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Send a key or value of just this text as null.
    #[arg(long, value_name = "TEXT")]
    null_marker: Option<String>,
    /// Send to this partition; otherwise the key decides, and without a key the producer.
    #[arg(long, short = 'p', value_name = "INDEX")]
    partition: Option<i32>,
    /// Who must have a record before it counts as sent: nobody, the leader, or all in-sync replicas [default: all].
    #[arg(long, value_name = "ACKS", value_parser = ["0", "1", "all"])]
    acks: Option<String>,
    /// Compress with none, gzip, snappy, lz4 or zstd [default: none].
    #[arg(long, short = 'z', value_name = "CODEC")]
    compression: Option<String>,
}

/// The parts of a line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    headers: Vec<(&'a str, &'a str)>,
    key: Option<&'a str>,
    value: Option<&'a str>,
}

impl Produce {
    /// Sends lines until there are no more.
    pub async fn run(&self) -> anyhow::Result<()> {
        let mut properties = self.connect.properties()?;
        for (key, value) in [("acks", &self.acks), ("compression.type", &self.compression)] {
            if let Some(value) = value {
                properties.set(key, value);
            }
        }
        let bootstrap = properties.take_bootstrap_servers()?;
        let config = ProducerConfig::take(&mut properties)?;
        warn_about_rest(&properties);
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        let report = move |delivery: &Delivery<'_>| {
            if let Err(error) = delivery.result {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
            }
        };
        let cluster = Cluster::connect(&bootstrap, &config.connection).await?;
        cluster.wait_for_topic(&self.topic, true, TOPIC_WAIT.min(config.max_block)).await?;
        let mut producer = Producer::new(cluster, config, report);
        self.send_lines(&mut producer).await?;
        producer.close().await;
        match failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    async fn send_lines(&self, producer: &mut Producer) -> anyhow::Result<()> {
        let fixed = self.headers.iter().map(|header| split_header(header)).collect::<Result<Vec<_>, _>>()?;
        let topic = producer.topic(&self.topic).await?;
        let prompt = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let mut lines = read_lines(prompt);
        while let Some(line) = lines.recv().await {
            let line = line?;
            let parts = self.split(&line)?;
            let all = fixed.iter().chain(&parts.headers);
            let headers: Vec<Header<'_>> =
                all.map(|(name, value)| Header::new(name, Some(value.as_bytes()))).collect();
            let record = ProducerRecord {
                topic,
                partition: self.partition,
                timestamp: now_ms(),
                key: parts.key.map(str::as_bytes),
                value: parts.value.map(str::as_bytes),
                headers: &headers,
                sent_at: Instant::now(),
                number: 0,
            };
            if producer.send(&record).await? == Taken::Began {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn split<'a>(&self, line: &'a str) -> Result<Parts<'a>, Usage> {
        let mut parts = Parts::default();
        let mut rest = line;
        if let Some(separator) = &self.headers_separator {
            let (headers, after) = cut(rest, separator, "headers", "--headers-separator")?;
            for header in headers.split(',').filter(|header| !header.is_empty()) {
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

    fn unless_null<'a>(&self, text: &'a str) -> Option<&'a str> {
        Some(text).filter(|text| self.null_marker.as_deref() != Some(*text))
    }
}

fn cut<'a>(line: &'a str, separator: &str, part: &str, option: &str) -> Result<(&'a str, &'a str), Usage> {
    line.split_once(separator).ok_or_else(|| {
        Usage(format!(
            "The line {line:?} has no {separator:?} behind {part}: {option} says that there is one"
        ))
    })
}

fn split_header(text: &str) -> Result<(&str, &str), Usage> {
    text.split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| Usage(format!("The header {text:?} is invalid: name=value would be right")))
}

/// Reads standard input on a thread of its own, a few lines ahead: a terminal must not stop the producer.
fn read_lines(prompt: bool) -> tokio::sync::mpsc::Receiver<std::io::Result<String>> {
    let (to, lines) = tokio::sync::mpsc::channel(1024);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            if prompt {
                let mut out = std::io::stdout();
                // A prompt that cannot be written is no reason to stop reading.
                let _ = write!(out, ">").and_then(|()| out.flush());
            }
            let mut line = String::new();
            let read = match input.read_line(&mut line) {
                Ok(0) => return,
                Ok(_) => Ok(line
                    .strip_suffix('\n')
                    .map_or(line.clone(), |line| line.trim_end_matches('\r').to_owned())),
                Err(error) => Err(error),
            };
            if to.blocking_send(read).is_err() {
                return;
            }
        }
    });
    lines
}

#[allow(clippy::disallowed_methods, reason = "a person's records have the time of the world")]
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
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
        assert_eq!(plain.split("a:b").expect("a line").value, Some("a:b"));
        let keyed = produce("t --key-separator : --null-marker NULL");
        let parts = keyed.split("k:v:w").expect("a line");
        assert_eq!((parts.key, parts.value), (Some("k"), Some("v:w")));
        let tombstone = keyed.split("k:NULL").expect("a line");
        assert_eq!((tombstone.key, tombstone.value), (Some("k"), None));
        let error = keyed.split("no key").expect_err("a refusal");
        assert!(error.to_string().contains("--key-separator"), "{error}");
        let full = produce("t --key-separator : --headers-separator |");
        let parts = full.split("a=1,b=|k:v").expect("a line");
        assert_eq!(parts.headers, [("a", "1"), ("b", "")]);
        assert_eq!((parts.key, parts.value), (Some("k"), Some("v")));
    }
}
