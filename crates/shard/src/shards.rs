//! The driver is `Shards`, with a `Cell` for each shard: finds the shard of a partition, loads and unloads
//! shards at elections and resignations, and sleeps until the next deadline. Makes no decisions.

use super::cell::Progress;
use super::context::CellContext;
use super::load::load;
use super::{Cell, CoordinatorLog, Moment, ReplicatedValue, Shard, Ticket, Unavailability};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_histogram::{Histogram, Snapshot};
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::PartitionIndex;
use thalweg_replica::partition::DeleteError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Maximum number of concurrent loads.
const LOADS_AT_ONCE: usize = 2;

/// Maximum sleep between checks of the deadlines.
const SLEEP_MAX: Duration = Duration::from_secs(600);

/// Counts of a coordinator's partitions on this broker.
#[derive(Clone, Debug)]
pub struct LoadFigures {
    /// Durations of loads since the start, in microseconds.
    pub loads: Snapshot,
    /// Partitions that serve requests.
    pub active: usize,
    /// Partitions that are loading or waiting for it.
    pub loading: usize,
    /// Partitions whose log could not be read for a lasting reason.
    pub failed: usize,
}

/// The shards led by this broker.
pub struct Shards<S: Shard> {
    context: Arc<CellContext<S>>,
    /// Disk that runs the blocking loads.
    disk: Disk,
    cells: RwLock<BTreeMap<PartitionIndex, Arc<Cell<S>>>>,
    next_ticket: AtomicU64,
    loads: Arc<Semaphore>,
}

impl<S: Shard> fmt::Debug for Shards<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&*self.cells.read()).finish()
    }
}

impl<S: Shard> Shards<S> {
    /// An instance without shards. Must be called within a tokio runtime.
    pub fn new(shared: S::SharedState, log: Arc<dyn CoordinatorLog>, clock: Clock, disk: Disk) -> Shards<S> {
        let (runtime, wake, started) = (Handle::current(), Notify::new(), Instant::now());
        Shards {
            context: Arc::new(CellContext {
                shared,
                log,
                runtime,
                wake,
                loads: Histogram::of_times(),
                clock,
                started,
            }),
            disk,
            cells: RwLock::default(),
            next_ticket: AtomicU64::new(0),
            loads: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
        }
    }

    /// State shared by the shards.
    pub fn shared(&self) -> &S::SharedState {
        &self.context.shared
    }

    /// The current time for shards.
    pub fn now(&self) -> Moment {
        self.context.now()
    }

    /// Handles the election of this broker as leader of a partition, which is loaded in the background. Until
    /// then requests get a retriable error.
    pub fn elected(&self, partition: PartitionIndex, leader_epoch: i32) {
        let (cell, earlier) = {
            let mut cells = self.cells.write();
            if cells.get(&partition).is_some_and(|cell| cell.leader_epoch() >= leader_epoch) {
                return;
            }
            let cell = Arc::new(Cell::new(partition, leader_epoch, Arc::clone(&self.context)));
            let earlier = cells.insert(partition, Arc::clone(&cell));
            (cell, earlier)
        };
        if let Some(earlier) = earlier {
            earlier.unload();
        }
        self.context.runtime.spawn(load(cell, Arc::clone(&self.loads), self.disk.clone()));
    }

    /// Handles the loss of leadership of a partition, or of this epoch: waiting requests are redirected.
    /// Without an epoch, the partition is deleted.
    pub fn resigned(&self, partition: PartitionIndex, leader_epoch: Option<i32>) {
        let is_over = |cell: &Arc<Cell<S>>| leader_epoch.is_none_or(|epoch| cell.leader_epoch() <= epoch);
        let cell = {
            let mut cells = self.cells.write();
            if cells.get(&partition).is_some_and(is_over) { cells.remove(&partition) } else { None }
        };
        if let Some(cell) = cell {
            cell.unload();
        }
    }

    /// True if a partition is loaded.
    pub fn is_loaded(&self, partition: PartitionIndex) -> bool {
        self.cell(partition).is_ok_and(|cell| cell.is_active())
    }

    /// Counts of shards by state, and durations of loads.
    pub fn load_figures(&self) -> LoadFigures {
        let mut figures =
            LoadFigures { loads: self.context.loads.snapshot(), active: 0, loading: 0, failed: 0 };
        for cell in self.all() {
            match cell.progress() {
                Progress::Active => figures.active += 1,
                Progress::Loading => figures.loading += 1,
                Progress::Failed => figures.failed += 1,
                Progress::Gone => {}
            }
        }
        figures
    }

    /// Maximum size of a batch in the log of a partition.
    pub fn batch_bytes_max(&self, partition: PartitionIndex) -> usize {
        self.context.log.batch_bytes_max(partition)
    }

    /// Runs due work in all shards.
    pub fn tick(&self) {
        let now_ms = self.now().monotonic_ms;
        for cell in self.all() {
            if cell.next_deadline_ms() <= now_ms {
                cell.turn(|_, _| ());
            }
        }
    }

    /// Sleeps until the next deadline and runs due work, or until the shards need another check.
    pub async fn sleep(&self) {
        let woken = self.context.wake.notified();
        let next_ms = self.all().iter().map(|cell| cell.next_deadline_ms()).min();
        let wait_ms = next_ms.map(|at_ms| at_ms.saturating_sub(self.now().monotonic_ms));
        let wait = wait_ms.map_or(SLEEP_MAX, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait.min(SLEEP_MAX)) => self.tick(),
            () = woken => {}
        }
    }

    /// Unloads every shard when the broker stops.
    pub fn shutdown(&self) {
        let cells = std::mem::take(&mut *self.cells.write());
        cells.into_values().for_each(|cell| cell.unload());
    }

    /// All cells, in the order of their partitions.
    pub fn all(&self) -> Vec<Arc<Cell<S>>> {
        self.cells.read().values().cloned().collect()
    }

    /// All cells with their partitions.
    pub fn by_partition(&self) -> Vec<(PartitionIndex, Arc<Cell<S>>)> {
        self.cells.read().iter().map(|(partition, cell)| (*partition, Arc::clone(cell))).collect()
    }

    /// Deletes the records of a partition before an offset, which no shard needs.
    pub async fn delete_before(&self, partition: PartitionIndex, offset: i64) -> Result<(), DeleteError> {
        let log = Arc::clone(&self.context.log);
        let deleted = self.disk.spawn(move || log.delete_before(partition, offset));
        deleted.await.expect("deleting records does not panic")
    }

    /// Reads each serving shard. Returns an error if a shard is not loaded; partitions led elsewhere are
    /// skipped.
    pub fn read_all<R>(&self, read: impl Fn(&S) -> ReplicatedValue<R>) -> Result<Vec<R>, Unavailability> {
        let seen = self.all().into_iter().map(|cell| cell.read(&read));
        seen.filter(|seen| !matches!(seen, Err(Unavailability::NotCoordinator))).collect()
    }

    /// The shard of a partition.
    pub fn cell(&self, partition: PartitionIndex) -> Result<Arc<Cell<S>>, Unavailability> {
        self.cells.read().get(&partition).cloned().ok_or(Unavailability::NotCoordinator)
    }

    /// Passes a request to the shard of a partition and waits for the answer.
    pub async fn request(
        &self,
        partition: PartitionIndex,
        request: impl FnOnce(&mut S, Ticket, S::TurnContext),
    ) -> Result<S::Answer, Unavailability> {
        let ticket = Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed));
        self.cell(partition)?.request(ticket, request).await
    }
}
