//! `security acl`: add, list, remove.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use thalweg_client::Admin;
use thalweg_security::Principal;
use thalweg_security::acl::{Acl, AclFilter, Operation, PatternType, Permission, ResourceType};

use crate::connect::Connect;
use crate::failure::{NotFound, Usage};
use crate::output::{Column, CommandOutput};

/// The name of the only resource of type CLUSTER.
const CLUSTER: &str = "kafka-cluster";

/// Manage access control lists: the operations that principals may perform on resources.
#[derive(Subcommand, Debug)]
pub enum AclCommand {
    Add(Add),
    List(List),
    Remove(Remove),
}

impl AclCommand {
    /// Runs the command.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        match self {
            AclCommand::Add(add) => add.run().await,
            AclCommand::List(list) => list.run().await,
            AclCommand::Remove(remove) => remove.run().await,
        }
    }
}

/// Resources.
#[derive(Args, Debug)]
struct Resources {
    /// A topic, or * for all; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// A group, or *; can be repeated.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// A transactional id, or *; can be repeated.
    #[arg(long = "transactional-id", value_name = "ID")]
    transactional_ids: Vec<String>,
    /// A delegation token, or *; can be repeated.
    #[arg(long = "delegation-token", value_name = "ID")]
    delegation_tokens: Vec<String>,
    /// A user, for rights on delegation tokens that this user owns, or *; can be repeated.
    #[arg(long = "user", value_name = "PRINCIPAL")]
    users: Vec<String>,
    /// The cluster as a whole.
    #[arg(long)]
    cluster: bool,
    /// Treat the names as prefixes.
    #[arg(long)]
    prefixed: bool,
}

impl Resources {
    /// The names of the resources, each with its type.
    fn named(&self) -> Vec<(ResourceType, String)> {
        let lists = [
            (ResourceType::Topic, &self.topics),
            (ResourceType::Group, &self.groups),
            (ResourceType::TransactionalId, &self.transactional_ids),
            (ResourceType::DelegationToken, &self.delegation_tokens),
            (ResourceType::User, &self.users),
        ];
        let named = lists.into_iter().flat_map(|(kind, names)| names.iter().map(move |n| (kind, n.clone())));
        let cluster = self.cluster.then(|| (ResourceType::Cluster, CLUSTER.to_owned()));
        named.chain(cluster).collect()
    }

    fn pattern_of(&self, kind: ResourceType) -> PatternType {
        match self.prefixed && kind != ResourceType::Cluster {
            true => PatternType::Prefixed,
            false => PatternType::Literal,
        }
    }
}

/// The effect of an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Effect {
    /// The ACL allows the operation.
    Allow,
    /// The ACL denies the operation, even if another ACL allows it.
    Deny,
}

/// Allow or deny operations of a principal on resources.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security acl add User:alice --topic orders --allow read,describe
  thalweg security acl add User:bob --topic orders- --prefixed --group billing --allow read
  thalweg security acl add 'User:*' --topic secrets --deny all --host 10.0.0.7")]
pub struct Add {
    #[command(flatten)]
    connect: Connect,
    /// The principals: User:NAME, or User:* for everyone.
    #[arg(required = true, value_name = "PRINCIPAL")]
    principals: Vec<String>,
    #[command(flatten)]
    resources: Resources,
    /// Operations to allow, by Kafka's names: read, write, create, delete, alter, describe, all and others.
    #[arg(long, value_delimiter = ',', value_name = "OPERATION,...", required_unless_present = "deny")]
    allow: Vec<String>,
    /// Operations to deny.
    #[arg(long, value_delimiter = ',', value_name = "OPERATION,...")]
    deny: Vec<String>,
    /// The client address that the ACL applies to; * for all.
    #[arg(long, default_value = "*")]
    host: String,
    #[command(flatten)]
    output: CommandOutput,
}

impl Add {
    async fn run(&self) -> anyhow::Result<()> {
        let resources = self.resources.named();
        if resources.is_empty() {
            let right = "name one with --topic, --group, --transactional-id or --cluster";
            return Err(Usage(format!("no resource: {right}")).into());
        }
        let mut acls = Vec::new();
        for (permission, operations) in [(Permission::Allow, &self.allow), (Permission::Deny, &self.deny)] {
            for text in operations {
                let operation = operation(text)?;
                for principal in &self.principals {
                    check_principal(principal)?;
                    acls.extend(resources.iter().map(|(kind, name)| Acl {
                        resource_type: *kind,
                        resource_name: name.clone(),
                        pattern_type: self.resources.pattern_of(*kind),
                        principal: principal.clone(),
                        host: self.host.clone(),
                        operation,
                        permission,
                    }));
                }
            }
        }
        Admin::new(self.connect.cluster().await?).create_acls(&acls).await?;
        self.output.show(&documents(&acls), |_| Ok(String::new()))
    }
}

pub(super) fn check_principal(text: &str) -> Result<(), Usage> {
    match text.parse::<Principal>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Usage(format!("the principal {text}: expected TYPE:NAME, for example User:{text}"))),
    }
}

fn operation(text: &str) -> Result<Operation, Usage> {
    let wanted = text.trim().replace('-', "_");
    let known = || Operation::ALL.iter().copied().filter(|operation| *operation != Operation::Any);
    known().find(|operation| operation.name().eq_ignore_ascii_case(&wanted)).ok_or_else(|| {
        let names: Vec<String> = known().map(|operation| operation.name().to_ascii_lowercase()).collect();
        Usage(format!("the operation {text}: expected one of {}", names.join(", ")))
    })
}

/// The ACLs to list or remove.
#[derive(Args, Debug)]
struct Filter {
    /// Select only ACLs of this principal.
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Select only ACLs for this client address.
    #[arg(long)]
    host: Option<String>,
    /// Select only ACLs of this operation.
    #[arg(long)]
    operation: Option<String>,
    /// Select only ACLs with this effect.
    #[arg(long, value_enum)]
    effect: Option<Effect>,
    #[command(flatten)]
    resources: Resources,
}

impl Filter {
    /// A filter for each resource; without resources, one filter for all.
    fn filters(&self, exact: PatternType) -> Result<Vec<AclFilter>, Usage> {
        let operation = self.operation.as_deref().map_or(Ok(Operation::Any), operation)?;
        let filter = |resource_type, resource_name, pattern_type| AclFilter {
            resource_type,
            resource_name,
            pattern_type,
            principal: self.principal.clone(),
            host: self.host.clone(),
            operation,
            permission: match self.effect {
                None => Permission::Any,
                Some(Effect::Allow) => Permission::Allow,
                Some(Effect::Deny) => Permission::Deny,
            },
        };
        let resources = self.resources.named();
        if resources.is_empty() {
            return Ok(vec![filter(ResourceType::Any, None, PatternType::Any)]);
        }
        let pattern = |kind| match self.resources.prefixed {
            true => self.resources.pattern_of(kind),
            false => exact,
        };
        Ok(resources.into_iter().map(|(kind, name)| filter(kind, Some(name), pattern(kind))).collect())
    }
}

/// List all ACLs, or the ACLs that apply to a resource, including prefixes and *.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security acl list
  thalweg security acl list --topic orders-2025")]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: CommandOutput,
}

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let filters = self.filter.filters(PatternType::Match)?;
        let admin = Admin::new(self.connect.cluster().await?);
        let mut acls = Vec::new();
        for filter in &filters {
            acls.extend(admin.describe_acls(filter).await?);
        }
        self.output.rows(&COLUMNS, &documents(&acls))
    }
}

/// Remove ACLs, and list the removed ones.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security acl remove --principal User:alice --topic orders
  thalweg security acl remove --principal User:alice")]
pub struct Remove {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    filter: Filter,
    /// Remove all ACLs. Required unless a principal, a host or a resource is given.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Remove {
    async fn run(&self) -> anyhow::Result<()> {
        let filters = self.filter.filters(PatternType::Literal)?;
        let anything = filters.iter().any(|filter| {
            filter.resource_name.is_none() && filter.principal.is_none() && filter.host.is_none()
        });
        if anything && !self.all {
            let right = "name a principal, a host or a resource, or confirm with --all";
            return Err(Usage(format!("this would remove the ACLs of everybody: {right}")).into());
        }
        let admin = Admin::new(self.connect.cluster().await?);
        let mut removed = Vec::new();
        for filter in &filters {
            removed.extend(admin.delete_acls(filter).await?);
        }
        if removed.is_empty() {
            return Err(NotFound("no ACL matches".to_owned()).into());
        }
        self.output.rows(&COLUMNS, &documents(&removed))
    }
}

const COLUMNS: [Column<'_>; 7] = [
    ("RESOURCE", "resource_type"),
    ("NAME", "resource_name"),
    ("PATTERN", "pattern_type"),
    ("PRINCIPAL", "principal"),
    ("HOST", "host"),
    ("OPERATION", "operation"),
    ("PERMISSION", "permission"),
];

fn documents(acls: &[Acl]) -> Vec<Value> {
    let document = |acl: &Acl| {
        json!({
            "resource_type": acl.resource_type.name(),
            "resource_name": acl.resource_name,
            "pattern_type": acl.pattern_type.name(),
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name(),
            "permission": acl.permission.name(),
        })
    };
    acls.iter().map(document).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_known_by_kafkas_names_in_any_case() {
        assert_eq!(operation("Describe-Configs").ok(), Some(Operation::DescribeConfigs));
        assert_eq!(operation("ALL").ok(), Some(Operation::All));
        for wrong in ["any", "reed", ""] {
            let error = operation(wrong).expect_err(wrong).to_string();
            assert!(error.contains("expected one of all, read, write"), "{error}");
        }
    }

    #[test]
    fn a_principal_has_a_type() {
        let error = check_principal("alice").expect_err("no type").to_string();
        assert!(error.ends_with("for example User:alice"), "{error}");
    }
}
