//! Errors between the lab and its agents.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_authority::AuthorityError;
use thalweg_client::InvalidSetting;

/// An agent cannot be used, or cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent cannot listen.
    #[error("The agent cannot listen on {address}: {source}")]
    NotListening { address: String, source: io::Error },
    /// There are no certificates, and plain text was not asked for.
    #[error(
        "Agents run programs for their lab, so that both need certificates: make them by `thalweg lab \
         agent-certificates DIR`, and name their directory by {option} DIR. On one machine, {insecure} does without"
    )]
    NoCertificates { option: &'static str, insecure: &'static str },
    /// Plain text over a network.
    #[error(
        "{address} is not a loopback address, and without certificates anyone on its network could run programs on \
         the agent's machine, and read the cluster's passwords: name the certificates by {option} DIR, or accept it \
         by {insecure}=anywhere"
    )]
    InsecureElsewhere { address: String, option: &'static str, insecure: &'static str },
    /// A certificate file is missing.
    #[error("{} is missing: `thalweg lab agent-certificates DIR` makes it, and says what to copy", .0.display())]
    FileMissing(PathBuf),
    /// The certificates could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The certificates are unusable.
    #[error(transparent)]
    Certificates(#[from] InvalidSetting),
    /// The agent cannot be reached.
    #[error("The agent {agent} cannot be reached: {why}")]
    Unreachable { agent: String, why: String },
    /// The agent refused a request, or the lab.
    #[error("The agent {agent} refused: {why}")]
    Refused { agent: String, why: String },
    /// The agent is of another version.
    #[error(
        "The agent {agent} is {found}, protocol {protocol}; this lab is {own}, protocol {own_protocol}: use one \
         version on all machines"
    )]
    OtherVersion { agent: String, found: String, protocol: u32, own: String, own_protocol: u32 },
    /// The agent closed a connection without certificates.
    #[error(
        "The agent {agent} closed the connection at the lab's first line. An agent with certificates does so: name \
         those of the lab by --agent-certificates DIR"
    )]
    WantsCertificates { agent: String },
    /// The peer is not an agent.
    #[error("{agent} is not an agent of the lab: it sent {found}")]
    NotAnAgent {
        agent: String,
        /// The beginning of its first line.
        found: String,
    },
    /// The agent does not answer.
    #[error("The agent {agent} did not answer to {what} within {waited:?}")]
    Silent { agent: String, what: &'static str, waited: Duration },
    /// The connection has ended.
    #[error("The connection to the agent {agent} was lost while it had to answer to {what}: {why}")]
    Lost { agent: String, what: &'static str, why: String },
    /// An unexpected answer.
    #[error("The agent {agent} answered to {what} with an invalid line: {source}")]
    Invalid { agent: String, what: &'static str, source: serde_json::Error },
    /// One agent given twice.
    #[error("The agent {0} is named twice")]
    Twice(String),
    /// Two names of one agent.
    #[error("{a} and {b} lead to the same agent: name it once")]
    OneAgent { a: String, b: String },
    /// An address that leads to another machine than before.
    #[error(
        "The address {agent} leads to another machine than at the beginning, whose clock and interfaces are not those of \
         this run: give each machine a separate address"
    )]
    OtherMachine { agent: String },
    /// Too few agents to keep producers and consumers apart.
    #[error("Producers and consumers apart need two agents at least")]
    TooFewToPart,
    /// Brokers that listen on loopback only.
    #[error(
        "Brokers that the lab starts listen on 127.0.0.1 only, where the agent {agent} on another machine cannot \
         reach them: start them elsewhere, and use --bootstrap"
    )]
    BrokersOutOfReach { agent: String },
    /// Brokers that an agent cannot use.
    #[error("The agent {agent} cannot use the broker {broker}: {why}")]
    BrokerUnusable { agent: String, broker: String, why: String },
    /// Clients that no agent can run.
    #[error("Streams in memory have no clients that agents could run: leave out --agents")]
    NoClients,
}
