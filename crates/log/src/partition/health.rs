//! Whether a log can be written and read, and what was already logged about that.
//!
//! Owns: the reason why a log takes no more batches, and the last failures, so that each is logged once. Refuses:
//! judging a failure: who met it knows whether the log can go on.

use std::sync::Arc;

use thalweg_record::Offset;

use super::PartitionLog;
use super::append::AppendInfo;
use super::error::AppendError;
use super::examine::Oddities;
use crate::scan::CorruptBatch;

/// The health of one log.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Why nothing is appended any more.
    pub(super) poison: Option<Arc<str>>,
    /// Anomalies that recovery found in the batches.
    pub(super) oddities: Oddities,
    /// The segment and the position of the damaged batch that was logged last.
    noted_damage: Option<(Offset, u64)>,
    /// Why the last append failed, if it did.
    failed_append: Option<Box<str>>,
}

impl Health {
    /// Of a log in which recovery found these anomalies.
    pub(super) fn new(oddities: Oddities) -> Health {
        Health { oddities, ..Health::default() }
    }
}

impl PartitionLog {
    /// Why the log takes no more batches, when it does not.
    pub fn poison(&self) -> Option<&str> {
        self.health.poison.as_deref()
    }

    /// Refuses all further appends; what is in the log is still served.
    pub(super) fn set_poison(&mut self, reason: String) {
        if self.health.poison.is_none() {
            if let Some(state) = &self.state {
                state.fail(&reason);
            }
            self.refuse_appends(reason);
        }
    }

    /// As [`PartitionLog::set_poison`], where the disk is not to blame: other logs of the directory go on.
    pub(super) fn refuse_appends(&mut self, reason: String) {
        if self.health.poison.is_none() {
            tracing::error!(partition = %self.name, dir = %self.home.dir.display(), reason, "Log takes no more batches");
            self.health.poison = Some(reason.into());
        }
    }

    /// Logs why a log that is not given up takes no batch, once for a row of failures: its clients are told no more than a code.
    pub(super) fn note_outcome(&mut self, appended: &Result<AppendInfo, AppendError>) {
        match appended {
            Ok(_) => self.health.failed_append = None,
            Err(AppendError::Log(error)) if self.health.poison.is_none() => {
                let reason = error.to_string();
                if self.health.failed_append.as_deref() != Some(&reason) {
                    tracing::error!(partition = %self.name, reason, "Batches cannot be appended");
                    self.health.failed_append = Some(reason.into());
                }
            }
            Err(_) => {}
        }
    }

    /// Logs damage in a batch, once.
    pub(super) fn note_damage(&mut self, segment: Offset, fault: &CorruptBatch) {
        if self.health.noted_damage == Some((segment, fault.position)) {
            return;
        }
        self.health.noted_damage = Some((segment, fault.position));
        tracing::error!(
            partition = %self.name, segment = segment.0, position = fault.position, %fault,
            "Batch is damaged and is not served"
        );
    }
}
