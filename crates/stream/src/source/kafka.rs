//! `kafka`: reads topics. A task fetches records and passes batches on. The offset of a message is committed
//! only when the sink has acknowledged that message and all earlier ones.
//!
//! A commit covers the partitions that this member owns at that time; the new owners of lost partitions read
//! uncommitted records again. So each record is delivered at least once. In a stream that runs exactly once
//! or has durable state, the source commits nothing: transactions include its offsets ([`Source::progress`]).
//! They have the position, as those of Kafka Streams: markers of transactions and aborted records are behind
//! it.

mod membership;
mod partitions;
mod reader;
mod runs;
mod skipped;
mod tracking;

use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{Consumer, ConsumerError};
use thalweg_wire::ErrorCode;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::declaration::{
    Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::guarantee::Guarantee;
use crate::kafka::{self, BOOTSTRAP, PROPERTIES};
use crate::message::Batch;
use crate::stage::{FillResult, GroupOffsets, Progress, Source, StageError, Turn, Wait};
use crate::topics::{self, StartPosition};
use membership::{CommitVerdict, Membership};
use partitions::ReadSettings;
use reader::{Command, PendingCommit, PolledBatch, Reader};
use runs::Runs;
use skipped::SharedSkippedRecords;
use tracking::Tracking;

/// Maximum number of batches queued for the stream.
const WAITING_MAX: usize = 8;
/// Maximum number of queued commands. The stream awaits each, so there are few.
const COMMANDS_MAX: usize = 1;
/// The maximum heartbeat interval.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// `fetch.max.wait.ms`: the fetch interval of an idle source. New records end the wait.
const FETCH_WAIT_MS: &str = "5000";
/// `fetch.max.bytes`: a source with a slow sink holds up to three responses per broker.
const FETCH_BYTES_MAX: &str = "16777216";
/// Required consumer settings for offsets in transactions: an eager assignor, so that all partitions are
/// assigned and revoked together, and committed records only.
const TRANSACTED: [(&str, &str); 3] = [
    ("isolation.level", "read_committed"),
    ("partition.assignment.strategy", "range,roundrobin"),
    ("group.protocol", "classic"),
];

pub const MODULE: Module = Module {
    name: "kafka",
    summary: "reads topics",
    about: "With `--group` the stream joins a consumer group: it shares the partitions with other members and resumes from the \
            committed offsets. Offsets are committed when every sink has acknowledged the messages, including sinks behind \
            `topic:` but not taps, so each message is delivered at least once. `--guarantee=at-most-once` commits before any \
            stage sees the messages, `--guarantee=exactly-once` in one transaction with the sink's output. Before a rebalance \
            takes partitions away, their messages in flight are delivered and committed. Without `--group`, the source reads \
            all partitions, or `--partitions`, from `--from` on and commits nothing. Messages have the keys, timestamps and headers \
            of their records. A record with a null value (a tombstone) is empty to expressions, and stays null in a `kafka` sink \
            unless a stage sets a value. New topics that match `--topics=^...` are found within five minutes. Hosts refuse patterns, \
            because they check the rights on each topic by its name.",
    options: &[
        OptionSpec {
            name: "topics",
            takes: OptionType::Topics,
            default: OptionDefault::Required,
            summary: "The topics, separated by commas; or, with --group, `^` and a regular expression: all topics whose names begin with a match.",
        },
        BOOTSTRAP,
        OptionSpec {
            name: "group",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The consumer group; by default none.",
        },
        OptionSpec {
            name: "groupProtocol",
            takes: OptionType::Choice(&["classic", "consumer"]),
            default: OptionDefault::Value("classic"),
            summary: "With --group: a member assigns the partitions (classic), or the coordinator (consumer), on brokers of Kafka 4.0 \
                      or later. Members of both protocols can share a group. Exactly once needs classic.",
        },
        OptionSpec {
            name: "sessionTimeout",
            takes: OptionType::Duration,
            default: OptionDefault::Value("45s"),
            summary: "With --group and --groupProtocol=classic: after this time without a heartbeat, a member's partitions are \
                      reassigned. The group's consumer.session.timeout.ms on the broker counts with --groupProtocol=consumer.",
        },
        OptionSpec {
            name: "from",
            takes: OptionType::Begin,
            default: OptionDefault::Value("earliest"),
            summary: "The start position. offset:0=17,2=5 applies to each named partition; others start at the earliest record. With \
                      --group, it applies where the group has no offset: earliest or latest.",
        },
        OptionSpec {
            name: "partitions",
            takes: OptionType::Partitions,
            default: OptionDefault::None,
            summary: "Read only these partitions; not with --group.",
        },
        OptionSpec {
            name: "untilEnd",
            takes: OptionType::Flag,
            default: OptionDefault::Value("false"),
            summary: "Whether to stop at the end offsets found at the start; not with --group.",
        },
        kafka::MODE,
        PROPERTIES,
    ],
    examples: &[
        ("kafka --topics=orders --untilEnd=true | counter", "counts the records of a topic"),
        (
            "kafka --topics='^orders-' --group=all | counter --by=key",
            "all topics whose names begin with orders-",
        ),
        (
            "kafka --topics=orders --group=large | filter --expression='payload.amount > 1000' | kafka --topic=big-orders",
            "from topic to topic, at least once",
        ),
    ],
    check,
    make: StageMaker::Source(start),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let is_pattern = settings.optional_text("topics").is_some_and(|topics| topics::pattern(topics).is_some());
    if is_pattern && settings.optional_text("group").is_none() {
        let message = "A pattern is for the members of a group";
        return Err(WrongMix::new("topics", message, "Add --group=NAME, or name the topics."));
    }
    let begin = StartPosition::read(settings.text("from")).unwrap_or(StartPosition::Earliest);
    if settings.optional_text("group").is_some() {
        let wrong = |option, message| Err(WrongMix::new(option, message, "Remove it, or remove --group."));
        if settings.optional_text("partitions").is_some() {
            return wrong("partitions", "The members of a group share all partitions");
        }
        if settings.flag("untilEnd") {
            return wrong("untilEnd", "The partitions of a group member can change");
        }
        if !matches!(begin, StartPosition::Earliest | StartPosition::Latest) {
            let right = "Use earliest or latest; it applies where the group has no offset yet.";
            return Err(WrongMix::new("from", "A group resumes from its committed offsets", right));
        }
    }
    let chosen = settings.optional_text("partitions").and_then(topics::partitions);
    if let (StartPosition::Offsets(offsets), Some(chosen)) = (&begin, chosen)
        && let Some(other) = offsets.keys().find(|partition| !chosen.contains(partition))
    {
        let message = format!("Partition {other} is not among --partitions");
        return Err(WrongMix::new("from", message, "Add it there, or remove it here."));
    }
    Ok(())
}

fn start(settings: &Settings, site: &Site) -> Result<Box<dyn Source>, StageError> {
    let wanted = ReadSettings::of(settings);
    let in_group = wanted.group.is_some();
    let reset = match &wanted.begin {
        StartPosition::Latest => "latest",
        // A missing offset is an error, without a reset.
        StartPosition::Offset(_) | StartPosition::Offsets(_) => "none",
        StartPosition::Earliest | StartPosition::Timestamp(_) => "earliest",
    };
    let session_timeout = settings.duration("sessionTimeout");
    let session_timeout_ms = session_timeout.as_millis().to_string();
    // Tolerate a lost heartbeat.
    let heartbeat_ms = (session_timeout / 3).min(HEARTBEAT_MAX).as_millis().max(1).to_string();
    let exactly_once = site.guarantee == Guarantee::ExactlyOnce;
    let is_transacted = exactly_once || site.has_durable_state;
    let protocol = settings.text("groupProtocol");
    if exactly_once && protocol != "classic" {
        let reason = "it cannot be combined with --guarantee=exactly-once: use classic";
        return Err(kafka::failed(format!("--groupProtocol={protocol}"), reason));
    }
    let client = kafka::consumer(
        settings,
        if is_transacted { &TRANSACTED } else { &[] },
        &[
            ("group.protocol", protocol),
            ("group.id", settings.optional_text("group").unwrap_or_default()),
            ("auto.offset.reset", reset),
            ("isolation.level", "read_committed"),
            ("allow.auto.create.topics", "false"),
            ("fetch.max.wait.ms", FETCH_WAIT_MS),
            ("fetch.max.bytes", FETCH_BYTES_MAX),
            // A slow sink delays polling, and must not remove the member from the group.
            ("max.poll.interval.ms", "86400000"),
        ],
        &[("session.timeout.ms", &session_timeout_ms), ("heartbeat.interval.ms", &heartbeat_ms)],
    )?;
    let membership = Arc::<Membership>::default();
    let consumer = Consumer::new(client.cluster(), client.config);
    let (sender, batches) = mpsc::channel(WAITING_MAX);
    let (commands, obeyed) = mpsc::channel(COMMANDS_MAX);
    let tracking = site.sources.first().filter(|_| site.tracks_partitions);
    let repeats = in_group && (site.guarantee == Guarantee::AtLeastOnce || site.has_durable_state);
    let tracking = tracking.map(|source| Tracking::new(*source, repeats));
    let skipped = SharedSkippedRecords::default();
    let shared = (Arc::clone(&membership), skipped.clone());
    let reader = Reader::new(consumer, wanted, shared, tracking, is_transacted);
    let reader = reader.run(sender, obeyed);
    Ok(Box::new(Kafka {
        commands: Some(commands),
        reader: Some(tokio::spawn(reader)),
        in_group,
        batches,
        next: None,
        has_ended: false,
        unacknowledged: Runs::default(),
        committing: None,
        membership,
        skipped,
        is_transacted,
    }))
}

struct Kafka {
    /// The reader runs until the source leaves.
    commands: Option<mpsc::Sender<Box<Command>>>,
    reader: Option<JoinHandle<()>>,
    in_group: bool,
    /// Boxed, because a channel allocates space for several entries.
    batches: mpsc::Receiver<Box<Result<PolledBatch, StageError>>>,
    next: Option<Box<Result<PolledBatch, StageError>>>,
    has_ended: bool,
    /// The records of emitted, unacknowledged messages.
    unacknowledged: Runs,
    committing: Option<PendingCommit>,
    membership: Arc<Membership>,
    skipped: SharedSkippedRecords,
    is_transacted: bool,
}

impl Kafka {
    /// Sends a command to the reader; returns nothing if it has ended.
    async fn request<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.as_ref()?.send(Box::new(command(answer))).await.ok()?;
        answered.await.ok()
    }

    /// Starts committing acknowledged messages.
    async fn commit(&self, runs: Runs) -> PendingCommit {
        let begun = self.request(|started| Command::Commit { runs, started }).await;
        begun.unwrap_or(PendingCommit { is_whole: false, commit: None })
    }

    /// Waits for the commit in progress. Uncommitted messages are read again by the owner of their
    /// partitions, so at least once still holds.
    async fn committed(&mut self) -> Result<(), StageError> {
        match self.committing.take() {
            Some(committing) => ended(committing).await.map(drop),
            None => Ok(()),
        }
    }

    /// Removes messages whose partitions were lost, or which will be read again.
    fn without_void(&self, mut polled: PolledBatch) -> PolledBatch {
        let void = polled.runs.split_off(|run| !self.membership.is_void(run));
        if !void.is_empty() {
            let is_in = |sequence| {
                let at = void.partition_point(|run| run.last_sequence() < sequence);
                void.get(at).is_some_and(|run| run.sequence <= sequence)
            };
            polled.batch.retain(|message| !is_in(message.sequence));
        }
        polled
    }
}

impl Source for Kafka {
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        // Unread batches would have to be handed back, too.
        if self.membership.losing().is_some() {
            return Ok(FillResult::Pending);
        }
        while let Some(polled) = self.next.take().or_else(|| self.batches.try_recv().ok()) {
            let mut polled = (*polled)?;
            if self.in_group && !polled.runs.is_empty() {
                polled = self.without_void(polled);
                // The partition is read again: its end is not known.
                if polled.runs.is_empty() {
                    continue;
                }
            }
            if polled.batch.is_empty() && polled.batch.provenance.is_none() {
                continue;
            }
            *batch = polled.batch;
            if self.in_group {
                self.unacknowledged.append(polled.runs);
            }
            return Ok(FillResult::Ready);
        }
        Ok(if self.has_ended { FillResult::End } else { FillResult::Pending })
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {
            if self.membership.losing().is_some() {
                return self.membership.changed().await;
            }
            if self.next.is_some() {
                return;
            }
            tokio::select! {
                biased;
                () = self.membership.changed() => {}
                next = self.batches.recv() => {
                    self.next = next;
                    self.has_ended = self.next.is_none();
                }
            }
        })
    }

    fn close(&mut self) {
        self.membership.close();
        self.batches.close();
    }

    fn claim<'a>(&'a mut self, batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        let claimed = self.unacknowledged.take_since(batch.messages().next()?.sequence);
        if claimed.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            if !ended(self.commit(claimed).await).await? {
                // The new owner reads the batch again.
                batch.clear();
            }
            Ok(())
        }))
    }

    fn has_provenance(&self) -> bool {
        true
    }

    fn wants_acknowledgement(&self) -> bool {
        self.in_group
    }

    fn acknowledge(&mut self, through: u64) -> Wait<'_, Result<(), StageError>> {
        let arrived = self.unacknowledged.take_through(through);
        Box::pin(async move {
            if arrived.is_empty() {
                return Ok(());
            }
            // Messages continue meanwhile; the next commit awaits this one.
            self.committed().await?;
            self.committing = Some(self.commit(arrived).await);
            Ok(())
        })
    }

    fn losing(&self) -> Option<Instant> {
        self.membership.losing()
    }

    fn hand_back(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async {
            self.committed().await?;
            self.request(|done| Command::HandBack { done }).await;
            let membership = &self.membership;
            self.unacknowledged.split_off(|run| !membership.is_void(run));
            Ok(())
        })
    }

    fn has_passed(&self) -> bool {
        // Before the reader has rewound, the position is that of an aborted transaction.
        self.is_transacted
            && self.membership.losing().is_none()
            && !self.membership.wants_rewind()
            && self.skipped.lock().is_due()
    }

    fn progress(&mut self, through: u64, is_due: bool) -> Result<Progress, StageError> {
        // Output for records that will be read again must not be in a transaction, committed or aborted.
        let has_passed = self.has_passed();
        let group = match self.membership.judge(self.unacknowledged.iter()) {
            _ if self.unacknowledged.is_empty() && !has_passed && !is_due => return Ok(Progress::None),
            CommitVerdict::Void => return Ok(Progress::Void),
            CommitVerdict::Sound(group) => group,
        };
        let mut offsets = self.unacknowledged.take_through(through).offsets();
        let mut skipped = self.skipped.lock();
        skipped.commit(&mut offsets);
        if has_passed {
            offsets.extend(skipped.take());
        }
        drop(skipped);
        match offsets.is_empty() && !is_due {
            true => Ok(Progress::None),
            false => Ok(Progress::Group(GroupOffsets { offsets, group, state: Vec::new() })),
        }
    }

    fn rewind(&mut self) {
        self.unacknowledged = Runs::default();
        self.membership.rewind();
    }

    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async {
            self.committed().await?;
            self.membership.end();
            Ok(())
        })
    }

    /// Waits until the reader has left the group; otherwise other members would wait for its session timeout.
    fn leave(&mut self) -> Wait<'_, ()> {
        self.membership.end();
        self.close();
        self.commands = None;
        Box::pin(async {
            let Some(reader) = self.reader.take() else { return };
            if let Err(error) = reader.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        })
    }
}

/// Waits for a commit. Returns true if it was complete.
async fn ended(PendingCommit { is_whole, commit }: PendingCommit) -> Result<bool, StageError> {
    let Some(commit) = commit else { return Ok(is_whole) };
    match commit.await {
        Ok(()) => Ok(is_whole),
        Err(error) if comes_again(&error) => {
            tracing::warn!(%error, "Failed to commit offsets; their messages may be redelivered");
            Ok(false)
        }
        Err(error) => Err(kafka::failed("Committing offsets", error)),
    }
}

/// True if a commit failed because of a rebalance or an unavailable coordinator.
fn comes_again(error: &ConsumerError) -> bool {
    let of_group = [ErrorCode::RebalanceInProgress, ErrorCode::StaleMemberEpoch];
    matches!(error, ConsumerError::CommitFailed(_))
        || error.is_retriable()
        || error.error_code().is_some_and(|code| of_group.contains(&code))
}
