//! Evidence that acknowledged records are in the log: offsets and replicas as reported by the brokers, and
//! the records read back.
//!
//! Contradictions to the claim that nothing was lost, and obstacles to making it, are in [`Evidence::faults`]
//! as text. The topics must be the run's own: foreign records are a fault, too.

mod check;
mod claims;
mod log;
mod policy;
mod pulsar;
mod watch;

pub(crate) use log::replica_bytes;
pub use pulsar::{PULSAR_SUBSCRIPTION, PulsarClaim, collect_pulsar};
pub use watch::{ReplicaObservations, Watch};

use std::time::Duration;

use thalweg_client::{ClientError, Cluster, ConsumerError};

use crate::result::Evidence;
use crate::target::AdminFailure;
use crate::worker::{Report, VerifyError};
use crate::workload::RecordSpec;

/// The claims of a repetition.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The repetition's cluster.
    pub cluster: &'a Cluster,
    /// The repetition's topics.
    pub topics: &'a [String],
    /// The requested number of replicas.
    pub replication_factor: u16,
    /// The producers' reports.
    pub producers: &'a [Report],
    /// The consumers' reports, if any, for comparison only: records are read back independently.
    pub consumers: &'a [Report],
    /// The specification of sent records.
    pub records: &'a RecordSpec,
    /// The seed of sent records.
    pub seed: u64,
    /// True if the producers promise the order of a partition's records.
    pub keeps_order: bool,
    /// The extent of reading back.
    pub read_back: &'a ReadBack,
    /// Observations of the replicas during the run.
    pub watched: &'a ReplicaObservations,
}

/// The extent of reading records back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadBack {
    /// Nothing is read, for this reason.
    No(String),
    /// Records are read for at most this time.
    Within(Duration),
    /// All records are read.
    Whole,
}

impl Claim<'_> {
    fn acknowledged(&self) -> u64 {
        self.producers.iter().map(|report| report.acknowledged).sum()
    }

    fn sent(&self) -> u64 {
        self.producers.iter().map(|report| report.sent).sum()
    }
}

/// Failed to gather evidence.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The cluster does not answer, or refuses a request.
    #[error("Failed to gather evidence: {0}")]
    Client(#[from] ClientError),
    /// Failed to read records back.
    #[error("Failed to read the records back: {0}")]
    Consumer(#[from] ConsumerError),
    /// The admin API of a cluster of Pulsar does not answer, or refuses a request.
    #[error("Failed to gather evidence: {0}")]
    PulsarAdmin(#[from] AdminFailure),
    /// A cluster of Pulsar does not answer, or refuses a request.
    #[error("Failed to gather evidence: {0}")]
    Pulsar(#[from] Box<thalweg_pulsar::PulsarError>),
    /// Failed to read records of Pulsar back.
    #[error("Failed to read the records back: {0}")]
    PulsarConsumer(#[from] thalweg_pulsar::ConsumeError),
    /// Failed to compare records.
    #[error("Failed to check the records: {0}")]
    Verify(#[from] VerifyError),
    /// The reading thread ended.
    #[error("Failed to run the thread that reads the records back: {0}")]
    Thread(#[source] std::io::Error),
}

/// Reading back stalled; the text of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Reading back has stalled: no record for {waited_s} s, with {left} partitions unfinished, {first} first"
)]
pub struct ReadStalled {
    /// Time without a record.
    pub waited_s: u64,
    /// Number of unfinished partitions.
    pub left: usize,
    /// An unfinished partition.
    pub first: thalweg_client::TopicPartition,
}

/// Gathers evidence after the producers have ended. Waits some seconds for lagging replicas.
pub async fn collect(claim: Claim<'_>) -> Result<Evidence, EvidenceError> {
    let found = log::await_agreement(&claim).await?;
    let policies = policy::read(claim.cluster, claim.topics).await?;
    let in_log: u64 = found.iter().map(log::records).sum();
    let replicas = found.iter().flat_map(|partition| &partition.replicas);
    let mut evidence = Evidence {
        acknowledged: claim.acknowledged(),
        in_log,
        bytes_on_disk: replicas.map(|replica| replica.bytes).sum(),
        // Without an observation during the run, use the current state.
        in_sync_replicas_min: claim.watched.in_sync_replicas_min.unwrap_or_else(|| log::in_sync_min(&found)),
        replication_factor: claim.replication_factor,
        fsync_policy: policies.fsync.clone(),
        partitions: found,
        replicas: None,
        check: None,
        not_read_back: None,
        faults: Vec::new(),
    };
    let most = match claim.read_back {
        ReadBack::No(why) => {
            evidence.not_read_back = Some(why.clone());
            claims::judge(&claim, &policies, &mut evidence);
            return Ok(evidence);
        }
        ReadBack::Within(most) => Some(*most),
        ReadBack::Whole => None,
    };
    let (checked, mut faults) = check::read_back(&claim, &evidence.partitions, most).await?;
    if let (false, Some(most)) = (checked.whole, most) {
        evidence.not_read_back = Some(check::partly_read(&checked, in_log, most));
    }
    evidence.check = Some(checked);
    evidence.faults.append(&mut faults);
    claims::judge(&claim, &policies, &mut evidence);
    Ok(evidence)
}
