//! `group remove-members`: removes members of a classic group.

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, MemberToRemove};

use crate::connect::Connect;
use crate::failure::{NotFound, Usage};
use crate::outcomes::add_outcomes;
use crate::output::CommandOutput;

/// Remove members from a classic group, such as static members whose processes are gone for good.
///
/// A member that still runs joins again. Groups of the other kinds have no such request.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg group remove-members billing --instance billing-3
  thalweg group remove-members billing --all --reason 'moved to another cluster'")]
pub struct RemoveMembers {
    #[command(flatten)]
    connect: Connect,
    /// The group that the members leave.
    group: String,
    /// A member by its id; can be repeated.
    #[arg(long = "member", value_name = "ID")]
    members: Vec<String>,
    /// A static member by its group.instance.id; can be repeated.
    #[arg(long = "instance", value_name = "ID")]
    instances: Vec<String>,
    /// Remove all members of the group.
    #[arg(long, conflicts_with_all = ["members", "instances"])]
    all: bool,
    /// The reason, for the log of the coordinator.
    #[arg(long, default_value = "removed by an administrator")]
    reason: String,
    #[command(flatten)]
    output: CommandOutput,
}

impl RemoveMembers {
    /// Removes the members.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        if !self.all && self.members.is_empty() && self.instances.is_empty() {
            return Err(Usage("No member: expected --member, --instance or --all".to_owned()).into());
        }
        let admin = Admin::new(self.connect.cluster().await?);
        let members = self.chosen(&admin).await?;
        let group = &self.group;
        self.output
            .outcomes(async |done| {
                if members.is_empty() {
                    return done.add(
                        &json!({ "group": group, "outcome": "unchanged" }),
                        &format!("Group {group} has no members."),
                    );
                }
                let results = admin.remove_members(group, &members, Some(&self.reason)).await?;
                add_outcomes(done, results, |member, ()| {
                    let (field, id) = match member {
                        MemberToRemove::Member(id) => ("member_id", id),
                        MemberToRemove::Instance(id) => ("group_instance_id", id),
                    };
                    let outcome = json!({ "group": group, field: id, "outcome": "removed" });
                    (outcome, format!("Removed {id} from group {group}."))
                })
            })
            .await
    }

    async fn chosen(&self, admin: &Admin) -> anyhow::Result<Vec<MemberToRemove>> {
        if !self.all {
            let members = self.members.iter().cloned().map(MemberToRemove::Member);
            let instances = self.instances.iter().cloned().map(MemberToRemove::Instance);
            return Ok(members.chain(instances).collect());
        }
        let described = admin.describe_groups(std::slice::from_ref(&self.group)).await.remove(&self.group);
        // Brokers describe a missing classic group as dead.
        let described = described.transpose()?.filter(|described| described.state != "Dead");
        let missing = || NotFound(format!("There is no group {}", self.group));
        let described = described.ok_or_else(missing)?;
        let members = described.members.into_iter().map(|member| match member.group_instance_id {
            Some(id) => MemberToRemove::Instance(id),
            None => MemberToRemove::Member(member.member_id),
        });
        Ok(members.collect())
    }
}
