//! `kafka`: messages to a topic, by librdkafka. A message has arrived when the cluster has acknowledged it; only then
//! the source hears of it, while others are on their way (`reports`). The first report of a failure ends the stream:
//! librdkafka has tried as long as it was allowed to.
//!
//! In a stream that runs exactly once, all that is written between two commits is a transaction, which carries the offsets of
//! the source (`transactions`). What fails there is taken back, and comes again.

mod reports;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, Producer};
use tokio::time::{Instant, sleep};

use crate::kafka::{self, BOOTSTRAP, Cluster, PROPERTIES};
use crate::message::{Batch, Headers};
use crate::module::{Absent, Make, Module, OptionSpec, Settings, Site, Takes, WrongMix};
use crate::stage::{GroupOffsets, Sink, StageError, Transacted, Turn, Wait};
use reports::{Part, Parts};
use transactions::{Outlet, Transactions};

/// The pause while the queue of librdkafka is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// How often it is looked whether what is on its way has failed, where no message comes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The least and the most that librdkafka may keep.
const BUFFER_BYTES: (u64, u64) = (1 << 20, 1 << 40);

/// The longest that a batch may wait.
const LINGER_MAX: Duration = Duration::from_secs(900);

/// The declaration.
pub const MODULE: Module = Module {
    name: "kafka",
    summary: "messages to a topic of a cluster, in its order and with its key",
    about: "By librdkafka, with an idempotent producer that waits for all replicas in sync: a message is delivered at least once, \
            and once only unless the stream itself begins anew; with `--guarantee=exactly-once` what it writes and how far the \
            source has come are one transaction, ten times a second. What the cluster does not take is tried again for as long as \
            `--deliveryTimeout` allows. A slow cluster is waited for: no more than `--buffer` waits in memory.",
    options: &[
        OptionSpec { name: "topic", takes: Takes::Topic, default: Absent::Required, summary: "The topic." },
        BOOTSTRAP,
        OptionSpec {
            name: "compression",
            takes: Takes::Choice(&["none", "gzip", "lz4", "snappy", "zstd"]),
            default: Absent::Value("none"),
            summary: "How batches are compressed.",
        },
        OptionSpec {
            name: "linger",
            takes: Takes::Duration,
            default: Absent::Value("5ms"),
            summary: "How long a batch waits for more messages.",
        },
        OptionSpec {
            name: "deliveryTimeout",
            takes: Takes::Duration,
            default: Absent::Value("5m"),
            summary: "How long a message is tried.",
        },
        OptionSpec {
            name: "buffer",
            takes: Takes::Size,
            default: Absent::Value("64MiB"),
            summary: "How many bytes may be on their way to the cluster.",
        },
        kafka::MODE,
        PROPERTIES,
    ],
    examples: &[("stdin | kafka --topic=orders", "a record for each line")],
    check,
    make: Make::Sink(make),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let (least, most) = BUFFER_BYTES;
    if !(least..=most).contains(&settings.integer("buffer")) {
        return Err(WrongMix::new(
            "buffer",
            "This is no buffer for a producer",
            "1MiB to 1024GiB would be right.",
        ));
    }
    let (linger, timeout) = (settings.duration("linger"), settings.duration("deliveryTimeout"));
    if timeout <= linger || timeout.as_millis() > i32::MAX as u128 {
        let message = "Messages that wait for --linger must have time left to be delivered";
        return Err(WrongMix::new(
            "deliveryTimeout",
            message,
            "More than --linger, and at most 24d, would be right.",
        ));
    }
    if linger > LINGER_MAX {
        return Err(WrongMix::new(
            "linger",
            "librdkafka waits no longer than 15 minutes",
            "15m at the most.",
        ));
    }
    Ok(())
}

fn make(settings: &Settings, site: &Site) -> Result<Box<dyn Sink>, StageError> {
    let sink = match &site.transactional_id {
        Some(id) => open_transactional(settings, id)?,
        None => open(settings)?,
    };
    site.findings.count("acknowledged", sink.acknowledged());
    Ok(Box::new(sink))
}

/// A producer for a topic.
pub(crate) fn open(settings: &Settings) -> Result<Kafka, StageError> {
    let timeout_ms = settings.duration("deliveryTimeout").as_millis().to_string();
    let config = config(settings, &[], &[("delivery.timeout.ms", &timeout_ms)])?;
    Ok(Kafka::new(settings, Way::AtLeastOnce(Outlet::open(&config, &Cluster::of(settings))?)))
}

/// One that writes in transactions. A message has to arrive while its transaction is open: what `--deliveryTimeout`
/// bounds is how long transactions may fail.
fn open_transactional(settings: &Settings, id: &Arc<str>) -> Result<Kafka, StageError> {
    let fixed = [("transactional.id", &**id), ("enable.idempotence", "true")];
    let more = [
        ("transaction.timeout.ms", transactions::TIMEOUT_MS),
        // A broker that is back is found while the transaction is still open.
        ("reconnect.backoff.max.ms", "1000"),
    ];
    let config = config(settings, &fixed, &more)?;
    let transactions =
        Transactions::new(config, Cluster::of(settings), id.clone(), settings.duration("deliveryTimeout"));
    Ok(Kafka::new(settings, Way::ExactlyOnce(Box::new(transactions))))
}

fn config(
    settings: &Settings,
    fixed: &[(&str, &str)],
    more: &[(&str, &str)],
) -> Result<ClientConfig, StageError> {
    let linger_ms = settings.duration("linger").as_millis().to_string();
    let buffer_kib = (settings.integer("buffer") >> 10).to_string();
    let mut needed = vec![
        ("enable.idempotence", "true"),
        ("linger.ms", &*linger_ms),
        ("compression.type", settings.text("compression")),
        ("queue.buffering.max.kbytes", &*buffer_kib),
        // Keys go where the producers of Java put them.
        ("partitioner", "murmur2_random"),
    ];
    needed.extend(more);
    kafka::config(settings, fixed, &needed)
}

/// How messages go to the cluster.
enum Way {
    AtLeastOnce(Outlet),
    ExactlyOnce(Box<Transactions>),
}

/// Messages that librdkafka had no room for, from a place on.
struct Waiting {
    batch: Batch,
    from: usize,
    part: Arc<Part>,
}

/// A topic, and what is on its way to it.
pub(crate) struct Kafka {
    topic: String,
    way: Way,
    with_headers: bool,
    /// In transactions that count.
    committed: Arc<AtomicU64>,
    /// Since the last transaction.
    uncommitted: u64,
    /// What was taken and has not arrived.
    parts: Parts,
    waiting: Option<Waiting>,
    /// When it is looked at next.
    look_at: Option<Instant>,
}

impl Kafka {
    fn new(settings: &Settings, way: Way) -> Kafka {
        Kafka {
            topic: settings.text("topic").to_owned(),
            way,
            with_headers: kafka::with_headers(settings),
            committed: Arc::default(),
            uncommitted: 0,
            parts: Parts::default(),
            waiting: None,
            look_at: None,
        }
    }

    /// What takes messages now, if anything does.
    fn outlet(&self) -> Option<&Outlet> {
        match &self.way {
            Way::AtLeastOnce(outlet) => Some(outlet),
            Way::ExactlyOnce(transactions) => transactions.outlet(),
        }
    }

    fn check(&self) -> Result<(), StageError> {
        match &self.way {
            Way::AtLeastOnce(outlet) => match outlet.reports.failure() {
                Some(reason) => Err(self.not_taken(reason)),
                None => Ok(()),
            },
            // The transaction tells.
            Way::ExactlyOnce(_) => Ok(()),
        }
    }

    fn not_taken(&self, reason: impl ToString) -> StageError {
        kafka::failed(format!("Topic {} did not take a message", self.topic), reason)
    }

    /// Hands messages over until there is no room. Whether there was room for all.
    fn hand_over(&mut self) -> Result<bool, StageError> {
        let Some(Waiting { batch, mut from, part }) = self.waiting.take() else { return Ok(true) };
        // What a transaction does not take is taken back with it.
        let Some(outlet) = self.outlet() else { return Ok(true) };
        let mut refused = None;
        for message in batch.messages().skip(from) {
            let mut record: BaseRecord<'_, [u8], [u8], Arc<Part>> =
                BaseRecord::with_opaque_to(&self.topic, part.clone()).timestamp(message.time_ms);
            if !message.is_null {
                record = record.payload(message.value);
            }
            if let Some(key) = message.key {
                record = record.key(key);
            }
            if self.with_headers && !message.headers.is_empty() {
                record = record.headers(owned(message.headers));
            }
            outlet.reports.hand_over();
            if let Err((error, _record)) = outlet.producer.send(record) {
                outlet.reports.take_back();
                refused = Some(error);
                break;
            }
            from += 1;
        }
        let Some(error) = refused else { return Ok(true) };
        match (error.rdkafka_error_code(), &mut self.way) {
            (Some(RDKafkaErrorCode::QueueFull), _) => {
                self.waiting = Some(Waiting { batch, from, part });
                Ok(false)
            }
            (code, Way::ExactlyOnce(transactions)) if is_of_transaction(code) => {
                transactions.lose();
                Ok(true)
            }
            _ => Err(self.not_taken(error)),
        }
    }

    /// Takes messages. What there is no room for waits for [`Kafka::hand_over_rest`].
    pub(crate) fn take(&mut self, batch: &Batch) -> Result<(), StageError> {
        self.check()?;
        let Some(first) = batch.messages().next() else { return Ok(()) };
        if let Way::AtLeastOnce(outlet) = &self.way {
            // Forgets what has arrived, also where nobody asks.
            self.parts.held_since(&outlet.reports);
        }
        let part = self.parts.begin(first.sequence);
        self.uncommitted += batch.len() as u64;
        self.waiting = Some(Waiting { batch: batch.clone(), from: 0, part });
        if let Way::AtLeastOnce(_) = &self.way {
            self.hand_over()?;
        }
        Ok(())
    }

    /// The count of messages that the cluster has acknowledged.
    fn acknowledged(&self) -> Arc<AtomicU64> {
        match &self.way {
            Way::AtLeastOnce(outlet) => outlet.reports.arrived(),
            Way::ExactlyOnce(_) => Arc::clone(&self.committed),
        }
    }

    /// Waits until there is room for all that was taken.
    pub(crate) async fn hand_over_rest(&mut self) -> Result<(), StageError> {
        if let (Way::ExactlyOnce(transactions), Some(_)) = (&mut self.way, &self.waiting) {
            transactions.open().await?;
        }
        while !self.hand_over()? {
            sleep(FULL_PAUSE).await;
            self.check()?;
        }
        Ok(())
    }

    /// Waits until all has arrived. What a transaction has of it is waited for when it is committed.
    pub(crate) async fn arrive(&mut self) -> Result<(), StageError> {
        self.hand_over_rest().await?;
        if let Way::AtLeastOnce(outlet) = &self.way {
            outlet.reports.all().await;
        }
        self.check()
    }

    fn transactions(&mut self) -> &mut Transactions {
        match &mut self.way {
            Way::ExactlyOnce(transactions) => transactions,
            Way::AtLeastOnce(_) => unreachable!("a stream that runs exactly once has transactions"),
        }
    }

    async fn transact(&mut self, progress: GroupOffsets) -> Result<Transacted, StageError> {
        self.hand_over_rest().await?;
        let transacted = self.transactions().commit(progress).await?;
        if transacted == Transacted::Committed {
            self.parts = Parts::default();
            self.committed.fetch_add(std::mem::take(&mut self.uncommitted), Ordering::AcqRel);
        }
        Ok(transacted)
    }

    async fn take_back(&mut self) -> Result<(), StageError> {
        self.waiting = None;
        self.uncommitted = 0;
        self.parts = Parts::default();
        self.transactions().abort().await
    }
}

/// Whether a message was refused because its transaction, or its producer, takes no more.
fn is_of_transaction(code: Option<RDKafkaErrorCode>) -> bool {
    matches!(code, Some(RDKafkaErrorCode::State | RDKafkaErrorCode::Fatal | RDKafkaErrorCode::Fenced))
}

fn owned(headers: Headers<'_>) -> OwnedHeaders {
    headers.iter().fold(OwnedHeaders::new(), |owned, header| {
        owned.insert(rdkafka::message::Header { key: header.name, value: header.value })
    })
}

impl Sink for Kafka {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        // What a transaction holds is looked at when it is committed.
        if matches!(self.way, Way::AtLeastOnce(_)) {
            self.look_at.get_or_insert(turn.now + LOOK_EVERY);
        }
        self.take(batch)
    }

    fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.look_at.is_some_and(|at| at <= turn.now) {
            self.check()?;
            let is_over = self.outlet().is_none_or(|outlet| outlet.reports.under_way() == 0);
            self.look_at = (!is_over).then(|| turn.now + LOOK_EVERY);
        }
        Ok(())
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        self.waiting.is_some().then(|| -> Wait<'_, _> { Box::pin(self.hand_over_rest()) })
    }

    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(self.arrive())
    }

    fn tells_arrivals(&self) -> Result<bool, StageError> {
        self.check()?;
        Ok(true)
    }

    fn held_since(&mut self) -> Option<u64> {
        match &self.way {
            Way::AtLeastOnce(outlet) => self.parts.held_since(&outlet.reports),
            Way::ExactlyOnce(_) => None,
        }
    }

    fn commit(&mut self, progress: GroupOffsets) -> Wait<'_, Result<Transacted, StageError>> {
        Box::pin(self.transact(progress))
    }

    fn abort(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(self.take_back())
    }
}

impl Drop for Kafka {
    /// What is left then is not waited for: the stream has failed, and begins anew where it was acknowledged.
    fn drop(&mut self) {
        if let Way::AtLeastOnce(outlet) = &self.way {
            outlet.producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
        }
    }
}
