//! A consumer's inspection of values during the measurement: none, only the time in the stamp, or the
//! complete value. The log is checked separately after the measurement; here each inspection has its cost.

use std::sync::Arc;

use thalweg_client::TopicPartition;

use super::seen::{Checker, FOREIGN};
use super::stamp::{ExpectedValues, Stamp, VerifyError, check_size, magic};
use super::{Assignment, SeenRecords};
use crate::workload::Verification;

/// Creates inspections for a worker's clients.
#[derive(Clone, Debug)]
pub(crate) struct Inspections(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Nowhere,
    Times { magic: u32 },
    Whole(Arc<ExpectedValues>),
}

/// A client's inspection of values.
#[derive(Debug)]
pub(crate) enum Inspection {
    /// Records have no stamps.
    Nowhere,
    /// Reads the intended time from the stamp.
    Times {
        /// The magic of the run.
        magic: u32,
        /// Number of records without a stamp of this run.
        foreign: u64,
    },
    /// Compares each record with the sent one.
    Whole(Checker),
}

impl Inspections {
    /// The inspections of an assignment.
    pub(crate) fn new(assignment: &Assignment) -> Result<Inspections, VerifyError> {
        Ok(Inspections(match assignment.verify {
            Verification::Off => Kind::Nowhere,
            Verification::Bounded => {
                check_size(&assignment.records)?;
                Kind::Times { magic: magic(assignment.seed) }
            }
            Verification::Whole => {
                Kind::Whole(Arc::new(ExpectedValues::new(&assignment.records, assignment.seed)?))
            }
        }))
    }

    /// The inspection of one client.
    pub(crate) fn inspection(&self) -> Inspection {
        match &self.0 {
            Kind::Nowhere => Inspection::Nowhere,
            Kind::Times { magic } => Inspection::Times { magic: *magic, foreign: 0 },
            Kind::Whole(stamped) => Inspection::Whole(Checker::new(Arc::clone(stamped))),
        }
    }
}

impl Inspection {
    /// True if values contain their intended time.
    pub(crate) fn has_times(&self) -> bool {
        !matches!(self, Inspection::Nowhere)
    }

    /// Sets the partition of the following values.
    pub(crate) fn enter(&mut self, at: &TopicPartition) {
        if let Inspection::Whole(checker) = self {
            checker.enter(at);
        }
    }

    /// Inspects a value. Returns its intended time, if known.
    #[inline]
    pub(crate) fn see(&mut self, value: &[u8]) -> Option<u64> {
        match self {
            Inspection::Nowhere => None,
            Inspection::Times { magic, foreign } => match Stamp::read(value) {
                Some(stamp) if stamp.magic == *magic => Some(stamp.intended_us),
                Some(_) | None => {
                    *foreign += 1;
                    None
                }
            },
            Inspection::Whole(checker) => checker.see(value),
        }
    }

    /// Combines the results of all clients.
    pub(crate) fn seen(all: Vec<Inspection>) -> Vec<SeenRecords> {
        let (mut checkers, mut strange) = (Vec::new(), 0);
        for inspection in all {
            match inspection {
                Inspection::Nowhere => {}
                Inspection::Times { foreign, .. } => strange += foreign,
                Inspection::Whole(checker) => checkers.push(checker),
            }
        }
        let mut seen = Checker::seen(checkers);
        if strange > 0 {
            seen.push(SeenRecords { producer: FOREIGN, damaged: strange, ..SeenRecords::default() });
        }
        seen
    }
}
