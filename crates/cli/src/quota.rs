//! `quota`: limits of users, client ids and addresses.

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use thalweg_client::{Admin, QuotaChanges, QuotaEntity, QuotaEntityKind, QuotaFilter, QuotaMatch, Quotas};

use super::CommandFuture;
use super::connect::Connect;
use super::failure::{NotFound, Usage};
use super::outcomes::{add_outcomes, fail_with};
use super::output::{Column, CommandOutput};

/// Describe, set and remove quotas of users, client ids and addresses.
#[derive(Subcommand, Debug)]
pub enum Quota {
    Describe(Describe),
    Set(Set),
    Remove(Remove),
}

impl Quota {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Quota::Describe(describe) => describe.run().await,
                Quota::Set(set) => set.run().await,
                Quota::Remove(remove) => remove.run().await,
            }
        })
    }
}

/// An entity type with a default quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Users without a quota.
    User,
    /// Client ids without a quota.
    ClientId,
    /// Addresses without a quota.
    Ip,
}

impl From<Kind> for QuotaEntityKind {
    fn from(kind: Kind) -> QuotaEntityKind {
        match kind {
            Kind::User => QuotaEntityKind::User,
            Kind::ClientId => QuotaEntityKind::ClientId,
            Kind::Ip => QuotaEntityKind::Ip,
        }
    }
}

/// The owner of quotas. A user and a client id together are this client of this user.
#[derive(Args, Debug)]
struct Entity {
    /// The name of a user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The client.id of clients.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The address of clients.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["user", "client_id"])]
    ip: Option<String>,
    /// The default of all users, client ids or addresses; can be repeated.
    #[arg(long = "default", value_enum, value_name = "KIND")]
    defaults: Vec<Kind>,
}

impl Entity {
    fn named(&self) -> Result<QuotaEntity, Usage> {
        let names = [
            (QuotaEntityKind::User, &self.user),
            (QuotaEntityKind::ClientId, &self.client_id),
            (QuotaEntityKind::Ip, &self.ip),
        ];
        let named = names.into_iter().filter_map(|(kind, name)| Some((kind, Some(name.clone()?))));
        let mut parts: BTreeMap<QuotaEntityKind, Option<String>> = named.collect();
        for kind in self.defaults.iter().map(|kind| QuotaEntityKind::from(*kind)) {
            if parts.insert(kind, None).flatten().is_some() {
                let name = kind.name();
                return Err(Usage(format!("--default {name} and --{name} exclude each other")));
            }
        }
        if parts.contains_key(&QuotaEntityKind::Ip) && parts.len() > 1 {
            return Err(Usage("The quota of an address has no user or client id".to_owned()));
        }
        Ok(QuotaEntity(parts))
    }

    fn required(&self) -> Result<QuotaEntity, Usage> {
        let entity = self.named()?;
        match entity.0.is_empty() {
            false => Ok(entity),
            true => Err(Usage("No entity: expected --user, --client-id, --ip or --default".to_owned())),
        }
    }
}

/// Describe quotas: all, or those of a user, client id or address.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg quota describe
  thalweg quota describe --user alice
  thalweg quota describe --default user --strict")]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    entity: Entity,
    /// Leave out the quotas of the user together with client ids, and the like.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 5] =
    [("USER", "user"), ("CLIENT-ID", "client-id"), ("IP", "ip"), ("QUOTA", "quota"), ("VALUE", "value")];

impl Describe {
    async fn run(&self) -> anyhow::Result<()> {
        let parts = self
            .entity
            .named()?
            .0
            .into_iter()
            .map(|(kind, name)| (kind, name.map_or(QuotaMatch::Default, QuotaMatch::Exact)));
        let filter = QuotaFilter { parts: parts.collect(), strict: self.strict };
        let found = Admin::new(self.connect.cluster().await?).describe_quotas(&filter).await?;
        let rows: Vec<serde_json::Value> =
            found.iter().flat_map(|(entity, quotas)| rows(entity, quotas)).collect();
        self.output.rows(&COLUMNS, &rows)
    }
}

/// A row for each quota of an entity; Kafka writes `<default>` for a default.
fn rows(entity: &QuotaEntity, quotas: &Quotas) -> Vec<serde_json::Value> {
    let name = |kind| entity.0.get(&kind).map(|name| name.as_deref().unwrap_or("<default>"));
    let row = |(quota, value): (&String, &f64)| {
        json!({
            "user": name(QuotaEntityKind::User),
            "client-id": name(QuotaEntityKind::ClientId),
            "ip": name(QuotaEntityKind::Ip),
            "quota": quota,
            "value": value,
        })
    };
    quotas.iter().map(row).collect()
}

/// Set quotas.
///
/// Others of the same user, client id or address stay as they are.
///
/// Kafka's quotas are producer_byte_rate and consumer_byte_rate (bytes per second and broker),
/// request_percentage (percent of a handler thread), controller_mutation_rate (partitions per second), and
/// for addresses connection_creation_rate (per second).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg quota set --user alice producer_byte_rate=10485760
  thalweg quota set --default client-id consumer_byte_rate=1048576 request_percentage=50
  thalweg quota set --ip 10.0.0.7 connection_creation_rate=5")]
pub struct Set {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    entity: Entity,
    /// The quotas, with their new values.
    #[arg(required = true, value_name = "QUOTA=NUMBER", value_parser = assignment)]
    quotas: Vec<(String, f64)>,
    /// Check the request without changing anything.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    output: CommandOutput,
}

fn assignment(text: &str) -> Result<(String, f64), Usage> {
    let pair = text.split_once('=').and_then(|(key, value)| {
        let value: f64 = value.parse().ok()?;
        (!key.is_empty() && value.is_finite()).then(|| (key.to_owned(), value))
    });
    pair.ok_or_else(|| {
        Usage(format!("{text:?} is not QUOTA=NUMBER: expected for example producer_byte_rate=1048576"))
    })
}

impl Set {
    async fn run(&self) -> anyhow::Result<()> {
        let changes = self.quotas.iter().map(|(key, value)| (key.clone(), Some(*value))).collect();
        alter(&self.connect, &self.output, self.entity.required()?, changes, self.validate_only).await
    }
}

/// Remove quotas: these, or all.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg quota remove --user alice producer_byte_rate
  thalweg quota remove --default client-id --all")]
pub struct Remove {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    entity: Entity,
    /// The quotas to remove.
    #[arg(value_name = "QUOTA", required_unless_present = "all")]
    quotas: Vec<String>,
    /// All of them.
    #[arg(long, conflicts_with = "quotas")]
    all: bool,
    /// Check the request without changing anything.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Remove {
    async fn run(&self) -> anyhow::Result<()> {
        let entity = self.entity.required()?;
        let set = self.set_for(&entity).await?;
        let missing = self.quotas.iter().filter(|quota| !set.contains(quota));
        let missing = missing.map(|quota| NotFound(format!("There is no quota {quota} of {entity}")));
        fail_with(missing.collect())?;
        let quotas = if self.all { set } else { self.quotas.clone() };
        let changes = quotas.into_iter().map(|key| (key, None)).collect();
        alter(&self.connect, &self.output, entity, changes, self.validate_only).await
    }

    async fn set_for(&self, entity: &QuotaEntity) -> anyhow::Result<Vec<String>> {
        let parts = entity
            .0
            .iter()
            .map(|(kind, name)| (*kind, name.clone().map_or(QuotaMatch::Default, QuotaMatch::Exact)));
        let filter = QuotaFilter { parts: parts.collect(), strict: true };
        let mut found = Admin::new(self.connect.cluster().await?).describe_quotas(&filter).await?;
        Ok(found.remove(entity).unwrap_or_default().into_keys().collect())
    }
}

async fn alter(
    connect: &Connect,
    output: &CommandOutput,
    entity: QuotaEntity,
    changes: QuotaChanges,
    validate_only: bool,
) -> anyhow::Result<()> {
    let admin = Admin::new(connect.cluster().await?);
    output
        .outcomes(async |done| {
            if changes.is_empty() {
                let unchanged = json!({ "entity": entity.to_string(), "outcome": "unchanged" });
                return done.add(&unchanged, &format!("There is no quota of {entity}."));
            }
            let results = admin.alter_quotas(&BTreeMap::from([(entity, changes)]), validate_only).await?;
            add_outcomes(done, results, |entity, ()| {
                let (outcome, did) = match validate_only {
                    true => ("valid", "Could change"),
                    false => ("changed", "Changed"),
                };
                let document = json!({ "entity": entity.to_string(), "outcome": outcome });
                (document, format!("{did} the quotas of {entity}."))
            })
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_number() {
        assert_eq!(assignment("a=1.5").expect("valid"), ("a".to_owned(), 1.5));
        for wrong in ["a", "=1", "a=", "a=x", "a=inf", "a=NaN"] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_stands_alone_and_a_name_excludes_its_default() {
        let entity = |user: Option<&str>, ip: Option<&str>, defaults: &[Kind]| Entity {
            user: user.map(str::to_owned),
            client_id: None,
            ip: ip.map(str::to_owned),
            defaults: defaults.to_vec(),
        };
        assert!(entity(None, None, &[]).required().is_err());
        assert!(entity(Some("a"), None, &[Kind::User]).named().is_err());
        assert!(entity(None, Some("::1"), &[Kind::User]).named().is_err());
        let both = entity(Some("a"), None, &[Kind::ClientId]).required().expect("valid");
        assert_eq!(both.to_string(), "user a, default client-id");
    }
}
