//! `lab agent-certificates`: makes the certificates of a lab and its agents.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use thalweg_lab::agent::make_certificates;

use crate::output::CommandOutput;

/// Make the certificates by which a lab and its agents know each other.
///
/// DIR gets an authority (ca.crt, ca.key), the certificate of the lab (lab.pem) and that of the agents
/// (agent.pem). They name no hosts, so that machines can be added later. The authority and its keys are made
/// once; signed certificates hold for about two years, and are signed again by the same command.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab agent-certificates certs
  scp certs/ca.crt certs/agent.pem client-1:certs/      what an agent needs, and nothing else")]
pub struct AgentCertificates {
    /// The directory, made if it is missing.
    dir: PathBuf,
    #[command(flatten)]
    output: CommandOutput,
}

impl AgentCertificates {
    /// Makes the certificates.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let files = make_certificates(&self.dir)?;
        let document = json!({ "trusted": files.trusted, "lab": files.lab, "agent": files.agent });
        let (trusted, lab, agent) = (files.trusted.display(), files.lab.display(), files.agent.display());
        let dir = self.dir.display();
        let text = format!(
            "For each client machine: {trusted} and {agent}, in one directory. Start its agent by\n\n  \
             thalweg lab agent --listen 0.0.0.0:7000 --certificates DIR\n\n\
             For the lab: {trusted} and {lab}. Use the agents by\n\n  \
             thalweg lab run WORKLOAD --agents HOST:7000,HOST:7000 --agent-certificates {dir} --bootstrap HOST:9092\n\n\
             Keep {dir}/ca.key and the .pem files secret: each has a key.\n"
        );
        self.output.show(&document, |_| Ok(text))
    }
}
