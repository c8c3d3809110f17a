//! Arguments for the agents of a run.

use std::path::PathBuf;

use clap::Args;
use thalweg_client::bootstrap_servers;
use thalweg_lab::agent::{Agents, AgentsOptions, Insecure, Placement, Security};
use thalweg_lab::quantity;
use thalweg_lab::result::AgentInfo;
use thalweg_lab::target::TargetSpec;
use thalweg_lab::workload::Workload;

use super::run::exact_version;
use crate::failure::Usage;

/// The agents that run the clients.
#[derive(Args, Debug, Clone)]
pub(crate) struct AgentArguments {
    /// Run producers and consumers on these machines, each with a `thalweg lab agent`; without agents, they
    /// run on this machine.
    #[arg(long, value_name = "HOST:PORT,...")]
    agents: Option<String>,
    /// The rule that places producers and consumers on agents.
    #[arg(long, value_name = "RULE", value_enum, default_value_t, requires = "agents")]
    agents_place: Placement,
    /// The directory with ca.crt and lab.pem, made by `thalweg lab agent-certificates`.
    #[arg(long, value_name = "DIR", requires = "agents")]
    agent_certificates: Option<PathBuf>,
    /// Use agents without certificates: on loopback, or, with =anywhere, over every network. Passwords of the
    /// cluster are then sent in the clear.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "loopback",
        requires = "agents", conflicts_with = "agent_certificates")]
    agents_insecure: Option<Insecure>,
}

impl AgentArguments {
    /// Connects to the agents, if there are any. Refuses targets and workloads that agents cannot measure.
    pub async fn connect(
        &self,
        targets: &[TargetSpec],
        workloads: &[Workload],
    ) -> anyhow::Result<Option<Agents>> {
        if self.agents.is_none() {
            return Ok(None);
        }
        if workloads.iter().flat_map(|workload| &workload.points).all(|point| point.cluster.brokers == 0) {
            let why = "streams in memory have no clients to place";
            return Err(Usage(format!("--agents has no effect: {why}")).into());
        }
        let agents = self.connect_all().await?;
        if let Some(agents) = agents.as_ref().filter(|_| targets.iter().any(TargetSpec::is_started_by_lab)) {
            agents.check_reach_loopback()?;
        }
        Ok(agents)
    }

    /// Connects to the agents, if there are any, for clients of a server that all of them reach.
    pub(super) async fn connect_all(&self) -> anyhow::Result<Option<Agents>> {
        let Some(list) = &self.agents else { return Ok(None) };
        let names = ("--agent-certificates", "--agents-insecure");
        let security = Security::new(self.agent_certificates.clone(), self.agents_insecure, names)?;
        let agents = Agents::connect(AgentsOptions {
            addresses: bootstrap_servers(list)?,
            security,
            placement: self.agents_place,
            version: exact_version()?,
        });
        Ok(Some(agents.await?))
    }
}

/// An agent in a line.
pub(crate) fn in_a_line(agent: &AgentInfo) -> String {
    let machine = &agent.machine;
    let path = agent.path.map(|path| {
        format!(
            "; round trip {}, {} Mbit/s to it and {} from it",
            quantity::time_us(path.round_trip_us as f64),
            quantity::number(path.sent_mbit_per_s.round()),
            quantity::number(path.received_mbit_per_s.round())
        )
    });
    format!(
        "Agent {}: {} processors, {} of memory{}",
        agent.address,
        machine.cpus,
        quantity::bytes(machine.memory_bytes as f64),
        path.unwrap_or_default()
    )
}
