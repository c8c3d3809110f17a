//! `e2e-latency`: one record at a time from a producer through the cluster to a consumer.
//!
//! Kafka's tool sets `fetch.max.wait.ms=0` and polls. With this tool, a fetch waits at the broker, as in
//! applications, so that the measurement includes the wake-up by the broker; `--command-config` can change
//! that.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use thalweg_client::{
    Acks, Cluster, Consumer, ConsumerConfig, Delivery, DeliveryError, OffsetSpec, PollEvent, Producer,
    ProducerConfig, ProducerRecord, RefusedRequest, StartAt, TopicPartition, TopicRef,
};
use thalweg_record::{DecompressBuffer, Header};
use thalweg_wire::request::CreateTopicsRequest;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use tokio::time::Instant;

use super::bar::DoneCount;
use super::output::PerfOutput;
use super::{PerfError, settings, wall_clock_ms};
use crate::BoxFuture;

const POLL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of progress lines, in records.
const RECORDS_PER_LINE: u64 = 1000;

/// Measure the latency of records from producer to consumer.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Options and output are those of Kafka's kafka-e2e-latency.

Example:
  thalweg e2e-latency --bootstrap-server localhost:9092 --topic e2e \\
      --num-records 10000 --producer-acks 1 --record-size 100")]
pub struct EndToEndLatency {
    /// The bootstrap servers [default: $THALWEG_BOOTSTRAP_SERVER, or localhost:9092].
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: Option<String>,
    /// The topic to use. It is created with one partition if it does not exist.
    #[arg(long, required_unless_present = "positional")]
    topic: Option<String>,
    /// The number of records to send.
    #[arg(long, value_name = "COUNT", required_unless_present = "positional",
        value_parser = clap::value_parser!(u64).range(1..))]
    num_records: Option<u64>,
    /// The required acknowledgements: the leader (1), or all in-sync replicas.
    #[arg(long, value_name = "ACKS", required_unless_present = "positional", value_parser = ["1", "all"])]
    producer_acks: Option<String>,
    /// The size of each record's value, in bytes.
    #[arg(long, value_name = "BYTES", required_unless_present = "positional")]
    record_size: Option<u32>,
    /// The size of each record's key, in bytes; records have no key without it.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_key_size: u32,
    /// The size of the key of each header, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_header_key_size: u32,
    /// The size of the value of each header, in bytes; -1 for null.
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..))]
    record_header_size: i32,
    /// The number of headers of each record.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    num_headers: u32,
    /// A properties file with settings for producer and consumer.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// Print one JSON object at the end instead of lines.
    #[arg(long)]
    json: bool,
    /// (DEPRECATED) Bootstrap server, topic, number of records, acks, record size, and optionally a
    /// properties file.
    #[arg(hide = true, conflicts_with_all = ["bootstrap_server", "topic", "num_records", "producer_acks", "record_size",
        "command_config"])]
    positional: Vec<String>,
}

/// The parameters, from options or positional arguments.
#[derive(Debug)]
struct Plan {
    bootstrap_server: Option<String>,
    topic: String,
    num_records: u64,
    acks: Acks,
    record_size: u32,
    command_config: Option<PathBuf>,
}

/// The contents of a record.
struct Message {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

struct Link {
    producer: Producer,
    topic: TopicRef,
    consumer: Consumer,
    failure: Arc<Mutex<Option<DeliveryError>>>,
    buffer: DecompressBuffer,
}

impl EndToEndLatency {
    /// True if to print JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Runs the test.
    pub fn run<'a>(&'a self, output: &'a PerfOutput) -> BoxFuture<'a, Result<(), PerfError>> {
        Box::pin(self.perform(output))
    }

    async fn perform(&self, output: &PerfOutput) -> Result<(), PerfError> {
        let plan = self.plan(output)?;
        let mut link = self.connect(&plan, output).await?;
        let mut random = SmallRng::seed_from_u64(0);
        let count = usize::try_from(plan.num_records).unwrap_or(usize::MAX);
        let mut latencies: Vec<Duration> = Vec::with_capacity(count.min(1 << 20));
        let done = DoneCount::default();
        let bar = output.bar(plan.num_records, &done);
        for n in 0..plan.num_records {
            done.set(n);
            let message = self.message(&plan, &mut random);
            let elapsed = link.send_and_receive(&message).await?;
            if n % RECORDS_PER_LINE == 0 {
                output.progress(&format!("{n}\t{:?}", elapsed.as_nanos() as f64 / 1_000_000.0))?;
            }
            latencies.push(elapsed);
        }
        drop(bar);
        self.print(&plan, latencies, output)?;
        link.producer.close().await;
        link.consumer.close().await?;
        Ok(())
    }

    fn plan(&self, output: &PerfOutput) -> Result<Plan, PerfError> {
        if !self.positional.is_empty() {
            return positional(&self.positional, output);
        }
        let missing = || {
            PerfError::Usage(
                "--topic, --num-records, --producer-acks and --record-size are needed".to_owned(),
            )
        };
        Ok(Plan {
            bootstrap_server: self.bootstrap_server.clone(),
            topic: self.topic.clone().ok_or_else(missing)?,
            num_records: self.num_records.ok_or_else(missing)?,
            acks: acks(self.producer_acks.as_deref().ok_or_else(missing)?)?,
            record_size: self.record_size.ok_or_else(missing)?,
            command_config: self.command_config.clone(),
        })
    }

    async fn connect(&self, plan: &Plan, output: &PerfOutput) -> Result<Link, PerfError> {
        let file = plan.command_config.as_deref();
        let mut properties = settings::gather(file, &[], plan.bootstrap_server.as_deref())?;
        let bootstrap = properties.take_bootstrap_servers()?;
        let mut of_consumer = properties.clone();
        let producer_config = ProducerConfig {
            acks: plan.acks,
            idempotence: plan.acks == Acks::All,
            linger: Duration::ZERO,
            ..ProducerConfig::take(&mut properties)?
        };
        let consumer_config = ConsumerConfig { auto_commit: None, ..ConsumerConfig::take(&mut of_consumer)? };
        let cluster = Cluster::connect(&bootstrap, &producer_config.connection).await?;
        create_topic(&plan.topic, &cluster, output).await?;
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        let report = move |delivery: &Delivery<'_>| {
            if let Err(error) = delivery.result {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
            }
        };
        let mut producer = Producer::new(cluster, producer_config, report);
        let topic = producer.topic(&plan.topic).await?;
        let partitions = producer.partition_count(topic);
        let mut consumer = Consumer::connect(&bootstrap, consumer_config).await?;
        let all = (0..partitions).map(|partition| {
            let partition = i32::try_from(partition).expect("partition indexes are 32 bits wide");
            (TopicPartition::new(plan.topic.as_str(), partition), StartAt::Spec(OffsetSpec::Latest))
        });
        consumer.assign(all.collect()).await?;
        Ok(Link { producer, topic, consumer, failure, buffer: DecompressBuffer::default() })
    }

    /// Each part is filled with one random letter, as in Kafka's tool.
    fn message(&self, plan: &Plan, random: &mut SmallRng) -> Message {
        let mut fill = |size: u32| vec![random.random_range(b'A'..=b'Z'); size as usize];
        Message {
            key: (self.record_key_size > 0).then(|| fill(self.record_key_size)),
            value: fill(plan.record_size),
            headers: (0..self.num_headers)
                .map(|_| {
                    (
                        fill(self.record_header_key_size),
                        u32::try_from(self.record_header_size).ok().map(&mut fill),
                    )
                })
                .collect(),
        }
    }

    fn print(&self, plan: &Plan, mut latencies: Vec<Duration>, output: &PerfOutput) -> Result<(), PerfError> {
        let total: Duration = latencies.iter().sum();
        let avg_ms = total.as_secs_f64() * 1000.0 / latencies.len() as f64;
        latencies.sort_unstable();
        let at = |permille: usize| latencies[latencies.len() * permille / 1000];
        if self.json {
            let us = |latency: Duration| latency.as_nanos() as f64 / 1000.0;
            let result = json!({
                "tool": "e2e-latency",
                "topic": plan.topic,
                "records": plan.num_records,
                "record_size": plan.record_size,
                "acks": if plan.acks == Acks::All { "all" } else { "1" },
                "latency_us": {
                    "avg": avg_ms * 1000.0,
                    "p50": us(at(500)),
                    "p99": us(at(990)),
                    "p99.9": us(at(999)),
                    "max": us(*latencies.last().expect("at least one record was sent")),
                },
            });
            output.result(&result.to_string())?;
        } else {
            output.result(&format!("Avg latency: {avg_ms:.4} ms"))?;
            output.result(&format!(
                "Percentiles: 50th = {}, 99th = {}, 99.9th = {}",
                at(500).as_millis(),
                at(990).as_millis(),
                at(999).as_millis()
            ))?;
        }
        Ok(())
    }
}

async fn create_topic(topic: &str, cluster: &Cluster, output: &PerfOutput) -> Result<(), PerfError> {
    let metadata = cluster.refresh_all().await?;
    if metadata.topics.contains_key(topic) {
        return Ok(());
    }
    output.progress(&format!(
        "Topic \"{topic}\" does not exist. Will create topic with 1 partition(s) and replication factor = 1"
    ))?;
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            ..CreatableTopic::default()
        }],
        timeout_ms: 30_000,
        ..CreateTopicsRequest::default()
    };
    let response = cluster.send_controller(&request).await?;
    for created in response.topics {
        RefusedRequest::check(created.error_code, created.error_message.as_deref(), || {
            format!("Creating topic {topic}")
        })
        .map_err(thalweg_client::ClientError::from)?;
    }
    Ok(())
}

fn acks(text: &str) -> Result<Acks, PerfError> {
    match text {
        "1" => Ok(Acks::Leader),
        "all" => Ok(Acks::All),
        _ => Err(PerfError::Usage(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use '1' or \
             'all'."
                .to_owned(),
        )),
    }
}

/// The positional arguments of older versions of Kafka's tool.
fn positional(arguments: &[String], output: &PerfOutput) -> Result<Plan, PerfError> {
    let [servers, topic, records, acks_text, size, rest @ ..] = arguments else {
        return Err(wrong_count(arguments.len()));
    };
    if rest.len() > 1 {
        return Err(wrong_count(arguments.len()));
    }
    output.progress(
        "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named \
         arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config",
    )?;
    let number = |name: &str, text: &str| {
        text.parse::<u32>()
            .map_err(|_| PerfError::Usage(format!("Value for {name} must be a positive integer.")))
    };
    Ok(Plan {
        bootstrap_server: Some(servers.clone()),
        topic: topic.clone(),
        num_records: u64::from(number("--num-records", records)?.max(1)),
        acks: acks(acks_text)?,
        record_size: number("--record-size", size)?,
        command_config: rest.first().map(PathBuf::from),
    })
}

fn wrong_count(count: usize) -> PerfError {
    PerfError::Usage(format!(
        "Invalid number of arguments. Expected 5 or 6 positional arguments, but got {count}. Usage: bootstrap-server topic \
         num-records producer-acks record-size [optional] command-config"
    ))
}

impl Link {
    async fn send_and_receive(&mut self, message: &Message) -> Result<Duration, PerfError> {
        let headers: Vec<Header<'_>> = message
            .headers
            .iter()
            .map(|(key, value)| Header { key: key.as_slice(), value: value.as_deref() })
            .collect();
        let timestamp = wall_clock_ms();
        let begin = Instant::now();
        let record = ProducerRecord {
            topic: self.topic,
            partition: None,
            timestamp,
            key: message.key.as_deref(),
            value: Some(&message.value),
            headers: &headers,
            sent_at: begin,
            number: 0,
        };
        self.producer.send(&record).await?;
        self.producer.flush().await;
        if let Some(first) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(PerfError::NotStored { failed: 1, records: 1, first });
        }
        let chunk = match self.consumer.poll(POLL_TIMEOUT).await? {
            PollEvent::Chunk(chunk) => chunk,
            _ => {
                let ms = POLL_TIMEOUT.as_millis();
                let problem = format!("poll() timed out before finding a result (timeout:[{ms}ms])");
                return Err(PerfError::Mismatch(problem));
            }
        };
        let elapsed = begin.elapsed();
        let (mut records, mut same) = (0, true);
        chunk.for_each(&mut self.buffer, |record| {
            records += 1;
            same &= record.value == Some(&message.value)
                && record.key == message.key.as_deref()
                && record.headers.eq(headers.iter().copied());
            ControlFlow::Continue(())
        })?;
        match (records, same) {
            (1, true) => Ok(elapsed),
            (1, false) => {
                Err(PerfError::Mismatch("The message read did not match the message sent".to_owned()))
            }
            (records, _) => Err(PerfError::Mismatch(format!(
                "Only one result was expected during this test. We found [{records}]"
            ))),
        }
    }
}
