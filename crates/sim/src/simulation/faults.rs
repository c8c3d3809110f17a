//! The faults of a simulation, and their times.

use super::full_disks::FullDisks;
use super::{BROKERS, CONTROLLER, Simulation};
use crate::chance::Chance;
use crate::network::MachineId;
use crate::operator::OperatorTask;
use crate::plan::{FaultKind, Plan};
use std::collections::VecDeque;
use std::time::Duration;
use thalweg_ids::BrokerId;

/// The topic of the transaction coordinators.
const TRANSACTIONS: &str = "__transaction_state";
/// Maximum jump of a wall clock.
const JUMP_MS_MAX: u64 = 3_600_000;

/// The faults of a run.
pub struct Faults {
    chance: Chance,
    plan: Plan,
    next_ms: u64,
    /// Time at which the network is healed.
    heals_ms: Option<u64>,
    count: u64,
    /// Brokers that have lost power, with their broker epochs at that time.
    lost_power: Vec<(MachineId, i64)>,
    /// The broker whose disk was replaced last, with its broker epoch at that time.
    replaced: Option<(MachineId, i64)>,
    full_disks: FullDisks,
    /// Pending stops of brokers with their times, in order.
    stops: VecDeque<(u64, MachineId)>,
}

impl Faults {
    pub fn new(chance: Chance, plan: Plan) -> Faults {
        let is_alone = plan.kinds.iter().all(|kind| *kind == FaultKind::FullDisks);
        Faults {
            chance,
            plan,
            next_ms: 0,
            heals_ms: None,
            count: 0,
            lost_power: Vec::new(),
            stops: VecDeque::new(),
            replaced: None,
            full_disks: FullDisks::new(is_alone),
        }
    }

    /// Number of faults.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The broker whose disk was replaced last, at a time when all replicas were in sync.
    pub fn replaced(&self) -> Option<MachineId> {
        self.replaced.map(|(id, _)| id)
    }

    /// Triggers due faults.
    pub fn act(&mut self, simulation: &mut Simulation) {
        let now_ms = simulation.now_ms;
        if self.heals_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.heals_ms = None;
            simulation.network.heal();
        }
        self.full_disks.advance(simulation);
        while let Some((_, id)) = self.stops.pop_front_if(|(at_ms, _)| *at_ms <= now_ms) {
            simulation.machines[id].stop();
        }
        if now_ms < self.next_ms || self.plan.kinds.is_empty() {
            return;
        }
        self.next_ms = now_ms + self.chance.between(20, self.plan.pause_ms_max);
        let kind = *self.chance.pick(&self.plan.kinds);
        if !self.may_happen(simulation, kind) {
            return;
        }
        tracing::info!(now_ms, ?kind, "Fault");
        self.count += 1;
        match kind {
            FaultKind::Resets => self.reset(simulation),
            FaultKind::Cuts => self.cut(simulation),
            FaultKind::Kills => self.kill(simulation),
            FaultKind::Stops => self.stop(simulation),
            FaultKind::PowerFailures => self.fail_power(simulation),
            FaultKind::Holds => self.hold(simulation),
            FaultKind::ClockJumps => self.jump(simulation),
            FaultKind::SlowDisks => self.slow_disk(simulation),
            FaultKind::Operator => {
                simulation.tasks.add(OperatorTask::draw(&mut self.chance, self.plan.partitions))
            }
            FaultKind::Replacements => {
                let id = self.broker();
                self.replace(simulation, id);
            }
            FaultKind::Blackouts => self.black_out(simulation),
            FaultKind::HeldController => self.hold_controller(simulation),
            FaultKind::FullDisks => self.full_disks.fill(simulation, &mut self.chance, &self.plan),
            FaultKind::Successions => self.succeed(simulation),
        }
    }

    /// Ends all faults: heals cuts, and starts stopped processes.
    pub fn end(&mut self, simulation: &mut Simulation) {
        simulation.network.heal();
        self.full_disks.free_all(simulation);
        for id in CONTROLLER..=BROKERS {
            simulation.machines[id].disk.set_delays(|| Duration::ZERO);
            simulation.machines[id].hold_until(0);
            if !simulation.machines[id].is_running() && simulation.starts[id].is_none() {
                simulation.starts[id] = Some(simulation.now_ms);
            }
        }
    }

    /// True if a kind of fault may happen now without legitimately losing an acknowledged record.
    fn may_happen(&self, simulation: &Simulation, kind: FaultKind) -> bool {
        // A succession must find all replicas in sync.
        if kind == FaultKind::Successions && (self.heals_ms.is_some() || simulation.deviation().is_some()) {
            return false;
        }
        let hides_brokers =
            matches!(kind, FaultKind::Cuts | FaultKind::Stops | FaultKind::Holds | FaultKind::Operator);
        let takes_brokers = hides_brokers || matches!(kind, FaultKind::Kills | FaultKind::Blackouts);
        if takes_brokers && !self.plan.flushes && !self.is_renewed(simulation) {
            return false;
        }
        // The controller learns of an empty disk only when its broker registers. If all other brokers were
        // fenced before, only the empty replica would be in sync. Neither the death of all brokers nor a
        // paused controller causes this: sessions expire in the order of their last renewal, and simultaneous
        // ones together.
        let loses_replicas = hides_brokers || kind == FaultKind::PowerFailures;
        !loses_replicas || Self::are_registered_again(simulation, self.replaced.as_slice())
    }

    fn broker(&mut self) -> MachineId {
        1 + usize::try_from(self.chance.below(BROKERS as u64)).unwrap_or(0)
    }

    /// A machine of the cluster; the controller's with a lower probability.
    fn machine(&mut self) -> MachineId {
        if self.chance.one_in(8) { CONTROLLER } else { self.broker() }
    }

    fn reset(&mut self, simulation: &mut Simulation) {
        for _ in 0..self.chance.between(1, 6) {
            let chance = &mut self.chance;
            simulation.network.reset_one(|count| usize::try_from(chance.below(count as u64)).unwrap_or(0));
        }
    }

    fn cut(&mut self, simulation: &mut Simulation) {
        let (from, all) = (self.machine(), simulation.machines.len());
        let (outwards, inwards) = match self.chance.below(4) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        let whole = self.chance.one_in(2);
        for other in (0..all).filter(|&other| other != from) {
            if !whole && self.chance.one_in(2) {
                continue;
            }
            if outwards {
                simulation.network.cut(from, other);
            }
            if inwards {
                simulation.network.cut(other, from);
            }
        }
        let for_ms = *self.chance.pick(&[200, 1_500, 5_000]);
        self.heals_ms = Some(simulation.now_ms + self.chance.between(50, for_ms));
    }

    fn kill(&mut self, simulation: &mut Simulation) {
        let id = self.machine();
        if simulation.machines[id].is_running() {
            simulation.machines[id].kill();
            self.start_again(simulation, id);
        }
    }

    fn start_again(&mut self, simulation: &mut Simulation, id: MachineId) {
        let down_ms = *self.chance.pick(&[50, 1_000, 6_000]);
        simulation.starts[id] = Some(simulation.now_ms + self.chance.between(1, down_ms));
    }

    fn stop(&mut self, simulation: &mut Simulation) {
        let id = self.machine();
        simulation.machines[id].stop();
    }

    fn fail_power(&mut self, simulation: &mut Simulation) {
        let all = self.plan.flushes && self.chance.one_in(4);
        let chosen = if all { (CONTROLLER..=BROKERS).collect() } else { vec![self.machine()] };
        for id in chosen {
            if !simulation.machines[id].is_running() || !self.may_fail(simulation, id) {
                continue;
            }
            if let Some(broker) = simulation.machines[id].broker() {
                self.lost_power.retain(|(lost, _)| *lost != id);
                self.lost_power.push((id, broker.registered.epoch()));
            }
            let chance = &mut self.chance;
            simulation.machines[id].lose_power(&mut |end| chance.below(end));
            self.start_again(simulation, id);
        }
    }

    /// Acknowledged records are in the page caches of the in-sync replicas, and are safe as long as one of
    /// them keeps its power. Power may therefore fail when all running processes are in sync. If everything
    /// is synced, it may fail at any time; the controller always syncs.
    fn may_fail(&self, simulation: &Simulation, id: MachineId) -> bool {
        if self.plan.flushes || id == CONTROLLER {
            return true;
        }
        // A broker that is cut off, paused or stopping looks in sync for a while, and may be fenced before
        // the broker that lost its power, which would then be alone in sync.
        self.heals_ms.is_none()
            && !is_one_leaving(simulation)
            && self.is_renewed(simulation)
            && simulation.deviation().is_none()
    }

    /// True if all brokers that lost power have registered again, and every broker knows. Until then the
    /// controller counts them as in sync although they lost records; without the other brokers they would
    /// become leaders.
    fn is_renewed(&self, simulation: &Simulation) -> bool {
        Self::are_registered_again(simulation, &self.lost_power)
    }

    fn are_registered_again(simulation: &Simulation, lost: &[(MachineId, i64)]) -> bool {
        lost.iter().all(|&(lost, epoch)| {
            let registered = |broker: usize| {
                let image = simulation.machines[broker].broker()?.image();
                Some(image.broker(BrokerId(i32::try_from(lost).ok()?))?.epoch.0)
            };
            (1..=BROKERS).all(|broker| registered(broker).is_some_and(|now| now > epoch))
        })
    }

    fn hold(&mut self, simulation: &mut Simulation) {
        let id = self.machine();
        let for_ms = *self.chance.pick(&[100, 2_000, 7_000]);
        let until_ms = simulation.now_ms + self.chance.between(10, for_ms);
        simulation.machines[id].hold_until(until_ms);
    }

    /// An acknowledged record is on all in-sync replicas, so one replica may be lost while all are in sync.
    /// The next one may be lost once the first is in sync again.
    fn may_replace(&self, simulation: &Simulation) -> bool {
        !is_one_leaving(simulation)
            && self.heals_ms.is_none()
            && self.is_renewed(simulation)
            && simulation.tasks.are_done()
            && simulation.deviation().is_none()
    }

    /// Replaces the disk of a broker, if this loses no acknowledged record.
    fn replace(&mut self, simulation: &mut Simulation, id: MachineId) -> bool {
        if !self.may_replace(simulation) {
            return false;
        }
        let Some(broker) = simulation.machines[id].broker() else { return false };
        self.replaced = Some((id, broker.registered.epoch()));
        tracing::info!(id, "Replaced a disk");
        simulation.machines[id].replace_disk();
        self.start_again(simulation, id);
        true
    }

    fn black_out(&mut self, simulation: &mut Simulation) {
        let replaced = self.chance.one_in(2).then(|| self.broker());
        let replaced = replaced.filter(|&id| self.replace(simulation, id));
        let first = if self.chance.one_in(2) { CONTROLLER } else { 1 };
        let keeps_power = !self.plan.flushes || self.chance.one_in(2);
        for id in (first..=BROKERS).filter(|&id| Some(id) != replaced) {
            if !simulation.machines[id].is_running() {
                continue;
            }
            let chance = &mut self.chance;
            match keeps_power {
                true => simulation.machines[id].kill(),
                false => simulation.machines[id].lose_power(&mut |end| chance.below(end)),
            }
            self.start_again(simulation, id);
        }
    }

    /// Pauses the controller long enough for every session to end.
    fn hold_controller(&mut self, simulation: &mut Simulation) {
        let until_ms = simulation.now_ms + self.chance.between(2_000, 8_000);
        simulation.machines[CONTROLLER].hold_until(until_ms);
    }

    /// Stops two coordinators in turn. The third broker lacks the first one's later writes, but its lag is
    /// too short for the second to notice.
    fn succeed(&mut self, simulation: &mut Simulation) {
        let first = simulation.leader(TRANSACTIONS, 0).unwrap_or_else(|| self.broker());
        let mut others: Vec<_> = (1..=BROKERS).filter(|&id| id != first).collect();
        let third = others.swap_remove(usize::from(self.chance.one_in(2)));
        for other in [first, others[0]] {
            simulation.network.cut(third, other);
            simulation.network.cut(other, third);
        }
        let first_ms = simulation.now_ms + self.chance.between(50, 600);
        let second_ms = first_ms + self.chance.between(300, 1_500);
        self.stops.extend([(first_ms, first), (second_ms, others[0])]);
        self.heals_ms = Some(second_ms + self.chance.between(300, 2_000));
    }

    fn jump(&mut self, simulation: &mut Simulation) {
        let id = self.machine();
        let by_ms = i64::try_from(self.chance.below(JUMP_MS_MAX)).unwrap_or(0);
        let off_ms = if self.chance.one_in(2) { by_ms } else { -by_ms };
        simulation.machines[id].set_clock_off(off_ms);
    }

    fn slow_disk(&mut self, simulation: &mut Simulation) {
        let id = self.machine();
        let most_ms = *self.chance.pick(&[0, 5, 50, 500]);
        let mut chance = self.chance.clone();
        simulation.machines[id].disk.set_delays(move || Duration::from_millis(chance.below(most_ms + 1)));
    }
}

/// True if a broker is paused or was asked to stop: the other brokers may not know yet that it is gone. A
/// paused controller does not know either that a leader has already given up its followers, which makes it
/// alone in sync.
fn is_one_leaving(simulation: &Simulation) -> bool {
    (CONTROLLER..=BROKERS)
        .any(|id| simulation.machines[id].is_held(simulation.now_ms) || simulation.machines[id].is_stopping())
}
