//! The driver: finds the shard of a group, loads and unloads shards as this broker is elected and resigns, and
//! sleeps until the next timer. It decides nothing about groups.

mod admin;
mod cell;
mod membership;
mod offsets;

use super::answer::{Answer, Ticket};
use super::config::GroupConfig;
use super::log::CoordinatorLog;
use super::placement::partition_for;
use super::shard::{EndOfTransaction, GroupFigures, Moment, Shard};
use super::topics::{DeletedTopic, Topics};
use cell::Cell;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_record::{DecompressBuffer, ProducerEpoch, ProducerId};
use thalweg_wire::ErrorCode;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Partitions that are loaded at the same time.
const LOADS_AT_ONCE: usize = 2;

/// The longest sleep between looks at the timers, should there be none.
const SLEEP_MAX: Duration = Duration::from_secs(600);

/// The group coordinator of this broker: a function for each API, and what it must be told.
///
/// Requests are checked for their form and answered here; authorisation is the caller's. Each function answers in
/// the form of the version that it is given.
///
/// A shard's lock is held while its writes are appended, and is taken by every function here. So none of them may be
/// called while a lock is held that [`CoordinatorLog::append`] takes.
pub struct GroupCoordinator {
    config: Arc<GroupConfig>,
    log: Arc<dyn CoordinatorLog>,
    topics: Arc<dyn Topics>,
    time: Time,
    /// What shards are loaded from.
    disk: Disk,
    /// The shards that this broker leads.
    cells: RwLock<BTreeMap<i32, Arc<Cell>>>,
    next_ticket: AtomicU64,
    wake: Arc<Notify>,
    loads: Arc<Semaphore>,
    runtime: Handle,
}

impl fmt::Debug for GroupCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCoordinator")
            .field("partitions", &self.cells.read().keys())
            .finish_non_exhaustive()
    }
}

/// Both clocks.
#[derive(Clone, Debug)]
struct Time {
    clock: Clock,
    started: Instant,
}

impl Time {
    fn now(&self) -> Moment {
        let monotonic_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Moment { wall_ms: self.clock.now_ms(), monotonic_ms }
    }
}

impl GroupCoordinator {
    /// A coordinator that leads no partition yet. Must be called within a tokio runtime.
    pub fn new(
        config: GroupConfig,
        log: Arc<dyn CoordinatorLog>,
        topics: Arc<dyn Topics>,
        clock: Clock,
        disk: Disk,
    ) -> GroupCoordinator {
        GroupCoordinator {
            config: Arc::new(config),
            log,
            topics,
            time: Time { clock, started: Instant::now() },
            disk,
            cells: RwLock::default(),
            next_ticket: AtomicU64::new(0),
            wake: Arc::default(),
            loads: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
            runtime: Handle::current(),
        }
    }

    /// The partition of `__consumer_offsets` that a group belongs to. The topic counts, and not the setting, which
    /// may have been another when the topic was made.
    pub fn partition_for(&self, group_id: &str) -> i32 {
        let partitions = self.topics.offsets_partition_count();
        partition_for(group_id, partitions.unwrap_or(self.config.offsets_topic_partitions))
    }

    /// This broker is the leader of a partition of `__consumer_offsets`. Its groups are loaded in the background;
    /// until then their requests are told to wait.
    pub fn on_elected(&self, partition: i32, leader_epoch: i32) {
        let (cell, earlier) = {
            let mut cells = self.cells.write();
            if cells.get(&partition).is_some_and(|cell| cell.leader_epoch() >= leader_epoch) {
                return;
            }
            let cell = Arc::new(Cell::new(
                partition,
                leader_epoch,
                self.log.clone(),
                self.config.clone(),
                self.time.clone(),
                self.wake.clone(),
                self.runtime.clone(),
            ));
            let earlier = cells.insert(partition, cell.clone());
            (cell, earlier)
        };
        if let Some(earlier) = earlier {
            earlier.unload();
        }
        self.spawn_load(cell, partition);
    }

    fn spawn_load(&self, cell: Arc<Cell>, partition: i32) {
        let (loads, log) = (self.loads.clone(), self.log.clone());
        let (config, time, disk) = (self.config.clone(), self.time.clone(), self.disk.clone());
        self.runtime.spawn(async move {
            let _permit = loads.acquire_owned().await.expect("the semaphore is never closed");
            let load = move || {
                let now = time.now();
                let mut shard = Shard::new(config, now);
                let mut buffer = DecompressBuffer::default();
                let result = log.replay(partition, &mut |bytes| shard.replay(bytes, &mut buffer, now));
                match result {
                    Ok(()) => cell.load(shard),
                    Err(error) => cell.fail(&error),
                }
            };
            if let Err(error) = disk.spawn(load).await {
                tracing::error!(partition, %error, "Loading groups was broken off");
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

    /// Topics are gone: offsets that were committed for them go too.
    pub fn on_topics_deleted(&self, topics: &[DeletedTopic]) {
        for cell in self.all_cells() {
            cell.turn(|shard, now| shard.topics_deleted(topics, now));
        }
    }

    /// A producer's transaction ends in a partition: the marker is written, and answered when it is acknowledged.
    pub async fn complete_transaction(
        &self,
        partition: i32,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        end: EndOfTransaction,
    ) -> Result<(), ErrorCode> {
        let ticket = Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed));
        let cell = self.cells.read().get(&partition).cloned().ok_or(ErrorCode::NotCoordinator)?;
        let asked = cell.ask(ticket, |shard, ticket, _| {
            shard.complete_transaction(producer_id, producer_epoch, end, ticket);
        });
        match asked.await? {
            Answer::TransactionEnded(result) => result,
            _ => Err(ErrorCode::UnknownServerError),
        }
    }

    /// Whether the groups of a partition are loaded.
    pub fn is_loaded(&self, partition: i32) -> bool {
        self.cells.read().get(&partition).is_some_and(|cell| cell.read(|_| ()).is_ok())
    }

    /// Does what is due in all shards. [`GroupCoordinator::run`] calls it when it must be.
    pub fn tick(&self) {
        let now_ms = self.time.now().monotonic_ms;
        for cell in self.all_cells() {
            if cell.next_deadline_ms() <= now_ms {
                cell.turn(|_, _| ());
            }
        }
    }

    /// Does what is due when it is due, for as long as it is polled.
    pub async fn run(&self) {
        loop {
            let woken = self.wake.notified();
            let next_ms = self.all_cells().iter().map(|cell| cell.next_deadline_ms()).min();
            let wait_ms = next_ms.map(|at_ms| at_ms.saturating_sub(self.time.now().monotonic_ms));
            let wait = wait_ms.map_or(SLEEP_MAX, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait.min(SLEEP_MAX)) => self.tick(),
                () = woken => {}
            }
        }
    }

    /// Lets every shard go: the broker stops.
    pub fn shutdown(&self) {
        let cells = std::mem::take(&mut *self.cells.write());
        cells.into_values().for_each(|cell| cell.unload());
    }

    /// The groups that this broker coordinates, with what they have committed.
    pub fn figures(&self) -> Vec<GroupFigures> {
        self.all_cells().iter().filter_map(|cell| cell.read(Shard::figures).ok()).flatten().collect()
    }

    fn all_cells(&self) -> Vec<Arc<Cell>> {
        self.cells.read().values().cloned().collect()
    }

    fn cell(&self, group_id: &str) -> Result<Arc<Cell>, ErrorCode> {
        let partition = self.partition_for(group_id);
        self.cells.read().get(&partition).cloned().ok_or(ErrorCode::NotCoordinator)
    }

    /// Passes a request to the shard of its group and waits for the answer.
    async fn ask(
        &self,
        group_id: &str,
        request: impl FnOnce(&mut Shard, Ticket, Moment),
    ) -> Result<Answer, ErrorCode> {
        let ticket = Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed));
        self.cell(group_id)?.ask(ticket, request).await
    }
}
