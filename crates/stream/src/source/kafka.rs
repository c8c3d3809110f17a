//! `kafka`: the records of topics, by librdkafka. A thread polls and hands batches over; the offset of a message is
//! committed when the sink has acknowledged it and all before it, never before.
//!
//! A commit names the partitions that this member has at the moment: what was taken from others or given away is redelivered
//! by whoever has it. So each record arrives at least once. In a stream that runs exactly once, the source commits nothing:
//! the sink's transactions carry how far it has come ([`Source::progress`]).

mod ends;
mod membership;
mod reader;
mod runs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Guarantee;
use crate::kafka::{self, BOOTSTRAP, Begin, Cluster, PROPERTIES};
use crate::message::Batch;
use crate::module::{Absent, Make, Module, OptionSpec, Settings, Site, Takes, WrongMix};
use crate::stage::{Filled, GroupOffsets, Progress, Source, StageError, Turn, Wait};
use membership::{Context, Judged, Membership};
use reader::{Bell, GroupConsumer, Polled, Reader, Wanted};
use runs::{Offsets, Runs};

/// Batches that wait to be taken.
const WAITING_MAX: usize = 8;
/// The group of a source that is in none: librdkafka wants a name, and nothing is committed under it.
const NO_GROUP: &str = "thalweg-stream-without-group";

/// The longest time between two signs of life.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
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
    about: "By librdkafka. With `--group` the stream is a member of a consumer group: it shares the partitions with the other \
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
    let chosen = settings.optional_text("partitions").and_then(kafka::partitions);
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
        Begin::Offset(_) | Begin::Offsets(_) => "error",
        Begin::Earliest | Begin::Timestamp(_) => "earliest",
    };
    let session_timeout = settings.duration("sessionTimeout");
    let session_timeout_ms = session_timeout.as_millis().to_string();
    // A sign of life that is lost is not taken for death.
    let heartbeat_ms = (session_timeout / 3).min(HEARTBEAT_MAX).as_millis().max(1).to_string();
    let exactly_once = site.guarantee == Guarantee::ExactlyOnce;
    let config = kafka::config(
        settings,
        if exactly_once { &EXACTLY_ONCE } else { &[] },
        &[
            ("session.timeout.ms", &session_timeout_ms),
            ("heartbeat.interval.ms", &heartbeat_ms),
            ("group.id", settings.optional_text("group").unwrap_or(NO_GROUP)),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("enable.partition.eof", if wanted.until_end { "true" } else { "false" }),
            ("auto.offset.reset", reset),
            // A queue that was full is filled again soon, not a second later.
            ("fetch.queue.backoff.ms", "20"),
            // A slow sink holds up the polling, and is no reason to leave the group.
            ("max.poll.interval.ms", "86400000"),
        ],
    )?;
    let membership = Arc::new(Membership::default());
    let mut consumer = GroupConsumer::from_config_and_context(&config, Context(membership.clone()))
        .map_err(|error| kafka::failed("The consumer of librdkafka cannot be made", error))?;
    let bell = Arc::new(Bell::default());
    let rung = bell.clone();
    consumer.set_nonempty_callback(move || rung.ring());
    let consumer = Arc::new(consumer);
    let is_closed = Arc::new(AtomicBool::new(false));
    let (sender, batches) = mpsc::channel(WAITING_MAX);
    let cluster = Cluster {
        bootstrap: config.get("bootstrap.servers").unwrap_or_default().to_owned(),
        ..Cluster::of(settings)
    };
    let reader =
        Reader::new(consumer.clone(), cluster, wanted, membership.clone(), bell.clone(), is_closed.clone());
    let spawned = std::thread::Builder::new().name("kafka".to_owned()).spawn(move || reader.run(&sender));
    let thread = spawned.map_err(|error| kafka::failed("A thread cannot be started", error))?;
    Ok(Box::new(Kafka {
        consumer: Some(consumer),
        thread: Some(thread),
        in_group,
        batches,
        next: None,
        bell,
        is_closed,
        has_ended: false,
        unacknowledged: Runs::default(),
        committing: None,
        membership,
    }))
}

struct Kafka {
    /// Until it is dropped.
    consumer: Option<Arc<GroupConsumer>>,
    thread: Option<JoinHandle<()>>,
    in_group: bool,
    batches: mpsc::Receiver<Result<Polled, StageError>>,
    next: Option<Result<Polled, StageError>>,
    bell: Arc<Bell>,
    is_closed: Arc<AtomicBool>,
    has_ended: bool,
    /// Which records the messages are that were given and are not acknowledged.
    unacknowledged: Runs,
    committing: Option<tokio::task::JoinHandle<Result<bool, StageError>>>,
    membership: Arc<Membership>,
}

impl Kafka {
    fn consumer(&self) -> Arc<GroupConsumer> {
        self.consumer.clone().expect("it is there until it is dropped")
    }

    /// Waits for the commit that is under way. What was not committed comes again to whoever has its partitions then: at least
    /// once holds.
    async fn committed(&mut self) -> Result<(), StageError> {
        let Some(committing) = self.committing.take() else { return Ok(()) };
        let committed = committing.await;
        committed.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())).map(drop)
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
            let mut polled = polled?;
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
                next = self.batches.recv() => {
                    self.next = next;
                    self.has_ended = self.next.is_none();
                }
                () = self.membership.changed() => {}
            }
        })
    }

    fn close(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.batches.close();
        self.bell.ring();
    }

    fn claim<'a>(&'a mut self, batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        let claimed = self.unacknowledged.take_since(batch.messages().next()?.sequence).offsets();
        if claimed.is_empty() {
            return None;
        }
        let consumer = self.consumer();
        Some(Box::pin(async move {
            let is_whole = commit_elsewhere(consumer, claimed).await?;
            if !is_whole {
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
        let mut arrived = self.unacknowledged.take_through(through);
        // What others have by now is theirs to commit.
        arrived.split_off(|run| !self.membership.is_void(run));
        Box::pin(async move {
            if arrived.is_empty() {
                return Ok(());
            }
            // Messages go on meanwhile: it is waited for when the next is due.
            self.committed().await?;
            self.committing = Some(tokio::spawn(commit_elsewhere(self.consumer(), arrived.offsets())));
            Ok(())
        })
    }

    fn losing(&self) -> Option<Instant> {
        self.membership.losing()
    }

    fn hand_back(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async {
            self.committed().await?;
            self.membership.hand_back();
            let membership = self.membership.clone();
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
        let mut offsets = TopicPartitionList::new();
        for ((topic, partition), next) in self.unacknowledged.take_through(through).offsets() {
            let added = offsets.add_partition_offset(&topic, partition, Offset::Offset(next));
            added.map_err(|error| kafka::failed("Committing", error))?;
        }
        match offsets.count() {
            0 => Ok(Progress::None),
            _ => Ok(Progress::Group(GroupOffsets { offsets, group })),
        }
    }

    fn rewind(&mut self) {
        self.unacknowledged = Runs::default();
        self.membership.rewind();
        self.bell.ring();
    }

    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async {
            self.committed().await?;
            self.membership.end();
            Ok(())
        })
    }
}

impl Drop for Kafka {
    /// Waits for the thread, so that the consumer is closed here and leaves its group: others would wait for its session to
    /// end. That takes no longer than a poll and the answer of the cluster. Many streams that stop at the same time
    /// do so beside each other, where the runtime has threads for it.
    fn drop(&mut self) {
        self.membership.end();
        self.close();
        let (thread, consumer) = (self.thread.take(), self.consumer.take());
        let close = move || {
            let joined = thread.map(JoinHandle::join);
            drop(consumer);
            if let Some(Err(panic)) = joined
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        };
        let has_threads =
            Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        if has_threads { tokio::task::block_in_place(close) } else { close() }
    }
}

/// A commit waits for the answer of the cluster, on a thread that may.
async fn commit_elsewhere(consumer: Arc<GroupConsumer>, offsets: Offsets) -> Result<bool, StageError> {
    let committed = tokio::task::spawn_blocking(move || commit(&consumer, offsets)).await;
    committed.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Commits what of it belongs to this member. Whether that was all of it.
fn commit(consumer: &GroupConsumer, offsets: Offsets) -> Result<bool, StageError> {
    let assigned =
        consumer.assignment().map_err(|error| kafka::failed("Asking for the assignment", error))?;
    let assigned: BTreeSet<(String, i32)> =
        assigned.elements().iter().map(|element| (element.topic().to_owned(), element.partition())).collect();
    let mut list = TopicPartitionList::new();
    let count = offsets.len();
    for ((topic, partition), next) in offsets {
        if assigned.contains(&(topic.to_string(), partition)) {
            let added = list.add_partition_offset(&topic, partition, Offset::Offset(next));
            added.map_err(|error| kafka::failed("Committing", error))?;
        }
    }
    if list.count() == 0 {
        return Ok(count == 0);
    }
    let again = [
        RDKafkaErrorCode::RebalanceInProgress,
        RDKafkaErrorCode::IllegalGeneration,
        RDKafkaErrorCode::UnknownMemberId,
        RDKafkaErrorCode::OperationTimedOut,
        RDKafkaErrorCode::BrokerTransportFailure,
        RDKafkaErrorCode::CoordinatorLoadInProgress,
        RDKafkaErrorCode::CoordinatorNotAvailable,
        RDKafkaErrorCode::NotCoordinator,
    ];
    match consumer.commit(&list, CommitMode::Sync) {
        Ok(()) => Ok(list.count() == count),
        Err(error) if error.rdkafka_error_code().is_some_and(|code| again.contains(&code)) => {
            tracing::warn!(error = %error, "Offsets were not committed; their messages may come again");
            Ok(false)
        }
        Err(error) => Err(kafka::failed("Committing offsets", error)),
    }
}
