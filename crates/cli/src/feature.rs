//! `feature`: levels that all brokers and controllers support, set for the cluster (KIP-584).

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{Admin, FeatureChange, FeatureUpdate};

use super::CommandFuture;
use super::connect::Connect;
use super::failure::Usage;
use super::outcomes::add_outcomes;
use super::output::{Column, CommandOutput};

/// List, upgrade and downgrade feature levels, such as metadata.version.
#[derive(Subcommand, Debug)]
pub enum Feature {
    List(List),
    #[command(after_help = "Example:\n  thalweg feature upgrade metadata.version=29 --dry-run")]
    Upgrade(Change),
    Downgrade(Downgrade),
}

impl Feature {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Feature::List(list) => list.run().await,
                Feature::Upgrade(change) => change.apply(FeatureChange::Upgrade).await,
                Feature::Downgrade(downgrade) => downgrade.run().await,
            }
        })
    }
}

/// List features: the level of the cluster, and what the broker supports.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 5] = [
    ("FEATURE", "feature"),
    ("LEVEL", "level"),
    ("SUPPORTED-MIN", "supported_min"),
    ("SUPPORTED-MAX", "supported_max"),
    ("EPOCH", "epoch"),
];

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let features = Admin::new(self.connect.cluster().await?).describe_features().await?;
        let rows: Vec<serde_json::Value> = features
            .features
            .iter()
            .map(|(name, feature)| {
                json!({
                    "feature": name,
                    "level": feature.level,
                    "supported_min": feature.supported.map(|(min, _)| min),
                    "supported_max": feature.supported.map(|(_, max)| max),
                    "epoch": features.epoch,
                })
            })
            .collect();
        self.output.rows(&COLUMNS, &rows)
    }
}

/// Set higher levels of features.
///
/// All of them change, or none. `feature list` shows which levels brokers support.
#[derive(Args, Debug)]
pub struct Change {
    #[command(flatten)]
    connect: Connect,
    /// The features with their new levels; level 0 turns a feature off.
    #[arg(required = true, value_name = "FEATURE=LEVEL", value_parser = assignment)]
    levels: Vec<(String, i16)>,
    /// Check the request without changing anything.
    #[arg(long, visible_alias = "validate-only")]
    dry_run: bool,
    #[command(flatten)]
    output: CommandOutput,
}

fn assignment(text: &str) -> Result<(String, i16), Usage> {
    let pair = text.split_once('=').and_then(|(feature, level)| {
        let level: i16 = level.parse().ok()?;
        (!feature.is_empty() && level >= 0).then(|| (feature.to_owned(), level))
    });
    pair.ok_or_else(|| {
        Usage(format!("{text:?} is not FEATURE=LEVEL: expected for example metadata.version=29"))
    })
}

impl Change {
    async fn apply(&self, change: FeatureChange) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let updates: BTreeMap<String, FeatureUpdate> = self
            .levels
            .iter()
            .map(|(feature, level)| (feature.clone(), FeatureUpdate { level: *level, change }))
            .collect();
        self.output
            .outcomes(async |done| {
                let results = admin.update_features(&updates, self.dry_run).await?;
                add_outcomes(done, results, |feature, ()| {
                    let level = updates.get(feature).map(|update| update.level);
                    let (outcome, did) = match self.dry_run {
                        true => ("valid", "Could set"),
                        false => ("changed", "Set"),
                    };
                    let document = json!({ "feature": feature, "level": level, "outcome": outcome });
                    (document, format!("{did} {feature} to level {}.", level.unwrap_or_default()))
                })
            })
            .await
    }
}

/// Set lower levels of features.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg feature downgrade metadata.version=27
  thalweg feature downgrade share.version=0")]
pub struct Downgrade {
    #[command(flatten)]
    change: Change,
    /// Allow a downgrade that loses metadata.
    #[arg(long)]
    r#unsafe: bool,
}

impl Downgrade {
    async fn run(&self) -> anyhow::Result<()> {
        let allowed = match self.r#unsafe {
            true => FeatureChange::UnsafeDowngrade,
            false => FeatureChange::SafeDowngrade,
        };
        self.change.apply(allowed).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_number_from_zero_up() {
        assert_eq!(assignment("a=0").expect("valid"), ("a".to_owned(), 0));
        for wrong in ["a", "=1", "a=-1", "a=x", "a=99999"] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
    }
}
