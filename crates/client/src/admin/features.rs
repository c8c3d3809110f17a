//! Feature levels of the cluster (KIP-584), and the Kafka releases of its brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_dial::{ApiVersions, ClientError, RefusedRequest};
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::{ApiVersionsRequest, UpdateFeaturesRequest};

use super::{Admin, Outcomes, refused};
use crate::parallel::in_parallel;

/// A feature, such as `metadata.version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// The level in the cluster; 0 if the feature is off.
    pub level: i16,
    /// The levels that the answering broker supports, if any.
    pub supported: Option<(i16, i16)>,
}

/// The features of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The metadata offset of these levels; `None` if the broker does not know it yet.
    pub epoch: Option<i64>,
    /// The features by name.
    pub features: BTreeMap<String, Feature>,
}

/// The allowed changes of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureChange {
    /// Only to a higher level.
    Upgrade,
    /// Also to a lower level, if no metadata is lost.
    SafeDowngrade,
    /// Also to a lower level that loses metadata.
    UnsafeDowngrade,
}

/// A level to set. Level 0 turns the feature off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// The new level.
    pub level: i16,
    /// The allowed changes.
    pub change: FeatureChange,
}

/// The first version of UpdateFeatures that distinguishes downgrades.
const CHANGES_FROM: i16 = 1;

impl Admin {
    /// The Kafka release of each of these brokers that reports one, and whose connection is there in time.
    pub async fn broker_releases(
        &self,
        brokers: impl IntoIterator<Item = i32>,
        within: Duration,
    ) -> BTreeMap<i32, &'static str> {
        let connecting = brokers.into_iter().map(|id| {
            let cluster = self.cluster.clone();
            async move {
                let connected = tokio::time::timeout(within, cluster.broker(id)).await;
                Some((id, connected.ok()?.ok()?.versions().release()?))
            }
        });
        in_parallel(connecting.collect()).await.into_iter().flatten().collect()
    }

    /// The features of the cluster, as one broker reports them.
    pub async fn describe_features(&self) -> Result<Features, ClientError> {
        let connection = self.cluster.any().await?;
        let version = connection.version_of::<ApiVersionsRequest>()?;
        let response = connection.send_at(&ApiVersions::request(version), version).await?;
        refused(response.error_code, None, || "Describing features".to_owned())?;
        let mut features: BTreeMap<String, Feature> = BTreeMap::new();
        for supported in response.supported_features {
            let range = Some((supported.min_version, supported.max_version));
            features.entry(supported.name).or_default().supported = range;
        }
        for finalized in response.finalized_features {
            features.entry(finalized.name).or_default().level = finalized.max_version_level;
        }
        let epoch = Some(response.finalized_features_epoch).filter(|&epoch| epoch >= 0);
        Ok(Features { epoch, features })
    }

    /// Sets levels of features; with `validate_only`, only checks the change. Either all levels change, or
    /// none.
    pub async fn update_features(
        &self,
        updates: &BTreeMap<String, FeatureUpdate>,
        validate_only: bool,
    ) -> Result<Outcomes<String>, ClientError> {
        let version = self.cluster.any().await?.version_of::<UpdateFeaturesRequest>()?;
        let keys = updates.iter().map(|(feature, update)| {
            let mut key = FeatureUpdateKey {
                feature: feature.clone(),
                max_version_level: update.level,
                ..FeatureUpdateKey::default()
            };
            if version >= CHANGES_FROM {
                key.upgrade_type = match update.change {
                    FeatureChange::Upgrade => 1,
                    FeatureChange::SafeDowngrade => 2,
                    FeatureChange::UnsafeDowngrade => 3,
                };
            } else {
                key.allow_downgrade = update.change != FeatureChange::Upgrade;
            }
            key
        });
        let request = UpdateFeaturesRequest {
            timeout_ms: self.timeout_ms(),
            feature_updates: keys.collect(),
            validate_only,
        };
        let is_retriable = |code| {
            RefusedRequest::check(code, None, String::new)
                .is_err_and(|refused| refused.error_code.is_retriable())
        };
        let what = || "Updating features".to_owned();
        let response = self
            .change(&request, |response| match is_retriable(response.error_code) {
                true => RefusedRequest::check(response.error_code, response.error_message.as_deref(), what),
                false => Ok(()),
            })
            .await?;
        let whole = refused(response.error_code, response.error_message.as_deref(), what);
        let mut outcomes: Outcomes<String> =
            updates.keys().map(|feature| (feature.clone(), whole.clone())).collect();
        // From version 2 on, there is one outcome for all features.
        for result in response.results {
            let what = || format!("Updating feature {}", result.feature);
            let outcome = refused(result.error_code, result.error_message.as_deref(), what);
            outcomes.insert(result.feature.clone(), outcome);
        }
        Ok(outcomes)
    }
}
