//! A consumer's inspection of values during the measurement: none, only the time in the stamp, or the
//! complete value. The log is checked separately after the measurement; here each inspection has its cost.

use std::sync::Arc;

use thalweg_client::TopicPartition;

use super::seen::{Checker, FOREIGN};
use super::stamp::{Stamp, Stamped, VerifyError, check_size, magic};
use super::{Assignment, Seen};
use crate::workload::Verify;

/// Creates inspections for a worker's clients.
#[derive(Clone, Debug)]
pub(crate) struct Looks(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Nowhere,
    Times { magic: u32 },
    Whole(Arc<Stamped>),
}

/// A client's inspection of values.
#[derive(Debug)]
pub(crate) enum Look {
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

impl Looks {
    /// The inspections of an assignment.
    pub(crate) fn new(assignment: &Assignment) -> Result<Looks, VerifyError> {
        Ok(Looks(match assignment.verify {
            Verify::Off => Kind::Nowhere,
            Verify::Bounded => {
                check_size(&assignment.records)?;
                Kind::Times { magic: magic(assignment.seed) }
            }
            Verify::Whole => Kind::Whole(Arc::new(Stamped::new(&assignment.records, assignment.seed)?)),
        }))
    }

    /// The inspection of one client.
    pub(crate) fn look(&self) -> Look {
        match &self.0 {
            Kind::Nowhere => Look::Nowhere,
            Kind::Times { magic } => Look::Times { magic: *magic, foreign: 0 },
            Kind::Whole(stamped) => Look::Whole(Checker::new(Arc::clone(stamped))),
        }
    }
}

impl Look {
    /// True if values contain their intended time.
    pub(crate) fn tells_times(&self) -> bool {
        !matches!(self, Look::Nowhere)
    }

    /// Sets the partition of the following values.
    pub(crate) fn enter(&mut self, at: &TopicPartition) {
        if let Look::Whole(checker) = self {
            checker.enter(at);
        }
    }

    /// Inspects a value. Returns its intended time, if known.
    #[inline]
    pub(crate) fn see(&mut self, value: &[u8]) -> Option<u64> {
        match self {
            Look::Nowhere => None,
            Look::Times { magic, foreign } => match Stamp::read(value) {
                Some(stamp) if stamp.magic == *magic => Some(stamp.intended_us),
                Some(_) | None => {
                    *foreign += 1;
                    None
                }
            },
            Look::Whole(checker) => checker.see(value),
        }
    }

    /// Combines the results of all clients.
    pub(crate) fn seen(all: Vec<Look>) -> Vec<Seen> {
        let (mut checkers, mut strange) = (Vec::new(), 0);
        for look in all {
            match look {
                Look::Nowhere => {}
                Look::Times { foreign, .. } => strange += foreign,
                Look::Whole(checker) => checkers.push(checker),
            }
        }
        let mut seen = Checker::seen(checkers);
        if strange > 0 {
            seen.push(Seen { producer: FOREIGN, damaged: strange, ..Seen::default() });
        }
        seen
    }
}
