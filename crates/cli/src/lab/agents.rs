//! Arguments for the agents of a run: on client machines, and on brokers' machines.

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
    #[arg(long, value_name = "DIR")]
    agent_certificates: Option<PathBuf>,
    /// Use agents without certificates: on loopback, or, with =anywhere, over every network. Passwords of the
    /// cluster are then sent in the clear.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "loopback",
        conflicts_with = "agent_certificates")]
    agents_insecure: Option<Insecure>,
}

/// The agents that watch the brokers of a running cluster.
#[derive(Args, Debug, Clone)]
pub(crate) struct BrokerAgentArguments {
    /// Watch the machines of the brokers of --bootstrap, each with a `thalweg lab agent`: processors, memory,
    /// disks, interfaces, and the brokers' processes.
    #[arg(long, value_name = "HOST:PORT,...")]
    broker_agents: Option<String>,
}

impl AgentArguments {
    /// Connects to the agents, if there are any. Refuses targets and workloads that agents cannot measure.
    pub async fn connect(
        &self,
        targets: &[TargetSpec],
        workloads: &[Workload],
    ) -> anyhow::Result<Option<Agents>> {
        let Some(list) = &self.agents else { return Ok(None) };
        if workloads.iter().flat_map(|workload| &workload.points).all(|point| point.cluster.brokers == 0) {
            let why = "streams in memory have no clients to place";
            return Err(Usage(format!("--agents has no effect: {why}")).into());
        }
        let agents = Some(self.connect_to(list, self.agents_place).await?);
        if let Some(agents) = agents.as_ref().filter(|_| targets.iter().any(TargetSpec::is_started_by_lab)) {
            agents.check_reach_loopback()?;
        }
        Ok(agents)
    }

    /// Connects to the agents, if there are any, for clients of a server that all of them reach.
    pub(super) async fn connect_all(&self) -> anyhow::Result<Option<Agents>> {
        self.check_security(self.agents.is_some(), "--agents")?;
        match &self.agents {
            Some(list) => Ok(Some(self.connect_to(list, self.agents_place).await?)),
            None => Ok(None),
        }
    }

    /// Refuses certificates, or their absence, without agents. `of` are the arguments for these.
    fn check_security(&self, has_agents: bool, of: &str) -> anyhow::Result<()> {
        let given = [
            ("--agent-certificates", self.agent_certificates.is_some()),
            ("--agents-insecure", self.agents_insecure.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given && !has_agents) {
            Some((name, _)) => Err(Usage(format!("{name} has no effect without {of}")).into()),
            None => Ok(()),
        }
    }

    /// Connects to the agents of a list.
    async fn connect_to(&self, list: &str, placement: Placement) -> anyhow::Result<Agents> {
        let names = ("--agent-certificates", "--agents-insecure");
        let security = Security::new(self.agent_certificates.clone(), self.agents_insecure, names)?;
        let agents = Agents::connect(AgentsOptions {
            addresses: bootstrap_servers(list)?,
            security,
            placement,
            version: exact_version()?,
        });
        Ok(agents.await?)
    }
}

impl BrokerAgentArguments {
    /// Refuses agents of brokers without a running cluster, and certificates without any agents.
    pub fn check(&self, targets: &[TargetSpec], agents: &AgentArguments) -> anyhow::Result<()> {
        let of_any = "--agents or --broker-agents";
        agents.check_security(agents.agents.is_some() || self.broker_agents.is_some(), of_any)?;
        if self.broker_agents.is_some() && targets.iter().all(TargetSpec::is_started_by_lab) {
            let why = "the brokers that the lab starts are on this machine, which it watches already";
            let message =
                format!("--broker-agents is for the brokers of a running cluster, --bootstrap: {why}");
            return Err(Usage(message).into());
        }
        Ok(())
    }

    /// Connects to the agents, if there are any, with the certificates of the clients' agents.
    pub async fn connect(&self, agents: &AgentArguments) -> anyhow::Result<Option<Agents>> {
        match &self.broker_agents {
            Some(list) => Ok(Some(agents.connect_to(list, Placement::default()).await?)),
            None => Ok(None),
        }
    }
}

/// An agent in a line.
pub(crate) fn in_a_line(kind: &str, agent: &AgentInfo) -> String {
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
        "{kind} {}: {} processors, {} of memory{}",
        agent.address,
        machine.cpus,
        quantity::bytes(machine.memory_bytes as f64),
        path.unwrap_or_default()
    )
}
