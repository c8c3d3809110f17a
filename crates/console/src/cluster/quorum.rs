//! The quorum of controllers, and the feature levels of the cluster.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use thalweg_client::verdict::{ControllerFailure, answer_of_controllers};
use thalweg_client::{ClientError, FeatureChange, FeatureUpdate, QuorumDescription, QuorumReplica};
use utoipa::ToSchema;

use super::View;
use super::controllers::WAIT;
use crate::problem::Problem;

/// The controller quorum.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quorum {
    /// The node id of the leader; -1 without a leader.
    pub leader: i32,
    /// The leader epoch.
    pub epoch: i32,
    /// The high watermark of the metadata log.
    pub high_watermark: i64,
    /// The voting nodes: controllers.
    pub voters: Vec<QuorumNode>,
    /// Observers: brokers, and controllers without a vote.
    pub observers: Vec<QuorumNode>,
}

/// A node of the quorum.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuorumNode {
    /// The node id.
    pub id: i32,
    /// The log end offset of the node.
    pub end: i64,
    /// Records between the log end of the node and the highest log end of the quorum.
    pub lag: i64,
    /// Time of the last fetch in milliseconds since 1970, if the leader reports it.
    pub last_fetch_ms: Option<i64>,
}

/// A cluster feature.
#[derive(Debug, Serialize, ToSchema)]
pub struct Feature {
    /// The feature name.
    pub name: String,
    /// The finalized level; none if not set.
    pub level: Option<i16>,
    /// The lowest level supported by the broker; none if the broker lacks the feature.
    pub supported_min: Option<i16>,
    /// The highest level supported by the broker.
    pub supported_max: Option<i16>,
}

/// A change of a feature level.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LevelChange {
    /// The feature, such as `metadata.version`.
    pub feature: String,
    /// The new level; 0 disables the feature.
    pub level: i16,
    /// The permitted kind of change.
    #[serde(default)]
    pub change: Direction,
    /// True to validate only.
    #[serde(default)]
    pub dry_run: bool,
}

/// The permitted kind of a level change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To a higher level.
    #[default]
    Upgrade,
    /// To a lower level, if no metadata is lost.
    Downgrade,
    /// To a lower level, even if metadata is lost.
    Unsafe,
}

/// Reads the quorum.
pub async fn read(view: &View) -> Result<Quorum, Problem> {
    let quorum = described(view.forwarded.describe_quorum()).await?;
    let end =
        quorum.voters.iter().chain(&quorum.observers).map(|node| node.log_end_offset).max().unwrap_or(0);
    let nodes = |nodes: &[QuorumReplica]| {
        let mut nodes: Vec<QuorumNode> = nodes
            .iter()
            .map(|node| QuorumNode {
                id: node.id,
                end: node.log_end_offset,
                lag: (end - node.log_end_offset).max(0),
                last_fetch_ms: node.last_fetch_ms.filter(|ms| *ms > 0),
            })
            .collect();
        nodes.sort_by_key(|node| node.id);
        nodes
    };
    Ok(Quorum {
        leader: quorum.leader_id.unwrap_or(-1),
        epoch: quorum.leader_epoch,
        high_watermark: quorum.high_watermark,
        voters: nodes(&quorum.voters),
        observers: nodes(&quorum.observers),
    })
}

/// The description of the quorum within a time limit.
async fn described(
    answer: impl Future<Output = Result<QuorumDescription, ClientError>>,
) -> Result<QuorumDescription, Problem> {
    answer_of_controllers(WAIT, answer).await.map_err(|failure| match failure {
        ControllerFailure::Failed(error) => error.into(),
        ControllerFailure::Silent(_) => Problem {
            status: StatusCode::GATEWAY_TIMEOUT,
            kind: "timed out".to_owned(),
            message: format!(
                "No active controller has answered within {} s; the overview shows whether the brokers answer",
                WAIT.as_secs()
            ),
        },
    })
}

/// Reads the features from one broker.
pub async fn features(view: &View) -> Result<Vec<Feature>, ClientError> {
    let found = view.admin().describe_features().await?.features;
    let features = found.into_iter().map(|(name, feature)| Feature {
        name,
        level: Some(feature.level).filter(|level| *level > 0),
        supported_min: feature.supported.map(|(min, _)| min),
        supported_max: feature.supported.map(|(_, max)| max),
    });
    Ok(features.collect())
}

/// Sets the level of a feature, or validates the change.
pub async fn set_level(view: &View, change: &LevelChange) -> Result<(), Problem> {
    if change.level < 0 {
        return Err(Problem::wrong(format!("{} is no level: use 0 or more", change.level)));
    }
    let allowed = match change.change {
        Direction::Upgrade => FeatureChange::Upgrade,
        Direction::Downgrade => FeatureChange::SafeDowngrade,
        Direction::Unsafe => FeatureChange::UnsafeDowngrade,
    };
    let update = FeatureUpdate { level: change.level, change: allowed };
    let updates = BTreeMap::from([(change.feature.trim().to_owned(), update)]);
    let outcomes = view.admin().update_features(&updates, change.dry_run).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thalweg_client::{BrokerUnknown, RequestTimedOut};
    use thalweg_wire::ApiKey;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_an_active_controller_the_broker_is_not_blamed() {
        let timeout = Duration::from_secs(2);
        let late = RequestTimedOut { peer: "localhost:9092".into(), api: ApiKey::DescribeQuorum, timeout };
        let expected = "No active controller has answered within 3 s";
        for problem in [described(async { Err(late.into()) }).await, described(std::future::pending()).await]
        {
            let problem = problem.expect_err("there is no answer");
            assert_eq!(problem.status, StatusCode::GATEWAY_TIMEOUT);
            assert!(problem.message.starts_with(expected), "{}", problem.message);
        }
    }

    #[tokio::test]
    async fn a_broker_that_is_not_reached_is_no_silence_of_the_controllers() {
        let unknown = BrokerUnknown { id: 1 };
        let problem = described(async { Err(unknown.into()) }).await.expect_err("there is no answer");
        assert_eq!((problem.status, &*problem.message), (StatusCode::BAD_GATEWAY, &*unknown.to_string()));
    }
}
