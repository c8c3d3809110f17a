//! Workers: the processes that produce and consume. A worker gets its assignment as a line of JSON on
//! standard input, waits for the start command, and reports in lines of JSON on standard output.
//!
//! - [`link`] is the worker's end of that protocol, for every driver; [`Handle`] is the lab's end.
//! - [`serve`] runs a worker: it passes the assignment to its driver.
//!
//! A worker exits when its standard input closes, so that no worker outlives the lab.

mod budget;
pub(crate) mod clock;
pub(crate) mod counts;
mod error;
mod handle;
pub(crate) mod inspections;
mod java;
#[cfg(feature = "librdkafka")]
mod librdkafka;
mod librdkafka_properties;
pub mod link;
mod pace;
mod protocol;
pub(crate) mod pulsar;
mod remote;
pub(crate) mod seen;
pub(crate) mod stamp;
mod stream;
mod thalweg;
mod threads;
mod tool;
mod turn;

pub use crate::workload::{Driver, DriverNotBuilt};
pub use error::WorkerError;
pub(crate) use handle::LastRead;
pub use handle::{AgentLost, EventUnreadable, Handle, HandleError, NotSpawned, WorkerEnded, WorkerFailed};
pub use link::Link;
pub use protocol::{
    AcknowledgedLedger, Assignment, BatchCounts, Command, Event, Interval, NegativeLatencies, Order, Report,
    Role, SeenRecords, Span, StopWhen, ToolPercentiles,
};
pub(crate) use remote::{EXIT_TIMEOUT, HEARTBEAT, LINE_BYTES_MAX, WorkerExit, keep_tail, status_in_words};
pub use stamp::VerifyError;

/// Runs a worker, from its assignment to its last message. Blocks and creates its own threads and runtimes,
/// so it must not be called on a runtime's thread. Errors are reported to the lab and returned.
/// `clock_ahead_us` leads from the kernel's monotonic clock to the lab's clock; without it, the worker reads
/// the wall clock.
pub fn serve(clock_ahead_us: Option<i64>) -> Result<(), WorkerError> {
    if let Some(ahead_us) = clock_ahead_us {
        clock::set(ahead_us);
    }
    let (assignment, mut link) = link::open()?;
    let outcome = match assignment.driver {
        Driver::Thalweg => thalweg::run(&assignment, &mut link),
        #[cfg(feature = "librdkafka")]
        Driver::Librdkafka => librdkafka::run(&assignment, &mut link),
        #[cfg(not(feature = "librdkafka"))]
        Driver::Librdkafka => Err(WorkerError::driver(DriverNotBuilt { driver: assignment.driver })),
        Driver::Java => java::run(&assignment, &mut link),
        Driver::Stream => stream::run(&assignment, &mut link),
    };
    match outcome {
        Ok(report) => {
            let report = Report { late_us: link.late_us(), ..report };
            Ok(link.send(&Event::Done(Box::new(report)))?)
        }
        Err(error) => {
            link.send(&Event::Failed { error: error.to_string() })?;
            Err(error)
        }
    }
}

/// Shared by the tests of this crate.
#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;

    use super::{Assignment, Driver, Role, StopWhen};
    use crate::workload::{Payload, RecordSpec, Verification};

    /// Two clients and two topics.
    pub(crate) fn assignment(role: Role, driver: Driver) -> Assignment {
        Assignment {
            role,
            driver,
            bootstrap: vec!["a:1".to_owned(), "b:2".to_owned()],
            properties: BTreeMap::from([("acks".to_owned(), "1".to_owned())]),
            topics: vec!["t.1".to_owned(), "u".to_owned()],
            clients: 2,
            first_client: 0,
            threads: 1,
            records: RecordSpec { size_bytes: 100, payload: Payload::Random, keys: None },
            verify: Verification::Off,
            records_per_s: Some(1000.0),
            stop: StopWhen::OnCommand,
            groups: vec!["g".to_owned()],
            drains: false,
            all_clients: 2,
            seed: 1,
        }
    }
}
