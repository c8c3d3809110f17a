//! `topic elect`: elects leaders for partitions.

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, Election, TopicPartition};
use thalweg_wire::ErrorCode;

use crate::connect::Connect;
use crate::outcomes::fail_with;
use crate::output::CommandOutput;
use crate::partitions::{Partitions, resolve};

/// Elect leaders: the preferred ones, which are the first replicas, or any replica where no in-sync replica
/// is left.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg topic elect --all-topics
  thalweg topic elect orders:0 --unclean")]
pub struct Elect {
    #[command(flatten)]
    connect: Connect,
    /// Topics, or some of their partitions as TOPIC:0,3.
    #[arg(value_name = "TOPIC[:PARTITION,...]", required_unless_present = "all_topics")]
    topics: Vec<Partitions>,
    /// Elect leaders of all partitions.
    #[arg(long, conflicts_with = "topics")]
    all_topics: bool,
    /// Elect a replica that is not in sync where all in-sync ones are gone. Acknowledged records may be lost.
    #[arg(long, requires = "topics")]
    unclean: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Elect {
    /// Elects leaders, and prints an outcome for each partition.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions: Option<Vec<TopicPartition>> = match self.all_topics {
            true => None,
            false => Some(resolve(admin.cluster(), &self.topics).await?.into_iter().collect()),
        };
        let election = if self.unclean { Election::Unclean } else { Election::Preferred };
        self.output
            .outcomes(async |done| {
                let (mut errors, mut elected) = (Vec::new(), 0);
                for (at, outcome) in admin.elect_leaders(election, partitions.as_deref()).await? {
                    let (word, sentence) = match outcome {
                        Ok(()) => {
                            elected += 1;
                            ("elected", format!("Elected a leader of {at}."))
                        }
                        Err(error) if error.error_code() == Some(ErrorCode::ElectionNotNeeded) => {
                            ("unchanged", format!("{at} needs no election."))
                        }
                        Err(error) => {
                            errors.push(error);
                            continue;
                        }
                    };
                    done.add(
                        &json!({ "topic": &*at.topic, "partition": at.partition, "outcome": word }),
                        &sentence,
                    )?;
                }
                if elected == 0 && errors.is_empty() && partitions.is_none() {
                    // An answer for all partitions omits partitions that need no election.
                    done.add(&json!({ "outcome": "unchanged" }), "No partition needs an election.")?;
                }
                fail_with(errors)
            })
            .await
    }
}
