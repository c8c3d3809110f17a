//! The agent of each worker. Pure.

use clap::ValueEnum;

use crate::worker::Role;
use crate::workload::Clients;

/// The rule that places workers on agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// Producers and consumers on every agent: each role has at least a process on each, if it has as many
    /// clients.
    #[default]
    Both,
    /// The processes of the workload, on one agent after the other: first the producers', then the
    /// consumers'.
    Balanced,
    /// Producers on the first half of the agents, consumers on the others.
    Apart,
}

impl Placement {
    /// The name in arguments and results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Placement::Both => "both",
            Placement::Balanced => "balanced",
            Placement::Apart => "apart",
        }
    }

    /// The clients of a role, with as many processes as the rule wants on this many agents.
    pub(crate) fn processes(self, clients: &Clients, role: Role, agents: usize) -> u32 {
        let own = match self {
            Placement::Balanced => return clients.processes,
            Placement::Both => agents,
            Placement::Apart => self.range(role, agents).len(),
        };
        let own = u32::try_from(own).unwrap_or(u32::MAX);
        clients.processes.max(own.min(clients.count)).max(1)
    }

    /// The index of the agent of a role's worker. `before` is the number of workers that are placed already.
    pub(crate) fn agent(self, role: Role, number: usize, before: usize, agents: usize) -> usize {
        match self {
            Placement::Both => number % agents.max(1),
            Placement::Balanced => (before + number) % agents.max(1),
            Placement::Apart => {
                let range = self.range(role, agents);
                range.start + number % range.len().max(1)
            }
        }
    }

    /// The agents of a role that is kept apart.
    fn range(self, role: Role, agents: usize) -> std::ops::Range<usize> {
        let producers = agents.div_ceil(2);
        match role {
            Role::Producer => 0..producers,
            Role::Consumer => producers..agents,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(count: u32, processes: u32) -> Clients {
        Clients { count, processes, threads: 1, properties: Default::default(), pulsar: Default::default() }
    }

    fn placed(rule: Placement, role: Role, of: &Clients, before: usize, agents: usize) -> Vec<usize> {
        let processes = rule.processes(of, role, agents) as usize;
        (0..processes).map(|number| rule.agent(role, number, before, agents)).collect()
    }

    #[test]
    fn both_roles_are_on_every_agent_that_they_have_clients_for() {
        let rule = Placement::Both;
        for role in [Role::Producer, Role::Consumer] {
            assert_eq!(placed(rule, role, &clients(6, 1), 4, 3), [0, 1, 2]);
            assert_eq!(placed(rule, role, &clients(2, 1), 0, 3), [0, 1]);
            assert_eq!(placed(rule, role, &clients(9, 4), 0, 3), [0, 1, 2, 0]);
        }
    }

    #[test]
    fn balanced_workers_are_those_of_the_workload() {
        let rule = Placement::Balanced;
        assert_eq!(placed(rule, Role::Producer, &clients(6, 2), 0, 3), [0, 1]);
        assert_eq!(placed(rule, Role::Consumer, &clients(6, 2), 2, 3), [2, 0]);
    }

    #[test]
    fn roles_that_are_apart_share_no_agent() {
        let rule = Placement::Apart;
        assert_eq!(placed(rule, Role::Producer, &clients(6, 1), 0, 3), [0, 1]);
        assert_eq!(placed(rule, Role::Consumer, &clients(6, 3), 2, 3), [2, 2, 2]);
        assert_eq!(placed(rule, Role::Producer, &clients(6, 1), 0, 2), [0]);
        assert_eq!(placed(rule, Role::Consumer, &clients(6, 1), 1, 2), [1]);
    }
}
