//! Directories, batches and logs for the tests.

use std::cell::RefCell;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use thalweg_log::disk::Disk;
use thalweg_log::{
    AppendInfo, AppendOptions, AppendOrigin, Clock, CompactionJob, CompactionOutcome, CompactionStats, Home,
    LogConfig, OpenOptions, PartitionLog, TopicPartition, Uuid,
};
use thalweg_record::{
    BatchBuilder, BatchHeader, BatchOptions, Compression, ControlRecordType, LeaderEpoch, Offset,
    ProducerEpoch, ProducerId, batches,
};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The start time of tests.
pub const NOW_MS: i64 = 1_700_000_000_000;

/// A fresh directory, removed when dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        let path = std::env::temp_dir().join(format!("thalweg-log-it-{}", Uuid::random()));
        Disk::real().create_dir(&path).expect("the temporary directory is writable");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = Disk::real().remove_dir(&self.0);
    }
}

/// A partition in its own directory, to be opened repeatedly.
pub struct Bench {
    pub dir: TempDir,
    pub disk: Disk,
    pub clock: Clock,
    pub config: LogConfig,
}

impl Bench {
    pub fn new() -> Bench {
        Bench {
            dir: TempDir::new(),
            disk: Disk::real(),
            clock: Clock::manual(NOW_MS),
            config: LogConfig { file_delete_delay_ms: 0, ..LogConfig::default() },
        }
    }

    pub fn with(config: LogConfig) -> Bench {
        Bench { config, ..Bench::new() }
    }

    pub fn home(&self) -> Home {
        Home::new(self.disk.clone(), self.dir.path().join("t-0"))
    }

    pub fn create(&self) -> PartitionLog {
        let (name, config) = (TopicPartition::new("t", 0), Arc::new(self.config.clone()));
        PartitionLog::create(self.home(), name, Some(Uuid::random()), config, self.clock.clone())
            .expect("a partition can be created")
    }

    pub fn open(&self, options: &OpenOptions) -> PartitionLog {
        let (name, config) = (TopicPartition::new("t", 0), Arc::new(self.config.clone()));
        PartitionLog::open(self.home(), name, config, self.clock.clone(), options)
            .expect("a partition can be opened")
    }

    pub fn open_clean(&self) -> PartitionLog {
        self.open(&OpenOptions::new(true))
    }

    pub fn open_unclean(&self) -> PartitionLog {
        self.open(&OpenOptions::new(false))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home().dir.join(name)
    }

    pub fn read_file(&self, name: &str) -> Vec<u8> {
        self.disk.read(&self.file(name)).expect("the file is there")
    }

    /// Replaces a file of the partition.
    pub fn write_file(&self, name: &str, bytes: &[u8]) {
        let file = self.disk.open_or_create(&self.file(name)).expect("the file opens");
        file.set_len(0).expect("the file can be cut");
        file.write_all_at(bytes, 0).expect("the file can be written");
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.disk.list(&self.home().dir).expect("lists").into_iter().map(|listed| listed.name).collect();
        names.sort();
        names
    }
}

impl Bench {
    /// The directories with parts removed from the log.
    pub fn set_aside(&self) -> Vec<PathBuf> {
        let listed = self.disk.list(self.dir.path()).expect("lists").into_iter();
        listed
            .filter(|found| found.name.ends_with("-stray"))
            .map(|found| self.dir.path().join(found.name))
            .collect()
    }
}

/// The name of a segment's file.
pub fn log_name(base: i64) -> String {
    format!("{base:020}.log")
}

/// A batch as a producer sends it.
pub struct Spec {
    pub options: BatchOptions,
    pub records: usize,
    pub value_bytes: usize,
    pub timestamp: i64,
}

impl Spec {
    pub fn new(records: usize) -> Spec {
        Spec { options: BatchOptions::default(), records, value_bytes: 20, timestamp: NOW_MS }
    }

    pub fn value_bytes(self, value_bytes: usize) -> Spec {
        Spec { value_bytes, ..self }
    }

    pub fn timestamp(self, timestamp: i64) -> Spec {
        Spec { timestamp, ..self }
    }

    pub fn compression(mut self, compression: Compression) -> Spec {
        self.options.compression = compression;
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Spec {
        self.options.producer_id = ProducerId(id);
        self.options.producer_epoch = ProducerEpoch(epoch);
        self.options.base_sequence = sequence;
        self
    }

    pub fn transactional(mut self) -> Spec {
        self.options.transactional = true;
        self
    }

    pub fn at(mut self, base_offset: i64, leader_epoch: i32) -> Spec {
        self.options.base_offset = Offset(base_offset);
        self.options.leader_epoch = LeaderEpoch(leader_epoch);
        self
    }

    /// Records a millisecond apart, with key and value.
    pub fn build(self) -> Vec<u8> {
        let mut builder = BatchBuilder::new(self.options);
        for index in 0..self.records {
            let key = format!("key-{index}");
            let value = vec![b'a' + (index % 26) as u8; self.value_bytes];
            let timestamp = self.timestamp + index as i64;
            builder.append(timestamp, Some(key.as_bytes()), Some(&value), &[]).expect("the record fits");
        }
        builder.finish().to_vec()
    }
}

/// A batch whose header claims this many records, whose payload is not gzip, with a valid CRC.
pub fn unreadable(records: usize) -> Vec<u8> {
    let mut bytes = Spec::new(records).compression(Compression::Gzip).build();
    bytes[BatchHeader::LEN..].fill(0x77);
    let sum = thalweg_record::crc(&bytes);
    bytes[17..21].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The control batch that ends a transaction.
pub fn marker(id: i64, epoch: i16, kind: ControlRecordType, coordinator_epoch: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        transactional: true,
        control: true,
        ..BatchOptions::default()
    });
    let mut value = vec![0, 0];
    value.extend_from_slice(&coordinator_epoch.to_be_bytes());
    builder.append_control(NOW_MS, kind, &value).expect("the record fits");
    builder.finish().to_vec()
}

/// Appends a batch that must be accepted.
pub fn append(log: &mut PartitionLog, batch: &[u8]) -> AppendInfo {
    log.append_as_leader(batch, LeaderEpoch(0), AppendOptions::default()).expect("the batch is accepted")
}

/// Appends a marker as the coordinator does.
pub fn append_marker(log: &mut PartitionLog, batch: &[u8]) -> AppendInfo {
    let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
    log.append_as_leader(batch, LeaderEpoch(0), options).expect("the marker is accepted")
}

/// All bytes from `from` on to the log end, read in slices of at most `max_bytes`.
pub fn read_all(log: &mut PartitionLog, from: Offset, max_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut from = from;
    let end = log.log_end_offset();
    while let Some(slice) = log.read(from, max_bytes, end, true).expect("the offset is in the log") {
        let at = out.len();
        out.resize(at + slice.len, 0);
        let read = slice.file.read_at(&mut out[at..], slice.position).expect("the file can be read");
        assert_eq!(read, slice.len, "the slice lies within the file");
        let last =
            batches(&out[at..]).last().expect("a slice is not empty").expect("a slice has whole batches");
        assert!(last.header.next_offset() <= slice.end_offset, "the slice ends below its end offset");
        assert!(last.header.last_offset() >= from, "reading goes on");
        from = last.header.next_offset();
    }
    out
}

/// The headers of all batches in the log.
pub fn headers(log: &mut PartitionLog) -> Vec<BatchHeader> {
    let start = log.log_start_offset();
    let bytes = read_all(log, start, 1 << 20);
    batches(&bytes).map(|batch| batch.expect("whole batches").header).collect()
}

/// Plans, runs and installs a compaction, like the broker with the lock in between. `None` if there is
/// nothing to do, or if the log has changed meanwhile.
pub fn compact(log: &mut PartitionLog, now_ms: i64) -> Option<CompactionStats> {
    let job = log.plan_compaction(now_ms).expect("plans")?;
    let outcome = job.run().expect("compacts");
    take_over(log, &job, outcome)
}

/// Installs the outcome of a compaction.
pub fn take_over(
    log: &mut PartitionLog,
    job: &CompactionJob,
    outcome: CompactionOutcome,
) -> Option<CompactionStats> {
    let Some(mut swap) = log.finish_compaction(job, outcome).expect("is taken over") else {
        job.discard();
        return None;
    };
    let synced = swap.sync();
    let stats = log.complete_compaction(&mut swap, synced).expect("is on the medium");
    swap.write_checkpoint();
    Some(stats)
}

thread_local! {
    /// Lines that [`warnings_of`] takes on this thread.
    static WARNINGS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// The warnings that `work` logs on this thread, and what it returns.
pub fn warnings_of<T>(work: impl FnOnce() -> T) -> (Vec<String>, T) {
    // One subscriber for all threads: beside a subscriber of one thread, a thread without any can be the
    // first to come by a place that logs, and then `tracing` disables that place for all.
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Warnings).expect("the only one"));
    WARNINGS.set(Some(Vec::new()));
    let result = work();
    (WARNINGS.take().expect("taken once"), result)
}

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        WARNINGS.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                let mut text = String::new();
                event.record(&mut |field: &Field, value: &dyn Debug| text += &format!("{field}={value:?} "));
                lines.push(text);
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
