//! `consume`: prints records as lines.

mod assignment;
mod decoding;
mod record_format;
mod share;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use thalweg_browse::{Candidate, Filter, Outcome, Registry, Scratch, TextTest};
use thalweg_client::{Chunk, Consumer, ConsumerConfig, PollEvent, TopicPartition};
use thalweg_record::{BatchHeader, DecompressBuffer, Offset, Record};
use tokio::time::Instant;

use super::CommandFuture;
use super::connect::{Connect, WAITS, warn_about_rest};
use super::failure::Usage;
use super::schema_registry::SchemaRegistry;
use super::signals;
use decoding::RecordDecoder;
use record_format::RecordFormat;
use template::Template;

const POLL: Duration = Duration::from_millis(250);
/// Interval of commits if the consumer does not commit automatically.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for a broker to assign partitions that other members revoke, or that a regular expression
/// matches: more than two heartbeat intervals.
const ASSIGNMENT_MAX: Duration = Duration::from_secs(12);
/// Time limit to commit and to leave the group at the end.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Time limit for the end after a signal, if the output is blocked.
const END_MAX: Duration = Duration::from_secs(10);

/// Print the records of topics, one per line.
///
/// By default, starts with the next new record and runs until Ctrl-C or SIGTERM. A topic that begins with ^
/// is a regular expression, of names from their beginning.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg consume orders --from-beginning --max-messages 10
  thalweg consume orders --group billing --print-key --print-offset
  thalweg consume orders --partition 0 --offset -5 --until-end
  thalweg consume orders --from-time 2026-01-31T12:00:00Z --json
  thalweg consume '^orders-.*' --from-beginning --until-end --filter 'payload.amount > 1000'
  thalweg consume orders --from-beginning --schema-registry http://localhost:8081
  thalweg consume jobs --share --group workers --max-messages 1
  thalweg consume orders -f '%T %t-%p@%o %k: %s %h\\n'

If a partition cannot be read, --until-end and --timeout-ms print the records of the others and end with exit code 1;
with --json, the last lines then name such partitions, with topic, partition and error.

Expressions of --filter are those of streams (docs/streams.md): payload, text, raw, key, headers, time, time_ms; sequence is
the offset. A record for which the expression has no value does not match.

Format strings (-f): %t topic, %p partition, %o offset, %k key, %s value, %h headers as name=value,..., %T timestamp,
%K, %S, %H length of key, value and headers, %R length of the value as 4 bytes, %% a percent sign; \\n \\r \\t \\\\ \\xHH.")]
pub struct Consume {
    #[command(flatten)]
    connect: Connect,
    /// The topics: names, or regular expressions that begin with ^.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Start with the first record. With --group, only if the group has no offset.
    #[arg(long, conflicts_with_all = ["offset", "from_time"])]
    from_beginning: bool,
    /// Start at this offset: a number, a negative number counted from the end, "beginning" or "end". With
    /// --group, even if the group has an offset.
    #[arg(
        long,
        short = 'o',
        value_name = "OFFSET",
        allow_negative_numbers = true,
        conflicts_with = "from_time"
    )]
    offset: Option<String>,
    /// Start with the first record at or after this time: milliseconds since 1970, or for example
    /// 2026-01-31T12:00:00Z; without a zone it is UTC. With --group, even if the group has an offset.
    #[arg(long, visible_alias = "timestamp", value_name = "TIME")]
    from_time: Option<String>,
    /// Read only these partitions, separated by commas, for example 0,3. With --group, the group's offsets
    /// are used, but other members are not considered.
    #[arg(long, short = 'p', value_name = "INDEX", value_delimiter = ',')]
    partition: Vec<i32>,
    /// Read as a member of this group, and commit offsets.
    #[arg(long, short = 'g', value_name = "ID")]
    group: Option<String>,
    /// Assignment of partitions: by a member of the group (classic), or by the broker (consumer, since Kafka
    /// 4.0) [default: group.protocol of the settings, or classic].
    #[arg(long, value_name = "PROTOCOL", requires = "group", value_parser = ["classic", "consumer"])]
    group_protocol: Option<String>,
    /// Read as a member of the share group that --group names: each record goes to one member at a time,
    /// which acknowledges it.
    #[arg(
        long,
        requires = "group",
        conflicts_with_all = [
            "from_beginning", "offset", "from_time", "partition", "group_protocol", "until_end", "read_committed", "filter",
            "grep", "key", "control_records"
        ]
    )]
    share: bool,
    /// With --share: accept printed records, release them to be delivered again, or reject them for good
    /// [default: accept].
    #[arg(long, value_name = "ACK", requires = "share", value_parser = ["accept", "release", "reject"])]
    ack: Option<String>,
    /// Print only records for which this expression is true.
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Print only records whose value contains this text.
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Print only records with this key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Stop after this number of printed records.
    #[arg(long, short = 'n', value_name = "COUNT")]
    max_messages: Option<u64>,
    /// Stop at the current end of the topics. With --group, at the end of the partitions that the group gives
    /// to this member.
    #[arg(long, short = 'e')]
    until_end: bool,
    /// Stop after this many milliseconds without a record.
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    #[command(flatten)]
    registry: SchemaRegistry,
    #[command(flatten)]
    record_format: RecordFormat,
    /// Hide records of aborted and open transactions.
    #[arg(long)]
    read_committed: bool,
}

/// The progress of reading, and its end.
#[derive(Default)]
struct ReadProgress {
    /// Number of records that may still be printed.
    records: u64,
    /// End offsets by partition, once known.
    ends: Option<BTreeMap<TopicPartition, Offset>>,
    /// With `--until-end`, the time since which the member has no partition.
    idle_since: Option<Instant>,
    /// Partitions that have been read from the start by the options. One that another member had meanwhile
    /// continues at the group's offset.
    started: BTreeSet<TopicPartition>,
    /// Partitions that cannot be read, with the reason.
    unreadable: BTreeMap<TopicPartition, String>,
    /// The partition and start of a chunk whose records are not printed yet.
    unprinted: Option<(TopicPartition, Offset)>,
}

/// Records that the filter could not test.
#[derive(Default)]
struct UntestedRecords {
    without_value: u64,
    /// The reason for the first of these records.
    reason: Option<String>,
}

/// Decompression and printing of fetched records.
struct ChunkPrinter<'a> {
    buffer: DecompressBuffer,
    printer: Printer<'a>,
}

struct Printer<'a> {
    template: Option<Template>,
    filter: Filter,
    decoding: Option<RecordDecoder>,
    scratch: Scratch,
    untested: UntestedRecords,
    out: BufWriter<std::io::StdoutLock<'a>>,
}

impl Consume {
    /// Prints records until the end.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(self.print_records())
    }

    async fn print_records(&self) -> anyhow::Result<()> {
        let printer = Printer {
            template: self.record_format.template()?,
            filter: self.filter()?,
            decoding: None,
            scratch: Scratch::default(),
            untested: UntestedRecords::default(),
            out: BufWriter::with_capacity(64 << 10, std::io::stdout().lock()),
        };
        let mut printing = ChunkPrinter { buffer: DecompressBuffer::default(), printer };
        if self.share {
            return self.run_share(printing).await;
        }
        let start = self.start()?;
        let (mut consumer, registry) = self.consumer().await?;
        printing.printer.decoding = registry.map(RecordDecoder::new);
        let mut progress = ReadProgress {
            records: self.max_messages.unwrap_or(u64::MAX),
            ends: None,
            idle_since: None,
            started: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            unprinted: None,
        };
        signals::exit_when_blocked(END_MAX)?;
        let read = async {
            if self.is_member() {
                self.subscribe(&mut consumer).await?;
            } else {
                self.assign(&mut consumer, start, &mut progress).await?;
            }
            self.print_all(&mut consumer, &mut progress, &mut printing).await
        };
        let printed = tokio::select! {
            printed = read => printed,
            signal = signals::end() => signal.map_err(anyhow::Error::from),
        };
        // The consumer would commit all returned records. Seek, so that only printed records are committed.
        if let Some((at, start)) = progress.unprinted.take() {
            consumer.seek(&at, start);
        }
        printing.printer.report();
        let is_wanted = progress.records > 0;
        let whole =
            self.record_format.print_unreadable(&mut printing.printer.out, &progress.unreadable, is_wanted);
        // Leave the group, so that its other members need not wait for this member's session to end.
        let closed = tokio::time::timeout(CLOSE_MAX, self.close(consumer)).await;
        printed?;
        closed.unwrap_or_else(|_| {
            anyhow::bail!(
                "Offsets may not be committed: the group did not answer within {} s",
                CLOSE_MAX.as_secs()
            )
        })?;
        whole
    }

    /// True if the group assigns the partitions.
    fn is_member(&self) -> bool {
        self.group.is_some() && self.partition.is_empty()
    }

    async fn close(&self, mut consumer: Consumer) -> anyhow::Result<()> {
        if self.group.is_some() && !self.is_member() {
            consumer.commit().await?;
        }
        Ok(consumer.close().await?)
    }

    fn filter(&self) -> anyhow::Result<Filter> {
        let mut filter = match &self.filter {
            Some(text) => Filter::expression(text).map_err(|error| {
                let place = error.at.map(|at| format!(", at byte {at}")).unwrap_or_default();
                Usage(format!("--filter {text:?} is invalid{place}: {error}"))
            })?,
            None => Filter::default(),
        };
        filter.value = self.grep.as_deref().map(TextTest::contains);
        filter.key = self.key.as_deref().map(TextTest::equals);
        Ok(filter)
    }

    async fn consumer(&self) -> anyhow::Result<(Consumer, Option<Arc<Registry>>)> {
        let mut properties = self.connect.properties()?;
        if let Some(group) = &self.group {
            properties.set("group.id", group);
        }
        if let Some(protocol) = &self.group_protocol {
            properties.set("group.protocol", protocol);
        }
        properties.set_default("auto.offset.reset", if self.from_beginning { "earliest" } else { "latest" });
        properties.set_default("allow.auto.create.topics", "false");
        if self.read_committed {
            properties.set("isolation.level", "read_committed");
        }
        let bootstrap = properties.take_bootstrap_servers()?;
        let mut config = ConsumerConfig::take(&mut properties)?;
        config.connection.waits = Some(WAITS.clone());
        if self.group.is_none() {
            config.group = None;
        }
        let registry = self.registry.take(&mut properties)?;
        warn_about_rest(&properties);
        Ok((Consumer::connect(&bootstrap, config).await?, registry))
    }

    async fn print_all(
        &self,
        consumer: &mut Consumer,
        progress: &mut ReadProgress,
        printing: &mut ChunkPrinter<'_>,
    ) -> anyhow::Result<()> {
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let mut last = Instant::now();
        let mut commit_at = Instant::now() + COMMIT_INTERVAL;
        while progress.records > 0 && !is_at_end(consumer, progress) {
            let wait = timeout.map_or(POLL, |timeout| timeout.min(POLL));
            match consumer.poll(wait).await? {
                PollEvent::Chunk(chunk) => {
                    progress.unprinted = Some((chunk.at.clone(), chunk.start));
                    if let Some(decoding) = &printing.printer.decoding {
                        let buffer = &mut printing.buffer;
                        let walk = |visit: &mut dyn FnMut(&Record<'_>)| {
                            chunk.for_each(buffer, |record| {
                                visit(record);
                                ControlFlow::Continue(())
                            })
                        };
                        decoding.prepare(walk).await?;
                    }
                    let next = self.print_chunk(&chunk, progress, printing)?;
                    printing.printer.out.flush()?;
                    progress.unprinted = None;
                    if let Some(next) = next.filter(|_| self.group.is_some()) {
                        consumer.seek(&chunk.at, next);
                    }
                    last = Instant::now();
                }
                PollEvent::Assigned(partitions) => self.assigned(consumer, partitions, progress).await?,
                PollEvent::Revoked(partitions) | PollEvent::Lost(partitions) => {
                    progress.unreadable.retain(|at, _| !partitions.contains(at));
                    if let Some(ends) = &mut progress.ends {
                        ends.retain(|at, _| !partitions.contains(at));
                    }
                }
                PollEvent::Nothing if timeout.is_some_and(|timeout| last.elapsed() >= timeout) => {
                    let cluster = consumer.cluster();
                    let unavailable = consumer.unavailable().into_iter();
                    progress.unreadable.extend(unavailable.map(|at| {
                        let reason = assignment::why_unavailable(cluster, &at);
                        (at, reason)
                    }));
                    break;
                }
                PollEvent::Nothing => {}
            }
            if self.group.is_some() && !self.is_member() && commit_at <= Instant::now() {
                commit_at = Instant::now() + COMMIT_INTERVAL;
                consumer.commit().await?;
            }
        }
        Ok(())
    }

    /// Prints the records of a chunk. Returns the offset of the first unread record, if a limit is reached.
    fn print_chunk(
        &self,
        chunk: &Chunk,
        progress: &mut ReadProgress,
        printing: &mut ChunkPrinter<'_>,
    ) -> anyhow::Result<Option<Offset>> {
        let end = progress.ends.as_ref().and_then(|ends| ends.get(&chunk.at)).copied();
        let (mut written, mut unprinted) = (Ok(()), None);
        let ChunkPrinter { buffer, printer } = printing;
        chunk.walk(buffer, self.record_format.control_records(), |header, record| {
            if progress.records == 0 || end.is_some_and(|end| record.offset >= end) {
                unprinted = Some(record.offset);
                return ControlFlow::Break(());
            }
            written = printer.print(&self.record_format, &chunk.at, (header, record), None).map(|printed| {
                progress.records -= u64::from(printed);
            });
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        written?;
        Ok(unprinted)
    }
}

impl Printer<'_> {
    /// Prints a record, unless the filter hides it; true if printed.
    fn print(
        &mut self,
        format: &RecordFormat,
        at: &TopicPartition,
        (header, record): (&BatchHeader, &Record<'_>),
        delivery_count: Option<i16>,
    ) -> std::io::Result<bool> {
        let is_control = header.attributes.is_control();
        let Printer { template, filter, decoding, scratch, untested, out } = self;
        let decoded = match decoding {
            Some(decoding) if !is_control => Some(decoding.decode(record)),
            _ => None,
        };
        let record = decoded.as_ref().unwrap_or(record);
        if !is_control && !filter.is_empty() {
            let candidate = Candidate::of(record);
            match filter.test(&candidate, scratch) {
                Outcome::Match => {}
                Outcome::NoMatch => return Ok(false),
                Outcome::NoValue => {
                    untested.without_value += 1;
                    if untested.reason.is_none() {
                        untested.reason = filter.reason(&candidate, scratch);
                    }
                    return Ok(false);
                }
            }
        }
        format.print(out, template.as_ref(), at, header, record, delivery_count)?;
        Ok(true)
    }

    /// Reports records that could not be decoded or tested.
    fn report(&self) {
        if let Some(decoding) = &self.decoding {
            decoding.report();
        }
        let UntestedRecords { without_value: count, reason: Some(reason) } = &self.untested else { return };
        // Standard error may be closed.
        let _ = writeln!(
            std::io::stderr(),
            "thalweg: {count} records did not match because --filter has no value for them: {reason}"
        );
    }
}

/// True if every partition was read to the end offset of the start.
fn is_at_end(consumer: &Consumer, progress: &ReadProgress) -> bool {
    let Some(ends) = &progress.ends else {
        return progress.idle_since.is_some_and(|since| since.elapsed() >= ASSIGNMENT_MAX);
    };
    ends.iter().all(|(at, end)| consumer.position(at).is_some_and(|position| position >= *end))
}
