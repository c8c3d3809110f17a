//! `kafka`: the records of topics. A task reads and hands batches over; the offset of a message is committed when the sink has
//! acknowledged it and all before it, never before.
//!
//! A commit names the partitions that this member has at the moment: what was taken from others or given away is redelivered
//! by whoever has it. So each record arrives at least once. In a stream that runs exactly once, the source commits nothing:
//! the sink's transactions carry how far it has come ([`Source::progress`]).

mod ends;
mod membership;
mod partitions;
mod reader;
mod runs;

use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{ClientError, Consumer};
use thalweg_wire::ErrorCode;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::declaration::{Absent, Make, Module, OptionSpec, Settings, Site, Takes, WrongMix};
use crate::guarantee::Guarantee;
use crate::kafka::{self, BOOTSTRAP, PROPERTIES};
use crate::message::Batch;
use crate::stage::{Filled, GroupOffsets, Progress, Source, StageError, Turn, Wait};
use crate::topics::{self, Begin};
use membership::{Judged, Membership};
use partitions::Wanted;
use reader::{Command, Committing, Polled, Reader};
use runs::Runs;

/// Batches that wait to be taken.
const WAITING_MAX: usize = 8;
/// Commands that wait to be obeyed: the stream waits for the answer to each.
const COMMANDS_MAX: usize = 1;
/// The longest time between two signs of life.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// `fetch.max.wait.ms`: a source with nothing to read asks as seldom as this. Records are sent when they come.
const FETCH_WAIT_MS: &str = "5000";
/// `fetch.max.bytes`: a source whose sink is slow holds up to three answers of each broker.
const FETCH_BYTES_MAX: &str = "16777216";
/// What a consumer must be set to, so that each message is in one transaction: all partitions are given and taken at once, and
/// of transactions only what was committed is read.
const EXACTLY_ONCE: [(&str, &str); 3] = [
    ("isolation.level", "read_committed"),
    ("partition.assignment.strategy", "range,roundrobin"),
    ("group.protocol", "classic"),
];

/// The declaration.
pub const MODULE: Module = Module {
    name: "kafka",
    summary: "the records of topics of a cluster",
    about: "With `--group` the stream is a member of a consumer group: it shares the partitions with the other \
            members, begins where the group left off, and commits offsets when every sink has acknowledged the messages, \
            those behind `topic:` among them (a tap only listens), so that each arrives at least once; \
            `--guarantee=at-most-once` commits before any stage sees them, `--guarantee=exactly-once` with what the sink writes. \
            Before others take its partitions, what it has of them arrives and is committed. Without it, all partitions or those of `--partitions` are read from `--from` on, and \
            nothing is committed. Keys, times and headers of records are those of the messages. A record without a value, which deletes its key, is empty to \
            expressions, and has none in a `kafka` sink either, unless a stage writes one.",
    options: &[
        OptionSpec {
            name: "topics",
            takes: Takes::Topics,
            default: Absent::Required,
            summary: "The topics, with commas between.",
        },
        BOOTSTRAP,
        OptionSpec {
            name: "group",
            takes: Takes::Name,
            default: Absent::None,
            summary: "The consumer group; without, the source is in none.",
        },
        OptionSpec {
            name: "sessionTimeout",
            takes: Takes::Duration,
            default: Absent::Value("45s"),
            summary: "With --group: how long after the last sign of life of a member that was killed others take its partitions.",
        },
        OptionSpec {
            name: "from",
            takes: Takes::Begin,
            default: Absent::Value("earliest"),
            summary: "Where to begin; with offset:0=17,2=5 in each partition, and with the first record in others. With --group, \
                      where the group has no offset: earliest or latest.",
        },
        OptionSpec {
            name: "partitions",
            takes: Takes::Partitions,
            default: Absent::None,
            summary: "Only these partitions; not with --group.",
        },
        OptionSpec {
            name: "untilEnd",
            takes: Takes::Flag,
            default: Absent::Value("false"),
            summary: "Whether to end where the partitions ended when reading began; not with --group.",
        },
        kafka::MODE,
        PROPERTIES,
    ],
    examples: &[
        ("kafka --topics=orders --untilEnd=true | counter", "how many records a topic has"),
        (
            "kafka --topics=orders --group=large | filter --expression='payload.amount > 1000' | kafka --topic=big-orders",
            "from topic to topic, each record at least once",
        ),
    ],
    check,
    make: Make::Source(start),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let begin = Begin::read(settings.text("from")).unwrap_or(Begin::Earliest);
    if settings.optional_text("group").is_some() {
        let wrong =
            |option, message| Err(WrongMix::new(option, message, "Leave it out, or leave out --group."));
        if settings.optional_text("partitions").is_some() {
            return wrong("partitions", "The members of a group share all partitions");
        }
        if settings.flag("untilEnd") {
            return wrong("untilEnd", "A member of a group does not know which partitions it will have");
        }
        if !matches!(begin, Begin::Earliest | Begin::Latest) {
            let right = "earliest or latest would be right, where the group has no offset yet.";
            return Err(WrongMix::new("from", "A group begins where it left off", right));
        }
    }
    let chosen = settings.optional_text("partitions").and_then(topics::partitions);
    if let (Begin::Offsets(offsets), Some(chosen)) = (&begin, chosen)
        && let Some(other) = offsets.keys().find(|partition| !chosen.contains(partition))
    {
        let message = format!("Partition {other} is not among --partitions");
        return Err(WrongMix::new("from", message, "Name it there, or leave it out here."));
    }
    Ok(())
}

fn start(settings: &Settings, site: &Site) -> Result<Box<dyn Source>, StageError> {
    let wanted = Wanted::of(settings);
    let in_group = wanted.in_group;
    let reset = match &wanted.begin {
        Begin::Latest => "latest",
        // An offset that is not there is no word to begin elsewhere.
        Begin::Offset(_) | Begin::Offsets(_) => "none",
        Begin::Earliest | Begin::Timestamp(_) => "earliest",
    };
    let session_timeout = settings.duration("sessionTimeout");
    let session_timeout_ms = session_timeout.as_millis().to_string();
    // A sign of life that is lost is not taken for death.
    let heartbeat_ms = (session_timeout / 3).min(HEARTBEAT_MAX).as_millis().max(1).to_string();
    let exactly_once = site.guarantee == Guarantee::ExactlyOnce;
    let client = kafka::consumer(
        settings,
        if exactly_once { &EXACTLY_ONCE } else { &[] },
        &[
            ("session.timeout.ms", &session_timeout_ms),
            ("heartbeat.interval.ms", &heartbeat_ms),
            ("group.id", settings.optional_text("group").unwrap_or_default()),
            ("auto.offset.reset", reset),
            ("isolation.level", "read_committed"),
            ("allow.auto.create.topics", "false"),
            ("fetch.max.wait.ms", FETCH_WAIT_MS),
            ("fetch.max.bytes", FETCH_BYTES_MAX),
            // A slow sink holds up the polling, and is no reason to leave the group.
            ("max.poll.interval.ms", "86400000"),
        ],
    )?;
    let membership = Arc::<Membership>::default();
    let consumer = Consumer::new(client.cluster(), client.config);
    let (sender, batches) = mpsc::channel(WAITING_MAX);
    let (commands, obeyed) = mpsc::channel(COMMANDS_MAX);
    let reader = Reader::new(consumer, wanted, Arc::clone(&membership)).run(sender, obeyed);
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
    }))
}

struct Kafka {
    /// Until the source leaves: the reader goes on as long.
    commands: Option<mpsc::Sender<Command>>,
    reader: Option<JoinHandle<()>>,
    in_group: bool,
    /// Boxed: a channel has room for many from the beginning.
    batches: mpsc::Receiver<Box<Result<Polled, StageError>>>,
    next: Option<Box<Result<Polled, StageError>>>,
    has_ended: bool,
    /// Which records the messages are that were given and are not acknowledged.
    unacknowledged: Runs,
    committing: Option<Committing>,
    membership: Arc<Membership>,
}

impl Kafka {
    /// Asks the reader; nothing where it has ended.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.as_ref()?.send(command(answer)).await.ok()?;
        answered.await.ok()
    }

    /// Begins to commit what has arrived.
    async fn commit(&self, runs: Runs) -> Committing {
        let begun = self.ask(|started| Command::Commit { runs, started }).await;
        begun.unwrap_or(Committing { is_whole: false, commit: None })
    }

    /// Waits for the commit that is under way. What was not committed comes again to whoever has its partitions then: at least
    /// once holds.
    async fn committed(&mut self) -> Result<(), StageError> {
        match self.committing.take() {
            Some(committing) => ended(committing).await.map(drop),
            None => Ok(()),
        }
    }

    /// Leaves out what others have by now, or what comes again.
    fn without_void(&self, mut polled: Polled) -> Polled {
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
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        batch.clear();
        // What is still to be taken would have to be handed back, too.
        if self.membership.losing().is_some() {
            return Ok(Filled::Pending);
        }
        while let Some(polled) = self.next.take().or_else(|| self.batches.try_recv().ok()) {
            let mut polled = (*polled)?;
            if self.in_group {
                polled = self.without_void(polled);
            }
            if polled.batch.is_empty() {
                continue;
            }
            *batch = polled.batch;
            if self.in_group {
                self.unacknowledged.append(polled.runs);
            }
            return Ok(Filled::Ready);
        }
        Ok(if self.has_ended { Filled::End } else { Filled::Pending })
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
                // Whoever has its partitions now gets it again.
                batch.clear();
            }
            Ok(())
        }))
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
            // Messages go on meanwhile: it is waited for when the next is due.
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
            self.ask(|done| Command::HandBack { done }).await;
            let membership = &self.membership;
            self.unacknowledged.split_off(|run| !membership.is_void(run));
            Ok(())
        })
    }

    fn progress(&mut self, through: u64) -> Result<Progress, StageError> {
        // Nothing that was written may be of records that come again, committed or not.
        let group = match self.membership.judge(self.unacknowledged.iter()) {
            _ if self.unacknowledged.is_empty() => return Ok(Progress::None),
            Judged::Void => return Ok(Progress::Void),
            Judged::Sound(group) => group,
        };
        let offsets = self.unacknowledged.take_through(through).offsets();
        match offsets.is_empty() {
            true => Ok(Progress::None),
            false => Ok(Progress::Group(GroupOffsets { offsets, group })),
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

    /// Waits until the reader has left the group, in which others would wait for the end of its session.
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

/// Waits for a commit. Whether all of it was committed.
async fn ended(Committing { is_whole, commit }: Committing) -> Result<bool, StageError> {
    let Some(commit) = commit else { return Ok(is_whole) };
    match commit.await {
        Ok(()) => Ok(is_whole),
        Err(error) if comes_again(&error) => {
            tracing::warn!(%error, "Offsets were not committed; their messages may come again");
            Ok(false)
        }
        Err(error) => Err(kafka::failed("Committing offsets", error)),
    }
}

/// Whether a commit failed because the group has changed, or its coordinator does not answer.
fn comes_again(error: &ClientError) -> bool {
    let of_group = [ErrorCode::RebalanceInProgress, ErrorCode::IllegalGeneration, ErrorCode::UnknownMemberId];
    error.is_retriable() || error.error_code().is_some_and(|code| of_group.contains(&code))
}
