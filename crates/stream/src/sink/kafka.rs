//! `kafka`: messages to a topic, by librdkafka. A message has arrived when the cluster has acknowledged it; only then the source
//! hears of it.
//!
//! What was handed over is counted, and every delivery report counts it back. The first report of a failure ends the stream:
//! librdkafka has tried as long as it was allowed to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::kafka::{self, BOOTSTRAP, PROPERTIES};
use crate::message::{Batch, Headers};
use crate::module::{Absent, Findings, Make, Module, OptionSpec, Settings, Site, Takes, WrongMix};
use crate::stage::{Sink, StageError, Turn, Wait};

/// The pause while the queue of librdkafka is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// The least and the most that librdkafka may keep.
const BUFFER_BYTES: (u64, u64) = (1 << 20, 1 << 40);

/// The longest that a batch may wait.
const LINGER_MAX: Duration = Duration::from_secs(900);

/// The declaration.
pub const MODULE: Module = Module {
    name: "kafka",
    summary: "messages to a topic of a cluster, in its order and with its key",
    about: "By librdkafka, with an idempotent producer that waits for all replicas in sync: a message is delivered at least once, \
            and once only unless the stream itself begins anew. What the cluster does not take is tried again for as long as \
            `--deliveryTimeout` allows. A slow cluster is waited for: no more than\n            `--buffer` waits in memory.",
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
    let mut sink = open(settings)?;
    sink.findings = site.findings.clone();
    Ok(Box::new(sink))
}

/// A producer for a topic.
pub(crate) fn open(settings: &Settings) -> Result<Kafka, StageError> {
    let linger_ms = settings.duration("linger").as_millis().to_string();
    let timeout_ms = settings.duration("deliveryTimeout").as_millis().to_string();
    let buffer_kib = (settings.integer("buffer") >> 10).to_string();
    let config = kafka::config(
        settings,
        &[
            ("enable.idempotence", "true"),
            ("linger.ms", &linger_ms),
            ("delivery.timeout.ms", &timeout_ms),
            ("compression.type", settings.text("compression")),
            ("queue.buffering.max.kbytes", &buffer_kib),
            // Keys go where the producers of Java put them.
            ("partitioner", "murmur2_random"),
        ],
    )?;
    let reports = Arc::new(Reports::default());
    let topic = settings.text("topic").to_owned();
    let producer = ThreadedProducer::from_config_and_context(&config, Context(reports.clone()))
        .map_err(|error| kafka::failed("The producer of librdkafka cannot be made", error))?;
    let with_headers = kafka::with_headers(settings);
    Ok(Kafka {
        topic,
        producer,
        with_headers,
        findings: Findings::default(),
        taken: 0,
        reports,
        waiting: None,
    })
}

/// What has come of messages that were handed over.
#[derive(Default)]
struct Reports {
    /// Handed over and not reported yet.
    under_way: AtomicU64,
    failed: std::sync::Mutex<Option<String>>,
    changed: Notify,
}

impl Reports {
    fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn fail(&self, reason: String) {
        let mut failed = self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.get_or_insert(reason);
    }
}

struct Context(Arc<Reports>);

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(error = %error, reason, "librdkafka has trouble, and tries again");
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        if let Err((error, _message)) = result {
            self.0.fail(error.to_string());
        }
        // The last one wakes whoever waits for all.
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

/// A topic, and what is on its way to it.
pub(crate) struct Kafka {
    topic: String,
    producer: ThreadedProducer<Context>,
    with_headers: bool,
    findings: Findings,
    taken: u64,
    reports: Arc<Reports>,
    /// Messages that librdkafka had no room for, from this place on.
    waiting: Option<(Batch, usize)>,
}

impl Kafka {
    fn check(&self) -> Result<(), StageError> {
        match self.reports.failure() {
            Some(reason) => {
                Err(kafka::failed(format!("Topic {} did not take a message", self.topic), reason))
            }
            None => Ok(()),
        }
    }

    /// Hands messages over until there is no room. The place of the first that had none.
    fn hand_over(&self, batch: &Batch, from: usize) -> Result<usize, StageError> {
        for (index, message) in batch.messages().enumerate().skip(from) {
            let mut record: BaseRecord<'_, [u8], [u8]> =
                BaseRecord::to(&self.topic).payload(message.value).timestamp(message.time_ms);
            if let Some(key) = message.key {
                record = record.key(key);
            }
            if self.with_headers && !message.headers.is_empty() {
                record = record.headers(owned(message.headers));
            }
            self.reports.under_way.fetch_add(1, Ordering::AcqRel);
            if let Err((error, _record)) = self.producer.send(record) {
                self.reports.under_way.fetch_sub(1, Ordering::AcqRel);
                if matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
                    return Ok(index);
                }
                return Err(kafka::failed(format!("Topic {} did not take a message", self.topic), error));
            }
        }
        Ok(batch.len())
    }

    /// Takes messages. What there is no room for waits for [`Kafka::hand_over_rest`].
    pub(crate) fn take(&mut self, batch: &Batch) -> Result<(), StageError> {
        self.check()?;
        self.taken += batch.len() as u64;
        let reached = self.hand_over(batch, 0)?;
        let mut not_there = self.reports.under_way.load(Ordering::Relaxed);
        if reached < batch.len() {
            not_there += (batch.len() - reached) as u64;
            self.waiting = Some((batch.clone(), reached));
        }
        self.findings.set("acknowledged", self.taken - not_there);
        Ok(())
    }

    /// Waits until there is room for all that was taken.
    pub(crate) async fn hand_over_rest(&mut self) -> Result<(), StageError> {
        let Some((batch, mut from)) = self.waiting.take() else { return Ok(()) };
        while from < batch.len() {
            self.check()?;
            sleep(FULL_PAUSE).await;
            from = self.hand_over(&batch, from)?;
        }
        Ok(())
    }

    /// Waits until all has arrived.
    pub(crate) async fn arrive(&mut self) -> Result<(), StageError> {
        self.hand_over_rest().await?;
        loop {
            // Listen, then look.
            let changed = self.reports.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.reports.under_way.load(Ordering::Acquire) == 0 {
                self.check()?;
                self.findings.set("acknowledged", self.taken);
                return Ok(());
            }
            changed.await;
        }
    }
}

fn owned(headers: Headers<'_>) -> OwnedHeaders {
    headers.iter().fold(OwnedHeaders::new(), |owned, header| {
        owned.insert(rdkafka::message::Header { key: header.name, value: header.value })
    })
}

impl Sink for Kafka {
    fn write(&mut self, batch: &Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.take(batch)
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        self.waiting.is_some().then(|| -> Wait<'_, _> { Box::pin(self.hand_over_rest()) })
    }

    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(self.arrive())
    }
}

impl Drop for Kafka {
    /// What is left then is not waited for: the stream has failed, and begins anew where it was acknowledged.
    fn drop(&mut self) {
        self.producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
    }
}
