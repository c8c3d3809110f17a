//! `consume`: prints records as lines.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{
    Chunk, Cluster, Consumer, ConsumerConfig, ListedOffset, OffsetSpec, Polled, Refused, StartAt,
    TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset, Record};
use tokio::time::Instant;

use super::connect::{Connect, warn_about_rest};
use super::failure::Usage;

const POLL: Duration = Duration::from_millis(250);

/// Print the records of a topic, one per line.
///
/// By default, starts with the next new record and runs until Ctrl-C.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg consume orders --from-beginning --max-messages 10
  thalweg consume orders --group billing --print-key --print-offset
  thalweg consume orders --partition 0 --offset -5 --until-end
  thalweg consume orders --timestamp 2026-01-31T12:00:00Z --json")]
pub struct Consume {
    #[command(flatten)]
    connect: Connect,
    /// The topic.
    topic: String,
    /// Start with the first record. With --group, only if the group has no offset.
    #[arg(long, conflicts_with_all = ["offset", "timestamp"])]
    from_beginning: bool,
    /// Start at this offset: a number, a negative number counted from the end, "beginning" or "end".
    #[arg(long, short = 'o', value_name = "OFFSET", allow_negative_numbers = true, conflicts_with_all = ["timestamp", "group"])]
    offset: Option<String>,
    /// Start with the first record at or after this time: milliseconds since 1970, or for example
    /// 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "group")]
    timestamp: Option<String>,
    /// Only these partitions, separated by commas, for example 0,3.
    #[arg(long, short = 'p', value_name = "INDEX", value_delimiter = ',', conflicts_with = "group")]
    partition: Vec<i32>,
    /// Read as a member of this group, and commit offsets.
    #[arg(long, short = 'g', value_name = "ID")]
    group: Option<String>,
    /// Stop after this number of records.
    #[arg(long, short = 'n', value_name = "COUNT")]
    max_messages: Option<u64>,
    /// Stop at the current end of the topic.
    #[arg(long, short = 'e', conflicts_with = "group")]
    until_end: bool,
    /// Stop after this many milliseconds without a record.
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Print the key before the value.
    #[arg(long)]
    print_key: bool,
    /// Print the timestamp, as CreateTime:1234.
    #[arg(long)]
    print_timestamp: bool,
    /// Print the partition, as Partition:0.
    #[arg(long)]
    print_partition: bool,
    /// Print the offset, as Offset:17.
    #[arg(long)]
    print_offset: bool,
    /// Print the headers, as name:value,name:value.
    #[arg(long)]
    print_headers: bool,
    /// Do not print the value.
    #[arg(long)]
    no_value: bool,
    /// Separator between the parts of a record.
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    key_separator: String,
    /// Text for a null key or value.
    #[arg(long, value_name = "TEXT", default_value = "null")]
    null_literal: String,
    /// Hide records of aborted and open transactions.
    #[arg(long)]
    read_committed: bool,
    /// Print a JSON object for each record.
    #[arg(long)]
    json: bool,
}

/// The remaining records to read.
struct Rest {
    records: u64,
    /// End offsets by partition; `None` for no end.
    ends: Option<BTreeMap<TopicPartition, Offset>>,
}

impl Consume {
    /// Prints records until the end.
    pub async fn run(&self) -> anyhow::Result<()> {
        let mut consumer = self.consumer().await?;
        let mut rest = Rest { records: self.max_messages.unwrap_or(u64::MAX), ends: None };
        if self.group.is_some() {
            // A member would wait for ever for a topic whose name is mistaken.
            self.partitions(consumer.cluster()).await?;
            consumer.subscribe(vec![self.topic.clone()])?;
        } else {
            rest.ends = self.assign(&mut consumer).await?;
        }
        let printed = tokio::select! {
            printed = self.print_all(&mut consumer, &mut rest) => printed,
            signal = tokio::signal::ctrl_c() => signal.map_err(anyhow::Error::from),
        };
        // A group's other members should not wait for the session of this one to end.
        let closed = consumer.close().await;
        printed?;
        Ok(closed?)
    }

    async fn consumer(&self) -> anyhow::Result<Consumer> {
        let mut properties = self.connect.properties()?;
        if let Some(group) = &self.group {
            properties.set("group.id", group);
        }
        properties.set_default("auto.offset.reset", if self.from_beginning { "earliest" } else { "latest" });
        properties.set_default("allow.auto.create.topics", "false");
        if self.read_committed {
            properties.set("isolation.level", "read_committed");
        }
        let bootstrap = properties.take_bootstrap_servers()?;
        let mut config = ConsumerConfig::take(&mut properties)?;
        if self.group.is_none() {
            config.group = None;
        }
        warn_about_rest(&properties);
        Ok(Consumer::connect(&bootstrap, config).await?)
    }

    /// Seeks to the start position. Returns the end offsets, if it should stop there.
    async fn assign(
        &self,
        consumer: &mut Consumer,
    ) -> anyhow::Result<Option<BTreeMap<TopicPartition, Offset>>> {
        let cluster = consumer.cluster().clone();
        let partitions = self.partitions(&cluster).await?;
        let ends = match self.until_end || self.counts_from_end() {
            true => found(&cluster, &partitions, OffsetSpec::Latest, self.read_committed).await?,
            false => BTreeMap::new(),
        };
        let mut starts = Vec::new();
        for at in partitions {
            let start = self.start(ends.get(&at))?;
            starts.push((at, start));
        }
        consumer.assign(starts).await?;
        let ends = ends.into_iter().map(|(at, end)| (at, end.offset));
        Ok(self.until_end.then(|| ends.collect()))
    }

    async fn partitions(&self, cluster: &Cluster) -> anyhow::Result<Vec<TopicPartition>> {
        let metadata = cluster.refresh(std::slice::from_ref(&self.topic), false).await?;
        let topic = metadata.topics.get(&self.topic);
        let error = topic.and_then(|topic| topic.error);
        if let Some(error) = error {
            Refused::check(error.code(), None, || format!("Topic {}", self.topic))?;
        }
        let all = topic.into_iter().flat_map(|topic| &topic.partitions).map(|partition| partition.index);
        let all: Vec<i32> = all.collect();
        for index in &self.partition {
            if !all.contains(index) {
                let last = all.iter().max().copied().unwrap_or(0);
                anyhow::bail!("Topic {} has no partition {index}: expected 0 to {last}", self.topic);
            }
        }
        let chosen = if self.partition.is_empty() { &all } else { &self.partition };
        Ok(chosen.iter().map(|&index| TopicPartition::new(self.topic.as_str(), index)).collect())
    }

    fn counts_from_end(&self) -> bool {
        self.offset.as_deref().is_some_and(|offset| offset.starts_with('-'))
    }

    fn start(&self, end: Option<&ListedOffset>) -> anyhow::Result<StartAt> {
        if let Some(time) = &self.timestamp {
            return Ok(StartAt::Spec(OffsetSpec::At(parse_time(time)?)));
        }
        Ok(match self.offset.as_deref() {
            None if self.from_beginning => StartAt::Spec(OffsetSpec::Earliest),
            None | Some("end") => StartAt::Spec(OffsetSpec::Latest),
            Some("beginning") => StartAt::Spec(OffsetSpec::Earliest),
            Some(text) => {
                let offset: i64 = text.parse().map_err(|_| {
                    Usage(format!("--offset {text:?} is invalid: expected a number, beginning or end"))
                })?;
                match end {
                    Some(end) if offset < 0 => {
                        StartAt::Offset(Offset(end.offset.0.saturating_add(offset).max(0)))
                    }
                    _ => StartAt::Offset(Offset(offset)),
                }
            }
        })
    }

    async fn print_all(&self, consumer: &mut Consumer, rest: &mut Rest) -> anyhow::Result<()> {
        let mut out = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
        let mut buffer = DecompressBuffer::default();
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let mut last = Instant::now();
        while rest.records > 0 && !is_at_end(consumer, rest) {
            let wait = timeout.map_or(POLL, |timeout| timeout.min(POLL));
            match consumer.poll(wait).await? {
                Polled::Chunk(chunk) => {
                    let printed = self.print_chunk(&mut out, &chunk, rest, &mut buffer);
                    let printed = printed.and_then(|next| Ok(out.flush().map(|()| next)?));
                    // Returned records would be committed, but only printed ones count as read.
                    let next = printed.as_ref().map_or(Some(chunk.start), |next| *next);
                    if let Some(next) = next.filter(|_| self.group.is_some()) {
                        consumer.seek(&chunk.at, next);
                    }
                    printed?;
                    last = Instant::now();
                }
                Polled::Assigned(_) | Polled::Revoked(_) | Polled::Lost(_) => {}
                Polled::Nothing if timeout.is_some_and(|timeout| last.elapsed() >= timeout) => break,
                Polled::Nothing => {}
            }
        }
        Ok(())
    }

    /// Returns the first record that was not printed, if it must stop before it.
    fn print_chunk(
        &self,
        out: &mut impl Write,
        chunk: &Chunk,
        rest: &mut Rest,
        buffer: &mut DecompressBuffer,
    ) -> anyhow::Result<Option<Offset>> {
        let end = rest.ends.as_ref().and_then(|ends| ends.get(&chunk.at)).copied();
        let (mut written, mut unprinted) = (Ok(()), None);
        chunk.for_each(buffer, |record| {
            if rest.records == 0 || end.is_some_and(|end| record.offset >= end) {
                unprinted = Some(record.offset);
                return ControlFlow::Break(());
            }
            rest.records -= 1;
            written = self.print(out, &chunk.at, record);
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        written?;
        Ok(unprinted)
    }

    fn print(&self, out: &mut impl Write, at: &TopicPartition, record: &Record<'_>) -> std::io::Result<()> {
        if self.json {
            return writeln!(out, "{}", as_json(at, record));
        }
        let mut parts: Vec<Vec<u8>> = Vec::new();
        if self.print_timestamp {
            parts.push(format!("CreateTime:{}", record.timestamp).into_bytes());
        }
        if self.print_partition {
            parts.push(format!("Partition:{}", at.partition).into_bytes());
        }
        if self.print_offset {
            parts.push(format!("Offset:{}", record.offset).into_bytes());
        }
        let or_null = |bytes: Option<&[u8]>| bytes.unwrap_or(self.null_literal.as_bytes()).to_vec();
        if self.print_headers {
            let headers = record.headers.map(|header| [header.key, b":", &or_null(header.value)].concat());
            let headers: Vec<Vec<u8>> = headers.collect();
            parts.push(if headers.is_empty() { b"NO_HEADERS".to_vec() } else { headers.join(&b","[..]) });
        }
        if self.print_key {
            parts.push(or_null(record.key));
        }
        if !self.no_value {
            parts.push(or_null(record.value));
        }
        out.write_all(&parts.join(self.key_separator.as_bytes()))?;
        out.write_all(b"\n")
    }
}

/// Whether every partition was read up to its end at the start.
fn is_at_end(consumer: &Consumer, rest: &Rest) -> bool {
    let Some(ends) = &rest.ends else { return false };
    ends.iter().all(|(at, end)| consumer.position(at).is_some_and(|position| position >= *end))
}

async fn found(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
    read_committed: bool,
) -> anyhow::Result<BTreeMap<TopicPartition, ListedOffset>> {
    let wanted: Vec<_> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    let found = cluster.list_offsets(&wanted, read_committed).await;
    Ok(found.into_iter().map(|(at, offset)| offset.map(|offset| (at, offset))).collect::<Result<_, _>>()?)
}

fn parse_time(text: &str) -> Result<i64, Usage> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    chrono::DateTime::parse_from_rfc3339(text).map(|time| time.timestamp_millis()).map_err(|_| {
        Usage(format!(
            "--timestamp {text:?} is invalid: expected milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z"
        ))
    })
}

/// Invalid UTF-8 is replaced; print raw values to keep all bytes.
fn as_json(at: &TopicPartition, record: &Record<'_>) -> serde_json::Value {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let headers: Vec<serde_json::Value> = record
        .headers
        .map(|header| json!({ "key": text(Some(header.key)), "value": text(header.value) }))
        .collect();
    json!({
        "topic": &*at.topic,
        "partition": at.partition,
        "offset": record.offset.0,
        "timestamp": record.timestamp,
        "headers": headers,
        "key": text(record.key),
        "value": text(record.value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_or_rfc_3339() {
        assert_eq!(parse_time("1700000000000").expect("a time"), 1_700_000_000_000);
        assert_eq!(parse_time("1970-01-01T00:00:01.5Z").expect("a time"), 1500);
        assert!(parse_time("yesterday").is_err());
    }
}
