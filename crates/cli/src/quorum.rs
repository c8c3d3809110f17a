//! `quorum`: the controllers.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::verdict::{ControllerFailure, answer_of_controllers};
use thalweg_client::{Admin, ControllerEndpoint, QuorumDescription, QuorumReplica, host_and_port};
use thalweg_wire::Uuid;

use super::CommandFuture;
use super::connect::Connect;
use super::failure::{CommandFailure, NotFound, Usage};
use super::moment;
use super::output::{Column, CommandOutput};

/// Describe the controller quorum, and change its voters.
#[derive(Subcommand, Debug)]
pub enum Quorum {
    Describe(Describe),
    AddVoter(AddVoter),
    RemoveVoter(RemoveVoter),
}

impl Quorum {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Quorum::Describe(describe) => describe.run().await,
                Quorum::AddVoter(add) => add.run().await,
                Quorum::RemoveVoter(remove) => remove.run().await,
            }
        })
    }
}

/// Describe the controller quorum: leader, voters, observers, and the lag of each.
#[derive(Args, Debug)]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: CommandOutput,
}

/// Time limit for the controllers. Without a majority, brokers search for an active controller much longer.
const CONTROLLERS_WAIT: Duration = Duration::from_secs(5);

const COLUMNS: [Column<'_>; 7] = [
    ("NODE", "node"),
    ("ROLE", "role"),
    ("DIRECTORY-ID", "directory_id"),
    ("ADDRESSES", "addresses"),
    ("LOG-END-OFFSET", "log_end_offset"),
    ("LAG", "lag"),
    ("LAST-CAUGHT-UP", "last_caught_up"),
];

impl Describe {
    async fn run(&self) -> anyhow::Result<()> {
        let quorum = described(&Admin::new(self.connect.cluster().await?)).await?;
        let nodes = rows(&quorum);
        let document = json!({
            "leader": quorum.leader_id,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "nodes": nodes,
        });
        self.output.show(&document, |style| {
            let leader = quorum.leader_id.map_or_else(|| "none".to_owned(), |id| id.to_string());
            let head = format!(
                "Leader {leader}, epoch {}, high watermark {}",
                quorum.leader_epoch, quorum.high_watermark
            );
            Ok(format!("{head}\n{}", style.rows(&COLUMNS, &nodes)?))
        })
    }
}

/// The quorum. Without an active controller, the asked broker holds the request, and is not to blame.
async fn described(admin: &Admin) -> anyhow::Result<QuorumDescription> {
    let answer = answer_of_controllers(CONTROLLERS_WAIT, admin.describe_quorum()).await;
    answer.map_err(|failure| match failure {
        ControllerFailure::Failed(error) => anyhow::Error::new(error),
        silent => anyhow::Error::new(silent).context("The quorum is not known"),
    })
}

fn rows(quorum: &QuorumDescription) -> Vec<serde_json::Value> {
    let leader = quorum.leader_id;
    let end = quorum.voters.iter().find(|voter| Some(voter.id) == leader).map(|voter| voter.log_end_offset);
    let row = |replica: &QuorumReplica, role: &str| {
        let endpoints = quorum.nodes.get(&replica.id).into_iter().flatten();
        let addresses: Vec<String> =
            endpoints.map(|endpoint| host_and_port(&endpoint.host, endpoint.port)).collect();
        let known = replica.log_end_offset >= 0;
        json!({
            "node": replica.id,
            "role": role,
            "directory_id": (replica.directory_id != Uuid::default()).then(|| replica.directory_id.to_string()),
            "addresses": addresses,
            "log_end_offset": known.then_some(replica.log_end_offset),
            "lag": end.filter(|_| known).map(|end| (end - replica.log_end_offset).max(0)),
            "last_caught_up": replica.last_caught_up_ms.map(moment::shown),
        })
    };
    let voters = quorum.voters.iter().map(|voter| match Some(voter.id) == leader {
        true => row(voter, "leader"),
        false => row(voter, "voter"),
    });
    voters.chain(quorum.observers.iter().map(|observer| row(observer, "observer"))).collect()
}

/// Make a controller a voter.
///
/// The controller must run and have caught up: `quorum describe` shows it as an observer.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  thalweg quorum add-voter 3 --directory-id Uu3lUoxGQcKjTOEbZsW4zA --endpoint CONTROLLER://c3.example.com:9093")]
pub struct AddVoter {
    #[command(flatten)]
    connect: Connect,
    /// The controller's node id.
    node: i32,
    /// Id of the new voter's metadata directory, from meta.properties [default: the id in `quorum describe`].
    #[arg(long, value_name = "ID")]
    directory_id: Option<Uuid>,
    /// Controller listeners of the new voter, as NAME://HOST:PORT; can be repeated.
    #[arg(long = "endpoint", value_name = "NAME://HOST:PORT", required = true, value_parser = endpoint)]
    endpoints: Vec<ControllerEndpoint>,
    #[command(flatten)]
    output: CommandOutput,
}

fn endpoint(text: &str) -> Result<ControllerEndpoint, Usage> {
    let read = || {
        let (listener, address) = text.split_once("://")?;
        let (host, port) = address.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let whole = !listener.is_empty() && !host.is_empty();
        whole.then_some(ControllerEndpoint {
            listener: listener.to_owned(),
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    };
    read().ok_or_else(|| {
        Usage(format!("{text:?} is not NAME://HOST:PORT: expected for example CONTROLLER://localhost:9093"))
    })
}

impl AddVoter {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let directory = directory(&admin, self.node, self.directory_id).await?;
        admin.add_voter(self.node, directory, &self.endpoints).await?;
        let outcome = json!({ "node": self.node, "directory_id": directory.to_string(), "outcome": "added" });
        let sentence = format!("Controller {} is a voter.", self.node);
        self.output.outcomes(async |done| done.add(&outcome, &sentence)).await
    }
}

/// Remove a controller from the voters.
///
/// The remaining voters must have a majority.
#[derive(Args, Debug)]
pub struct RemoveVoter {
    #[command(flatten)]
    connect: Connect,
    /// The controller's node id.
    node: i32,
    /// Id of the controller's metadata directory [default: the id in `quorum describe`].
    #[arg(long, value_name = "ID")]
    directory_id: Option<Uuid>,
    #[command(flatten)]
    output: CommandOutput,
}

impl RemoveVoter {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let directory = directory(&admin, self.node, self.directory_id).await?;
        admin.remove_voter(self.node, directory).await?;
        let outcome =
            json!({ "node": self.node, "directory_id": directory.to_string(), "outcome": "removed" });
        let sentence = format!("Controller {} is no voter any more.", self.node);
        self.output.outcomes(async |done| done.add(&outcome, &sentence)).await
    }
}

/// The directory id of a node: the given id, or the only id that the quorum knows for the node.
async fn directory(admin: &Admin, node: i32, given: Option<Uuid>) -> anyhow::Result<Uuid> {
    if let Some(given) = given {
        return Ok(given);
    }
    let quorum = described(admin).await?;
    let known = quorum.voters.iter().chain(&quorum.observers).filter(|replica| replica.id == node);
    let ids: Vec<Uuid> = known.map(|replica| replica.directory_id).collect();
    match ids[..] {
        [id] => Ok(id),
        [] => Err(NotFound(format!(
            "The quorum knows no node {node}: start it first, or name its directory with --directory-id"
        ))
        .into()),
        _ => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let ids = ids.join(", ");
            Err(CommandFailure(format!(
                "Node {node} has several directories: choose one with --directory-id: {ids}"
            ))
            .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_listener_a_host_and_a_port() {
        let read = |text: &str| endpoint(text).map(|e| (e.listener, e.host, e.port)).ok();
        assert_eq!(read("C://h:9093"), Some(("C".to_owned(), "h".to_owned(), 9093)));
        assert_eq!(read("C://[::1]:9093"), Some(("C".to_owned(), "::1".to_owned(), 9093)));
        for wrong in ["h:9093", "C://h", "://h:1", "C://:1", "C://h:99999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
