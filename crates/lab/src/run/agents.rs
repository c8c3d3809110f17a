//! The agents in a repetition: their clocks before and after it, their workers, the usage of their machines.

use tokio::task::JoinSet;

use super::error::Failure;
use crate::agent::{Agents, MachineUse, Placement};
use crate::result::{AgentUse, ClockOffset, ProcessUse};
use crate::worker::{Handle, Role};
use crate::workload::{Clients, Load, Workload};

/// Maximum number of connections that are opened at a time: an agent has room for some that it does not know
/// yet.
const CONNECTING_MAX: usize = 16;
/// From the start command to the start: time for the command to reach all workers on this machine.
const LEAD_US: u64 = 100_000;
/// Round trips to an agent that are added to the lead.
const LEAD_ROUND_TRIPS: u64 = 4;

/// The agents in a repetition.
#[derive(Debug)]
pub(super) struct AgentSessions {
    agents: Agents,
    /// The offset of each agent's clock, by which its workers are corrected.
    clocks: Vec<ClockOffset>,
    machines: Vec<MachineUse>,
}

impl AgentSessions {
    /// Measures the clocks, and starts to sample the machines.
    pub(super) async fn begin(agents: &Agents) -> Result<AgentSessions, Failure> {
        let (mut clocks, mut machines) = (Vec::new(), Vec::new());
        for agent in 0..agents.count() {
            clocks.push(agents.clock(agent).await?);
            machines.push(agents.sample(agent).await?);
        }
        Ok(AgentSessions { agents: agents.clone(), clocks, machines })
    }

    /// Starts the workers of a role with these names, each on the agent that the placement gives it. `before`
    /// workers of the other role have been placed. The workers wait for their assignments.
    pub(super) async fn workers(
        &self,
        role: Role,
        before: usize,
        names: Vec<String>,
    ) -> Result<Vec<Handle>, Failure> {
        let mut names = names.into_iter().enumerate();
        let mut connecting = JoinSet::new();
        let mut workers: Vec<(usize, Handle)> = Vec::new();
        loop {
            for (number, name) in names.by_ref().take(CONNECTING_MAX - connecting.len()) {
                let agent = self.agents.placement().agent(role, number, before, self.agents.count());
                let name = format!("{name} on {}", self.agents.address(agent));
                let (agents, offset_us) = (self.agents.clone(), self.clocks[agent].offset_us);
                connecting.spawn(async move {
                    agents.worker(agent, name, offset_us).await.map(|worker| (number, worker))
                });
            }
            match connecting.join_next().await {
                Some(Ok(started)) => workers.push(started?),
                Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
                None => break,
            }
        }
        workers.sort_unstable_by_key(|(number, _)| *number);
        Ok(workers.into_iter().map(|(_, worker)| worker).collect())
    }

    /// Samples a process of an agent's machine.
    pub(super) async fn add(&mut self, agent: &str, name: &str, pid: u32) -> Result<(), Failure> {
        let place = (0..self.machines.len()).find(|place| self.agents.address(*place) == agent);
        match place {
            Some(place) => Ok(self.machines[place].add(name, pid).await?),
            None => Ok(()),
        }
    }

    /// Measures the clocks again, and takes the usage between two times.
    pub(super) async fn finish(
        self,
        span_us: (u64, u64),
    ) -> Result<(Vec<AgentUse>, Vec<ProcessUse>), Failure> {
        let infos = self.agents.infos();
        let (mut uses, mut processes) = (Vec::new(), Vec::new());
        for (agent, (clock_before, machine)) in self.clocks.into_iter().zip(self.machines).enumerate() {
            // The rates are whole without it.
            let clock_after = match self.agents.clock(agent).await {
                Ok(clock) => Some(clock),
                Err(error) => {
                    tracing::warn!(%error, "Failed to measure the clock of an agent after a repetition");
                    None
                }
            };
            let usage = machine.finish(span_us, clock_before.offset_us).await?;
            processes.extend(usage.processes);
            let mut host = usage.host;
            for link in &mut host.interfaces {
                let known = infos[agent].interfaces.iter().find(|known| known.name == link.name);
                let speed = || known.and_then(|known| known.speed_mbit_per_s);
                link.speed_mbit_per_s = link.speed_mbit_per_s.or_else(speed);
            }
            let address = self.agents.address(agent).to_owned();
            let cpus = infos[agent].machine.cpus;
            let is_on_lab_machine = self.agents.is_here(agent);
            let boot_id = infos[agent].boot_id.clone();
            uses.push(AgentUse {
                address,
                boot_id,
                cpus,
                is_on_lab_machine,
                clock_before,
                clock_after,
                host,
            });
        }
        Ok((uses, processes))
    }
}

/// The clients of a role, with the processes that the agents' placement wants.
pub(super) fn placed(agents: Option<&Agents>, clients: &Clients, role: Role) -> Clients {
    let processes = agents
        .map_or(clients.processes, |agents| agents.placement().processes(clients, role, agents.count()));
    Clients { processes, ..clients.clone() }
}

/// Gives each producer a process in searches that add producers, so that each added one is on the next agent.
pub fn spread_producers(workload: &mut Workload) {
    for point in &mut workload.points {
        if matches!(point.load, Load::AddProducers { .. }) {
            point.producers.processes = point.producers.count;
            point.producers.threads = 1;
        }
    }
}

/// The time for a start command to reach all workers.
pub(super) fn lead_us(agents: Option<&Agents>) -> u64 {
    let paths = agents.into_iter().flat_map(Agents::infos).filter_map(|agent| agent.path);
    let round_trip_us = paths.map(|path| path.round_trip_us).max().unwrap_or_default();
    LEAD_US.saturating_add(round_trip_us.saturating_mul(LEAD_ROUND_TRIPS))
}

/// The number of workers placed before those of a role.
pub(super) fn placed_before(agents: Option<&Agents>, role: Role, producers: &Clients) -> usize {
    match (agents, role) {
        (Some(agents), Role::Consumer) if agents.placement() == Placement::Balanced => {
            producers.processes.clamp(1, producers.count.max(1)) as usize * usize::from(producers.count > 0)
        }
        _ => 0,
    }
}
