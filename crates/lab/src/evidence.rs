//! Proof that what was acknowledged is in the log: offsets and replicas as the brokers tell, and the records themselves,
//! read back.
//!
//! It claims nothing that it has not seen: what contradicts the claim that nothing was lost, and what keeps it from being
//! made, stands in [`Evidence::faults`] in words. The topics must be the run's own: what others wrote there is a fault too.

mod check;
mod claims;
mod log;
mod policy;
mod watch;

pub use watch::{Watch, Watched};

use std::time::Duration;

use thalweg_client::{ClientError, Cluster, ConsumerError};

use crate::result::Evidence;
use crate::worker::{Report, VerifyError};
use crate::workload::RecordSpec;

/// What a repetition claims to have done.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The cluster that it was done to.
    pub cluster: &'a Cluster,
    /// The topics that were made for it.
    pub topics: &'a [String],
    /// The replicas that were asked for.
    pub replication_factor: u16,
    /// What the producers say.
    pub producers: &'a [Report],
    /// What the consumers say, if there were any. Evidence comes from reading everything anew; theirs is only compared.
    pub consumers: &'a [Report],
    /// What was sent.
    pub records: &'a RecordSpec,
    /// The seed of what was sent.
    pub seed: u64,
    /// How far the records are read back and checked.
    pub read_back: &'a ReadBack,
    /// What was seen of the replicas meanwhile.
    pub watched: &'a Watched,
}

/// How far records are read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadBack {
    /// Not at all, for this reason: for people.
    No(String),
    /// For so long at most.
    Within(Duration),
    /// To the last record.
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

/// The evidence cannot be gathered.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The cluster does not answer, or refuses.
    #[error("The evidence cannot be gathered: {0}")]
    Client(#[from] ClientError),
    /// The records cannot be read back.
    #[error("The records cannot be read back: {0}")]
    Consumer(#[from] ConsumerError),
    /// The records cannot be compared with what was sent.
    #[error("The records cannot be checked: {0}")]
    Verify(#[from] VerifyError),
    /// The thread that reads has ended.
    #[error("The thread that reads the records back could not be run: {0}")]
    Thread(#[source] std::io::Error),
}

/// Reading back came to no end: the words of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Reading back stands still: no record came for {waited_s} s, with {left} partitions not at their ends, {first} first"
)]
pub struct ReadStalled {
    /// How long nothing came.
    pub waited_s: u64,
    /// Partitions that were not read to their ends.
    pub left: usize,
    /// One of them.
    pub first: thalweg_client::TopicPartition,
}

/// Gathers the evidence after the producers have ended. Waits some seconds for replicas that are behind.
pub async fn collect(claim: Claim<'_>) -> Result<Evidence, EvidenceError> {
    let found = log::settled(&claim).await?;
    let policies = policy::read(claim.cluster, claim.topics).await?;
    let in_log: u64 = found.iter().map(log::records).sum();
    let replicas = found.iter().flat_map(|partition| &partition.replicas);
    let mut evidence = Evidence {
        acknowledged: claim.acknowledged(),
        in_log,
        bytes_on_disk: replicas.map(|replica| replica.bytes).sum(),
        // Without a look in between, what is seen now is all that is known.
        in_sync_replicas_min: claim.watched.in_sync_replicas_min.unwrap_or_else(|| log::in_sync_min(&found)),
        replication_factor: claim.replication_factor,
        fsync_policy: policies.fsync.clone(),
        partitions: found,
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
        let share = checked.read as f64 / in_log.max(1) as f64 * 100.0;
        evidence.not_read_back = Some(format!(
            "{share:.0} % of the records were read back in {:.1} s: verify = \"whole\" reads all",
            most.as_secs_f64()
        ));
    }
    evidence.check = Some(checked);
    evidence.faults.append(&mut faults);
    claims::judge(&claim, &policies, &mut evidence);
    Ok(evidence)
}
