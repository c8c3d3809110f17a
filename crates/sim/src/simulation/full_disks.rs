//! Log directories that fill up and have room again, and the check that writes continue meanwhile.
//!
//! While one broker is full and there is no other fault, every partition has two replicas with room: each
//! partition must take records, and transactions must commit, once the broker has had time to hand over.

use super::{BROKERS, CONTROLLER, Simulation};
use crate::chance::Chance;
use crate::network::MachineId;
use crate::plan::Plan;
use std::path::PathBuf;

/// Time within which the broker must have handed over: it notices within a second or two, and a follower that
/// cannot write leaves the in-sync replicas after `replica.lag.time.max.ms`.
const HAND_OVER_MS: u64 = 9_000;
/// Further time within which every partition must take a record.
const PROGRESS_MS: u64 = 5_000;

/// The full directories.
pub struct FullDisks {
    fills: Vec<Fill>,
    /// True if there are no other faults, so that writes must continue.
    is_alone: bool,
}

struct Fill {
    machine: MachineId,
    dir: PathBuf,
    began_ms: u64,
    ends_ms: u64,
    /// Counts at the time when the broker must have handed over.
    before: Option<ProgressCounts>,
}

/// Number of acknowledged batches per partition, and of committed transactions.
struct ProgressCounts {
    acknowledged: Vec<usize>,
    committed: u64,
}

impl FullDisks {
    /// Starts without a full directory.
    pub fn new(is_alone: bool) -> FullDisks {
        FullDisks { fills: Vec::new(), is_alone }
    }

    /// Fills a directory of a broker, or sometimes the controller's, for a while.
    pub fn fill(&mut self, simulation: &Simulation, chance: &mut Chance, plan: &Plan) {
        let is_controllers = chance.one_in(8);
        let broker = 1 + usize::try_from(chance.below(BROKERS as u64)).unwrap_or(0);
        let machine = if is_controllers { CONTROLLER } else { broker };
        let dirs = if is_controllers { vec!["/data".to_owned()] } else { plan.dirs() };
        let dir = PathBuf::from(chance.pick(&dirs));
        let (room, for_ms) = (chance.below(20_000), *chance.pick(&[1_500, 6_000, 20_000]));
        // One directory at a time if writes must continue; otherwise two.
        let others = self.fills.len();
        if others > usize::from(!self.is_alone) || self.fills.iter().any(|fill| fill.machine == machine) {
            return;
        }
        let disk = &simulation.machines[machine].disk;
        disk.set_capacity(&dir, Some(disk.used_bytes(&dir) + room));
        tracing::info!(machine, dir = %dir.display(), room, for_ms, "A directory fills up");
        let (began_ms, ends_ms) = (simulation.now_ms, simulation.now_ms + for_ms);
        self.fills.push(Fill { machine, dir, began_ms, ends_ms, before: None });
    }

    /// Frees due directories, and checks that writes continue.
    pub fn advance(&mut self, simulation: &Simulation) {
        let now_ms = simulation.now_ms;
        for fill in &mut self.fills {
            if !self.is_alone || fill.machine == CONTROLLER {
                continue;
            }
            if now_ms == fill.began_ms + HAND_OVER_MS {
                fill.before = Some(ProgressCounts::of(simulation));
            }
            if now_ms == fill.began_ms + HAND_OVER_MS + PROGRESS_MS
                && let Some(before) = &fill.before
            {
                let stuck = before.stuck(simulation);
                if let Some(what) = stuck {
                    let (machine, dir) = (&simulation.machines[fill.machine].name, fill.dir.display());
                    let since_ms = now_ms - fill.began_ms;
                    simulation.history.violation(format!(
                        "{dir} of {machine} is full since {since_ms} ms, all else is well, and {what}"
                    ));
                }
            }
        }
        let (due, left) =
            std::mem::take(&mut self.fills).into_iter().partition(|fill| fill.ends_ms <= now_ms);
        self.fills = left;
        free(simulation, due);
    }

    /// Frees all directories.
    pub fn free_all(&mut self, simulation: &Simulation) {
        free(simulation, std::mem::take(&mut self.fills));
    }
}

fn free(simulation: &Simulation, fills: Vec<Fill>) {
    for fill in fills {
        tracing::info!(machine = fill.machine, dir = %fill.dir.display(), "A directory has room again");
        simulation.machines[fill.machine].disk.set_capacity(&fill.dir, None);
    }
}

impl ProgressCounts {
    fn of(simulation: &Simulation) -> ProgressCounts {
        simulation.history.with(|known| {
            let count = |partition| known.acknowledged.get(&partition).map_or(0, Vec::len);
            let acknowledged = (0..simulation.plan.partitions).map(count).collect();
            ProgressCounts { acknowledged, committed: known.ledger.committed() }
        })
    }

    /// The partitions or transactions without progress since then.
    fn stuck(&self, simulation: &Simulation) -> Option<String> {
        let now = ProgressCounts::of(simulation);
        for (partition, (before, after)) in self.acknowledged.iter().zip(&now.acknowledged).enumerate() {
            if after == before {
                return Some(format!("partition {partition} took no record for {PROGRESS_MS} ms"));
            }
        }
        let commits = simulation.plan.has_transactions() && now.committed == self.committed;
        commits.then(|| format!("no transaction was committed for {PROGRESS_MS} ms"))
    }
}
