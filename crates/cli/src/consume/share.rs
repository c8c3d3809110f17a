//! `consume --share`: the records of a share group, acknowledged when they are printed.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use thalweg_browse::Registry;
use thalweg_client::{
    AcknowledgeType, AcknowledgementMode, ClientError, ShareChunk, ShareConfig, ShareConsumer, SharePollEvent,
};
use thalweg_record::{Offset, Record};
use tokio::time::Instant;

use super::decoding::RecordDecoder;
use super::{CLOSE_MAX, ChunkPrinter, Consume, END_MAX, POLL, Usage};
use crate::connect::{WAITS, warn_about_rest};
use crate::signals;

/// Limit of the records that a fetch acquires. A person may print only a few, and other members wait for the
/// rest.
const RECORDS_MAX: u64 = 500;

impl Consume {
    /// Prints acquired records until the end. Acquired records that are not printed are released.
    pub(super) async fn run_share(&self, mut printing: ChunkPrinter<'_>) -> anyhow::Result<()> {
        if let Some(pattern) = self.topics.iter().find(|topic| topic.starts_with('^')) {
            return Err(Usage(format!(
                "{pattern} is a regular expression: share groups read topics by name"
            ))
            .into());
        }
        let (mut consumer, registry) = self.share_consumer().await?;
        printing.printer.decoding = registry.map(RecordDecoder::new);
        signals::exit_when_blocked(END_MAX)?;
        let read = async {
            // Check the names first: a member would wait forever for a misspelled topic.
            let topics = self.names(&consumer.cluster().clone()).await?;
            consumer.subscribe(topics);
            self.print_acquired(&mut consumer, &mut printing).await
        };
        let printed = tokio::select! {
            printed = read => printed,
            signal = signals::end() => signal.map_err(anyhow::Error::from),
        };
        printing.printer.report();
        let closed = tokio::time::timeout(CLOSE_MAX, consumer.close()).await;
        printed?;
        let Ok(closed) = closed else {
            anyhow::bail!(
                "Records may be delivered again: the group did not answer within {} s",
                CLOSE_MAX.as_secs()
            )
        };
        closed?.into_values().collect::<Result<(), ClientError>>().map_err(not_acknowledged)
    }

    async fn share_consumer(&self) -> anyhow::Result<(ShareConsumer, Option<Arc<Registry>>)> {
        let mut properties = self.connect.properties()?;
        properties.set("group.id", self.group.as_deref().unwrap_or_default());
        properties.set_default("allow.auto.create.topics", "false");
        properties.set_default("max.poll.records", &self.records_max().to_string());
        let bootstrap = properties.take_bootstrap_servers()?;
        let mut config = ShareConfig::take(&mut properties)?;
        config.acknowledgement_mode = AcknowledgementMode::Explicit;
        config.connection.waits = Some(WAITS.clone());
        let registry = self.registry.take(&mut properties)?;
        warn_about_rest(&properties);
        Ok((ShareConsumer::connect(&bootstrap, config).await?, registry))
    }

    fn records_max(&self) -> u64 {
        self.max_messages.unwrap_or(RECORDS_MAX).clamp(1, RECORDS_MAX)
    }

    async fn print_acquired(
        &self,
        consumer: &mut ShareConsumer,
        printing: &mut ChunkPrinter<'_>,
    ) -> anyhow::Result<()> {
        let with =
            self.ack.as_deref().and_then(AcknowledgeType::from_name).unwrap_or(AcknowledgeType::Accept);
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let mut records = self.max_messages.unwrap_or(u64::MAX);
        let mut last = Instant::now();
        while records > 0 {
            match consumer.poll(timeout.map_or(POLL, |timeout| timeout.min(POLL))).await? {
                SharePollEvent::Chunk(chunk) => {
                    if let Some(decoding) = &printing.printer.decoding {
                        let buffer = &mut printing.buffer;
                        let walk = |visit: &mut dyn FnMut(&Record<'_>)| {
                            chunk.for_each(buffer, |record, _| {
                                visit(record);
                                ControlFlow::Continue(())
                            })
                        };
                        decoding.prepare(walk).await?;
                    }
                    let (printed, walked) = self.print_share_chunk(&chunk, &mut records, printing);
                    let written = walked.and_then(|()| Ok(printing.printer.out.flush()?));
                    if written.is_ok() {
                        for offset in printed {
                            // After the end of the session, records are delivered again, and an
                            // acknowledgement has no effect.
                            let _ = consumer.acknowledge(&chunk, offset, offset, with);
                        }
                    }
                    let _ = consumer.acknowledge_chunk(&chunk, AcknowledgeType::Release);
                    written?;
                    last = Instant::now();
                }
                SharePollEvent::NotAcknowledged(_, error) => tracing::warn!("{}", not_acknowledged(error)),
                SharePollEvent::Nothing if timeout.is_some_and(|timeout| last.elapsed() >= timeout) => break,
                SharePollEvent::Nothing => {}
            }
        }
        Ok(())
    }

    /// Prints the records of a chunk, and returns the offsets of the printed records.
    fn print_share_chunk(
        &self,
        chunk: &ShareChunk,
        records: &mut u64,
        printing: &mut ChunkPrinter<'_>,
    ) -> (Vec<Offset>, anyhow::Result<()>) {
        let (mut offsets, mut written) = (Vec::new(), Ok(()));
        let ChunkPrinter { buffer, printer } = printing;
        let walked = chunk.walk(buffer, |header, record, delivery_count| {
            if *records == 0 {
                return ControlFlow::Break(());
            }
            *records -= 1;
            offsets.push(record.offset);
            written = printer
                .print(&self.record_format, &chunk.at, (header, record), Some(delivery_count))
                .map(drop);
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (offsets, walked.map_err(anyhow::Error::from).and_then(|()| Ok(written?)))
    }
}

fn not_acknowledged(error: ClientError) -> anyhow::Error {
    anyhow::anyhow!("Printed records may be delivered again: {error}")
}
