//! The driver: finds the shard of a transactional id, loads and unloads shards as this broker is elected and resigns,
//! and sleeps until the next timer. It decides nothing about transactions.

mod cell;
mod requests;

pub(super) use cell::Cell;

use super::answer::{Answer, Producer};
use super::config::TransactionConfig;
use super::markers::MarkerQueue;
use super::shard::{Shard, Turn};
use crate::group::{CoordinatorLog, Moment, Ticket, partition_for};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_record::DecompressBuffer;
use thalweg_wire::ErrorCode;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Partitions that are loaded at the same time.
const LOADS_AT_ONCE: usize = 2;

/// The longest sleep between looks at the timers, should there be none.
const SLEEP_MAX: Duration = Duration::from_secs(600);

/// What the coordinator sees of the cluster.
pub trait Cluster: Send + Sync + 'static {
    /// How many partitions `__transaction_state` has, if it exists.
    fn state_partition_count(&self) -> Option<i32>;
    /// The finalised level of transaction.version.
    fn transaction_version(&self) -> i16;
}

/// The transaction coordinator of this broker: a function for each API, and what it must be told.
///
/// A shard's lock is held while its writes are appended, and is taken by every function here. So none of them may be
/// called while a lock is held that [`CoordinatorLog::append`] takes.
pub struct TransactionCoordinator {
    config: Arc<TransactionConfig>,
    log: Arc<dyn CoordinatorLog>,
    surroundings: Arc<Surroundings>,
    /// What shards are loaded from.
    disk: Disk,
    /// The shards that this broker leads.
    cells: RwLock<BTreeMap<i32, Arc<Cell>>>,
    next_ticket: AtomicU64,
    loads: Arc<Semaphore>,
    runtime: Handle,
}

/// What the cells share.
pub(super) struct Surroundings {
    clock: Clock,
    started: Instant,
    cluster: Arc<dyn Cluster>,
    /// Tells the sleeper that a deadline came nearer, or that an id needs a producer id.
    wake: Notify,
    /// Ids whose transactions are to be aborted under a new producer id, with their cells.
    needing_ids: Mutex<Vec<(Arc<Cell>, Arc<str>)>>,
    pub(super) markers: Arc<MarkerQueue>,
}

impl Surroundings {
    fn turn(&self) -> Turn {
        let monotonic_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = Moment { wall_ms: self.clock.now_ms(), monotonic_ms };
        Turn { now, transaction_version: self.cluster.transaction_version() }
    }
}

impl fmt::Debug for TransactionCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionCoordinator")
            .field("partitions", &self.cells.read().keys())
            .finish_non_exhaustive()
    }
}

impl TransactionCoordinator {
    /// A coordinator that leads no partition yet. Must be called within a tokio runtime.
    pub fn new(
        config: TransactionConfig,
        log: Arc<dyn CoordinatorLog>,
        cluster: Arc<dyn Cluster>,
        clock: Clock,
        disk: Disk,
    ) -> TransactionCoordinator {
        let surroundings = Surroundings {
            clock,
            started: Instant::now(),
            cluster,
            wake: Notify::new(),
            needing_ids: Mutex::default(),
            markers: Arc::default(),
        };
        TransactionCoordinator {
            config: Arc::new(config),
            log,
            surroundings: Arc::new(surroundings),
            disk,
            cells: RwLock::default(),
            next_ticket: AtomicU64::new(0),
            loads: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
            runtime: Handle::current(),
        }
    }

    /// The partition of `__transaction_state` that a transactional id belongs to.
    pub fn partition_for(&self, id: &str) -> i32 {
        let partitions = self.surroundings.cluster.state_partition_count();
        partition_for(id, partitions.unwrap_or(self.config.state_topic_partitions))
    }

    /// The markers that wait to be sent.
    pub(super) fn marker_queue(&self) -> &Arc<MarkerQueue> {
        &self.surroundings.markers
    }

    /// This broker is the leader of a partition of `__transaction_state`. Its ids are loaded in the background; until
    /// then requests for them are told to wait.
    pub fn on_elected(&self, partition: i32, leader_epoch: i32) {
        let (cell, earlier) = {
            let mut cells = self.cells.write();
            if cells.get(&partition).is_some_and(|cell| cell.leader_epoch() >= leader_epoch) {
                return;
            }
            let (log, surroundings) = (self.log.clone(), self.surroundings.clone());
            let cell = Arc::new(Cell::new(partition, leader_epoch, log, surroundings, self.runtime.clone()));
            let earlier = cells.insert(partition, cell.clone());
            (cell, earlier)
        };
        if let Some(earlier) = earlier {
            earlier.unload();
        }
        self.spawn_load(cell, partition, leader_epoch);
    }

    fn spawn_load(&self, cell: Arc<Cell>, partition: i32, leader_epoch: i32) {
        let (loads, log) = (self.loads.clone(), self.log.clone());
        let (config, surroundings, disk) =
            (self.config.clone(), self.surroundings.clone(), self.disk.clone());
        self.runtime.spawn(async move {
            let _permit = loads.acquire_owned().await.expect("the semaphore is never closed");
            let load = move || {
                let mut shard = Shard::new(config, leader_epoch, surroundings.turn().now);
                let mut buffer = DecompressBuffer::default();
                let result = log.replay(partition, &mut |bytes| shard.replay(bytes, &mut buffer));
                match result {
                    Ok(()) => cell.load(shard),
                    Err(error) => cell.fail(&error),
                }
            };
            if let Err(error) = disk.spawn(load).await {
                tracing::error!(partition, %error, "Loading transactions was broken off");
            }
        });
    }

    /// This broker is not the leader of the partition any more, or not in this epoch: whoever waits is sent
    /// elsewhere. Without an epoch, the partition is gone.
    pub fn on_resigned(&self, partition: i32, leader_epoch: Option<i32>) {
        let is_over = |cell: &Arc<Cell>| leader_epoch.is_none_or(|epoch| cell.leader_epoch() <= epoch);
        let cell = {
            let mut cells = self.cells.write();
            if cells.get(&partition).is_some_and(is_over) { cells.remove(&partition) } else { None }
        };
        if let Some(cell) = cell {
            cell.unload();
        }
    }

    /// Whether the ids of a partition are loaded.
    pub fn is_loaded(&self, partition: i32) -> bool {
        self.cells.read().get(&partition).is_some_and(|cell| cell.read(|_| ()).is_ok())
    }

    /// Does what is due in all shards. [`TransactionCoordinator::run`] calls it when it must be.
    pub fn tick(&self) {
        let now_ms = self.surroundings.turn().now.monotonic_ms;
        for cell in self.all_cells() {
            if cell.next_deadline_ms() <= now_ms {
                cell.turn(|_, _| ());
            }
        }
    }

    /// Does what is due when it is due, for as long as it is polled. `new_id` gives a producer id that nobody had.
    pub async fn run<I, F>(&self, new_id: I)
    where
        I: Fn() -> F,
        F: Future<Output = Result<i64, ErrorCode>>,
    {
        loop {
            let woken = self.surroundings.wake.notified();
            let next_ms = self.all_cells().iter().map(|cell| cell.next_deadline_ms()).min();
            let now_ms = self.surroundings.turn().now.monotonic_ms;
            let wait_ms = next_ms.map(|at_ms| at_ms.saturating_sub(now_ms));
            let wait = wait_ms.map_or(SLEEP_MAX, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait.min(SLEEP_MAX)) => self.tick(),
                () = woken => {}
            }
            self.abort_under_new_ids(&new_id).await;
        }
    }

    /// Transactions took too long whose producers have no epoch left: each is aborted under a new producer id. What
    /// fails is found again at the next look for them.
    async fn abort_under_new_ids<I, F>(&self, new_id: &I)
    where
        I: Fn() -> F,
        F: Future<Output = Result<i64, ErrorCode>>,
    {
        let needing = std::mem::take(&mut *self.surroundings.needing_ids.lock());
        for (cell, id) in needing {
            match new_id().await {
                Ok(new_id) => cell.turn(|shard, turn| shard.abort_timed_out(&id, Some(new_id), turn)),
                Err(error) => {
                    tracing::warn!(transactional_id = &*id, %error, "A late transaction waits for a producer id");
                }
            }
        }
    }

    /// Lets every shard go: the broker stops.
    pub fn shutdown(&self) {
        let cells = std::mem::take(&mut *self.cells.write());
        cells.into_values().for_each(|cell| cell.unload());
    }

    fn all_cells(&self) -> Vec<Arc<Cell>> {
        self.cells.read().values().cloned().collect()
    }

    fn cell(&self, id: &str) -> Result<Arc<Cell>, ErrorCode> {
        let partition = self.partition_for(id);
        self.cells.read().get(&partition).cloned().ok_or(ErrorCode::NotCoordinator)
    }

    /// Passes a request to the shard of its id and waits for the answer.
    async fn ask(
        &self,
        id: &str,
        request: impl FnOnce(&mut Shard, Ticket, Turn),
    ) -> Result<Answer, ErrorCode> {
        let ticket = Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed));
        self.cell(id)?.ask(ticket, request).await
    }

    /// The same for a request that may need a producer id, which is got when it does.
    async fn ask_with_id<F>(
        &self,
        id: &str,
        new_id: impl FnOnce() -> F,
        request: impl Fn(&mut Shard, Option<i64>, Ticket, Turn),
    ) -> Result<Producer, ErrorCode>
    where
        F: Future<Output = Result<i64, ErrorCode>>,
    {
        let mut answer = self.ask(id, |shard, ticket, turn| request(shard, None, ticket, turn)).await?;
        if answer == Answer::NeedsProducerId {
            let new_id = new_id().await?;
            answer = self.ask(id, |shard, ticket, turn| request(shard, Some(new_id), ticket, turn)).await?;
        }
        match answer {
            Answer::Producer(result) => result,
            Answer::Added(_) | Answer::NeedsProducerId => Err(ErrorCode::UnknownServerError),
        }
    }
}
