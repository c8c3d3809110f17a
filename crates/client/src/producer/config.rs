//! The producer's settings, by Kafka's names and with Kafka's defaults, and their dependencies.

use std::time::Duration;

use thalweg_dial::{ConnectionOptions, InvalidSetting, Properties};
use thalweg_record::Compression;

/// Maximum requests in flight for which a broker can detect duplicates: it remembers five batches per
/// producer.
const IDEMPOTENT_IN_FLIGHT_MAX: usize = 5;

/// Acknowledgements required for a record (`acks`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// `acks=0`: written to the socket.
    None,
    /// `acks=1`: acknowledged by the leader.
    Leader,
    /// `acks=all`: replicated to all in-sync replicas.
    All,
}

impl Acks {
    /// The value of acks in a request.
    pub fn code(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// Settings of a [`Producer`](crate::Producer).
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// `acks`.
    pub acks: Acks,
    /// `batch.size`: bytes after which a batch is full. A single record may be larger.
    pub batch_bytes: usize,
    /// `batch.num.messages`, a name of librdkafka: records after which a batch is full.
    pub batch_records_max: i32,
    /// `linger.ms`: time that a batch waits for more records.
    pub linger: Duration,
    /// `buffer.memory`: bytes of batches that wait or are in flight. The caller waits if it is used up.
    pub buffer_bytes: usize,
    /// `max.in.flight.requests.per.connection`.
    pub in_flight_max: usize,
    /// `max.request.size`: bytes of batches in one request, and of a record.
    pub request_bytes_max: usize,
    /// `compression.type`.
    pub compression: Compression,
    /// `compression.gzip.level`, `compression.zstd.level`.
    pub compression_level: Option<i32>,
    /// `enable.idempotence`: retries neither duplicate nor reorder.
    pub idempotence: bool,
    /// `transactional.id`: the name under which one producer at a time writes transactions. Requires
    /// idempotence.
    pub transactional_id: Option<String>,
    /// `transaction.timeout.ms`: the coordinator aborts transactions that are open for longer, and fences the
    /// producer.
    pub transaction_timeout: Duration,
    /// `retries`.
    pub retries: u32,
    /// `retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `delivery.timeout.ms`: maximum time from a batch's first record to its outcome.
    pub delivery_timeout: Duration,
    /// `max.block.ms`: maximum time that a send waits for room, a topic for its metadata, and a transaction
    /// call for its outcome.
    pub max_block: Duration,
    /// `metadata.max.age.ms`.
    pub metadata_max_age: Duration,
    /// `partitioner.ignore.keys`: records with keys are partitioned like records without.
    pub ignore_keys: bool,
    /// Client id, timeouts, security.
    pub connection: ConnectionOptions,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            acks: Acks::All,
            batch_bytes: 16 << 10,
            batch_records_max: i32::MAX,
            linger: Duration::from_millis(5),
            buffer_bytes: 32 << 20,
            in_flight_max: 5,
            request_bytes_max: 1 << 20,
            compression: Compression::None,
            compression_level: None,
            idempotence: true,
            transactional_id: None,
            transaction_timeout: Duration::from_secs(60),
            retries: u32::MAX,
            retry_backoff: Duration::from_millis(100),
            delivery_timeout: Duration::from_secs(120),
            max_block: Duration::from_secs(60),
            metadata_max_age: Duration::from_secs(300),
            ignore_keys: false,
            connection: ConnectionOptions::default(),
        }
    }
}

impl ProducerConfig {
    /// Takes the producer's settings from `properties`; unknown properties remain.
    pub fn take(properties: &mut Properties) -> Result<ProducerConfig, InvalidSetting> {
        // Serializers and interceptors are Java classes; this producer takes bytes.
        for java in ["key.serializer", "value.serializer"] {
            properties.take(java);
        }
        let default = ProducerConfig::default();
        let wants_idempotence = properties.get("enable.idempotence").is_some();
        let int_max = i32::MAX.unsigned_abs() as usize;
        let compression = take_compression(properties)?;
        let mut config = ProducerConfig {
            acks: take_acks(properties)?,
            batch_bytes: properties.take_number("batch.size", default.batch_bytes, 0, int_max)?,
            batch_records_max: properties.take_number("batch.num.messages", i32::MAX, 1, i32::MAX)?,
            linger: properties.take_ms("linger.ms", 5)?,
            buffer_bytes: properties.take_number("buffer.memory", default.buffer_bytes, 1, usize::MAX)?,
            in_flight_max: properties.take_number(
                "max.in.flight.requests.per.connection",
                default.in_flight_max,
                1,
                int_max,
            )?,
            request_bytes_max: properties.take_number(
                "max.request.size",
                default.request_bytes_max,
                0,
                int_max,
            )?,
            compression,
            compression_level: take_compression_level(properties, compression)?,
            idempotence: properties.take_bool("enable.idempotence", default.idempotence)?,
            transactional_id: properties.take("transactional.id").filter(|id| !id.is_empty()),
            transaction_timeout: properties.take_ms("transaction.timeout.ms", 60_000)?,
            retries: properties.take_number(
                "retries",
                i32::MAX.unsigned_abs(),
                0,
                i32::MAX.unsigned_abs(),
            )?,
            retry_backoff: properties.take_ms("retry.backoff.ms", 100)?,
            delivery_timeout: properties.take_ms("delivery.timeout.ms", 120_000)?,
            max_block: properties.take_ms("max.block.ms", 60_000)?,
            metadata_max_age: properties.take_ms("metadata.max.age.ms", 300_000)?,
            ignore_keys: properties.take_bool("partitioner.ignore.keys", default.ignore_keys)?,
            connection: ConnectionOptions::take(properties, "producer")?,
        };
        if config.transactional_id.is_some() && !config.idempotence {
            let (key, value) = ("enable.idempotence".to_owned(), "false".to_owned());
            return Err(InvalidSetting { key, value, expected: "true, with transactional.id,".to_owned() });
        }
        config.resolve_idempotence(wants_idempotence || config.transactional_id.is_some())?;
        Ok(config)
    }

    /// Applies Kafka's rules: idempotence, and with it transactions, need `acks=all`, retries, and at most
    /// five requests in flight. Otherwise idempotence is disabled if it was not set explicitly; if it was,
    /// the conflicting setting is an error.
    fn resolve_idempotence(&mut self, wanted: bool) -> Result<(), InvalidSetting> {
        if !self.idempotence {
            return Ok(());
        }
        let conflict = if self.acks != Acks::All {
            Some((
                "acks",
                self.acks.code().to_string(),
                "all, with enable.idempotence=true or transactional.id,",
            ))
        } else if self.retries == 0 {
            Some((
                "retries",
                "0".to_owned(),
                "more than 0, with enable.idempotence=true or transactional.id,",
            ))
        } else if self.in_flight_max > IDEMPOTENT_IN_FLIGHT_MAX {
            let key = "max.in.flight.requests.per.connection";
            Some((
                key,
                self.in_flight_max.to_string(),
                "at most 5, with enable.idempotence=true or transactional.id,",
            ))
        } else {
            None
        };
        match conflict {
            Some((key, value, expected)) if wanted => {
                Err(InvalidSetting { key: key.to_owned(), value, expected: expected.to_owned() })
            }
            Some(_) => {
                self.idempotence = false;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn take_acks(properties: &mut Properties) -> Result<Acks, InvalidSetting> {
    let choices = [("all", Acks::All), ("-1", Acks::All), ("0", Acks::None), ("1", Acks::Leader)];
    properties.take_choice("acks", Acks::All, &choices)
}

fn take_compression(properties: &mut Properties) -> Result<Compression, InvalidSetting> {
    let choices =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
            .map(|codec| (codec.name(), codec));
    properties.take_choice("compression.type", Compression::None, &choices)
}

fn take_compression_level(
    properties: &mut Properties,
    compression: Compression,
) -> Result<Option<i32>, InvalidSetting> {
    let gzip = properties.take_number("compression.gzip.level", -1, -1, 9)?;
    let lz4 = properties.take_number("compression.lz4.level", 9, 1, 17)?;
    let zstd = properties.take_number("compression.zstd.level", 3, -131_072, 22)?;
    Ok(match compression {
        Compression::Gzip if gzip >= 0 => Some(gzip),
        Compression::Lz4 => Some(lz4),
        Compression::Zstd => Some(zstd),
        Compression::None | Compression::Snappy | Compression::Gzip => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(settings: &[&str]) -> Result<ProducerConfig, InvalidSetting> {
        let mut properties = Properties::new();
        for setting in settings {
            properties.set_text(setting).expect("key=value");
        }
        ProducerConfig::take(&mut properties)
    }

    #[test]
    fn librdkafkas_names_set_what_kafkas_set() {
        let mut properties = Properties::parse(
            "metadata.broker.list=a:1\nqueue.buffering.max.ms=7\nmessage.timeout.ms=9000\nqueue.buffering.max.kbytes=2048\n\
             compression.codec=zstd\ncompression.level=5\nmax.in.flight=3\nbatch.num.messages=10000\npartitioner=murmur2_random",
        );
        properties.rename_librdkafka().expect("names of librdkafka");
        assert_eq!(properties.take_bootstrap_servers().expect("an address"), ["a:1"]);
        let config = ProducerConfig::take(&mut properties).expect("right");
        assert_eq!((config.linger.as_millis(), config.delivery_timeout.as_millis()), (7, 9000));
        assert_eq!((config.buffer_bytes, config.in_flight_max), (2 << 20, 3));
        assert_eq!((config.compression.name(), config.compression_level), ("zstd", Some(5)));
        assert_eq!(config.batch_records_max, 10_000);
        assert_eq!(properties.rest().count(), 0);
    }

    #[test]
    fn idempotence_gives_way_unless_it_was_requested() {
        assert!(take(&[]).expect("defaults").idempotence);
        assert!(!take(&["acks=1"]).expect("it gives way").idempotence);
        assert!(!take(&["max.in.flight.requests.per.connection=6"]).expect("it gives way").idempotence);
        for wrong in ["acks=1", "retries=0", "max.in.flight.requests.per.connection=6"] {
            let error = take(&["enable.idempotence=true", wrong]).expect_err("a conflict");
            assert!(wrong.starts_with(&error.key), "{error}");
        }
    }

    #[test]
    fn transactions_need_idempotence() {
        let config = take(&["transactional.id=t", "transaction.timeout.ms=5000"]).expect("right");
        assert_eq!(config.transactional_id.as_deref(), Some("t"));
        assert_eq!(config.transaction_timeout, Duration::from_secs(5));
        for wrong in ["acks=1", "retries=0", "enable.idempotence=false"] {
            let error = take(&["transactional.id=t", wrong]).expect_err("a conflict");
            assert!(wrong.starts_with(&error.key), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_served_is_refused_by_name() {
        for wrong in ["security.protocol=TLS", "acks=2", "compression.type=brotli"] {
            let error = take(&[wrong]).expect_err("a refusal");
            assert!(wrong.starts_with(&error.key), "{error}");
        }
    }
}
