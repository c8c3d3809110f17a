//! Whether a log can be written and read, and the failures that were already logged.
//!
//! Owns: the reason why a log is closed for appends, and the last failures, so that each is logged once. Refuses:
//! judging a failure: the failed operation knows whether the log can continue.

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
    /// Why the log is closed for appends, if it is.
    pub(super) poison: Option<Arc<str>>,
    /// Gaps and damage that recovery found.
    pub(super) oddities: Oddities,
    /// The segment and the position of the damaged batch that was logged last.
    noted_damage: Option<(Offset, u64)>,
    /// Why the last append failed, if it did.
    failed_append: Option<Box<str>>,
}

impl Health {
    /// The health of a log in which recovery found these anomalies.
    pub(super) fn new(oddities: Oddities) -> Health {
        Health { oddities, ..Health::default() }
    }
}

impl PartitionLog {
    /// Why the log is closed for appends, if it is.
    pub fn poison(&self) -> Option<&str> {
        self.health.poison.as_deref()
    }

    /// Why nothing is appended: the log is closed, or its directory is offline.
    pub fn failure(&self) -> Option<Arc<str>> {
        let offline = || self.state.as_ref().and_then(|state| state.offline());
        self.health.poison.clone().or_else(offline)
    }

    /// Refuses all further appends; the log is still readable.
    pub(super) fn set_poison(&mut self, reason: String) {
        if self.health.poison.is_none() {
            if let Some(state) = &self.state {
                state.fail(&reason);
            }
            self.refuse_appends(reason);
        }
    }

    /// As [`PartitionLog::set_poison`], for causes other than the disk: other logs of the directory continue.
    pub(super) fn refuse_appends(&mut self, reason: String) {
        if self.health.poison.is_none() {
            tracing::error!(partition = %self.name, dir = %self.home.dir.display(), reason, "Log is closed for appends after a failure");
            self.health.poison = Some(reason.into());
        }
    }

    /// Logs why a healthy log refuses appends, once per series of failures: clients only get an error code.
    pub(super) fn note_outcome(&mut self, appended: &Result<AppendInfo, AppendError>) {
        match appended {
            Ok(_) => self.health.failed_append = None,
            Err(AppendError::Log(error)) if self.health.poison.is_none() => {
                let reason = error.to_string();
                if self.health.failed_append.as_deref() != Some(&reason) {
                    tracing::error!(partition = %self.name, reason, "Failed to append batches");
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
            "Batch is damaged and cannot be served"
        );
    }
}
