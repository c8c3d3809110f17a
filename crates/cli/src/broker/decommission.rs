//! `broker decommission` and `broker unregister`: a broker leaves the cluster for good.

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, ReplicaAssignment, planned_moves, spread};

use crate::connect::Connect;
use crate::failure::CommandFailure;
use crate::moving::{Execution, current};
use crate::output::CommandOutput;
use crate::topic::{all_partitions, usable_brokers};

/// Move all replicas of a broker to others, so that it can be stopped for good.
///
/// Shows the plan; --execute starts it.
///
/// When the moves are done, stop the broker, and remove its registration with `broker unregister`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg broker decommission 4 --execute --throttle 50000000 --wait")]
pub struct Decommission {
    #[command(flatten)]
    connect: Connect,
    /// The broker's id.
    broker: i32,
    #[command(flatten)]
    execution: Execution,
    #[command(flatten)]
    output: CommandOutput,
}

impl Decommission {
    /// Shows or executes the plan.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let metadata = admin.cluster().refresh_all().await?;
        let mut now: ReplicaAssignment = current(&metadata, &all_partitions(&metadata));
        now.retain(|_, replicas| replicas.contains(&self.broker));
        let brokers = usable_brokers(&admin, &now, &[], &[self.broker]).await?;
        let planned = spread(&now, &brokers, None)?;
        self.execution.run(&admin, &self.output, &planned_moves(&now, planned)).await
    }
}

/// Remove the registration of a broker that was stopped for good.
///
/// Refused while it runs or holds replicas.
#[derive(Args, Debug)]
pub struct Unregister {
    #[command(flatten)]
    connect: Connect,
    /// The broker's id.
    broker: i32,
    /// Remove the registration even if the broker runs or holds replicas, whose records may be lost.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Unregister {
    /// Removes the registration.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let id = self.broker;
        if !self.force {
            self.check(&admin).await?;
        }
        admin.unregister_broker(id).await?;
        let outcome = json!({ "broker": id, "outcome": "unregistered" });
        let sentence = format!("Removed the registration of broker {id}.");
        self.output.outcomes(async |done| done.add(&outcome, &sentence)).await
    }

    async fn check(&self, admin: &Admin) -> anyhow::Result<()> {
        let id = self.broker;
        let cluster = admin.describe_cluster().await?;
        let runs = cluster.brokers.iter().any(|broker| broker.id == id) && !cluster.fenced.contains(&id);
        if runs {
            let why = format!("Broker {id} runs: stop it first, after `thalweg broker decommission {id}`");
            return Err(CommandFailure(why).into());
        }
        let metadata = admin.cluster().refresh_all().await?;
        let topics = metadata.topics.values().flat_map(|topic| &topic.partitions);
        let held = topics.filter(|partition| partition.replicas.contains(&id)).count();
        if held > 0 {
            let why = format!(
                "Broker {id} holds replicas of {held} partitions: move them with `thalweg broker decommission {id} --execute`"
            );
            return Err(CommandFailure(why).into());
        }
        Ok(())
    }
}
