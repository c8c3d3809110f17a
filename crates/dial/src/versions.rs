//! The APIs and versions of a broker, and their discovery.
//!
//! ApiVersions is first sent in its newest version. A broker that does not know that version answers in
//! version 0 with UNSUPPORTED_VERSION and its range (KIP-511), and gets a second request within the range.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_wire::request::{ApiVersionsRequest, ApiVersionsResponse};
use thalweg_wire::{ApiKey, ErrorCode, Message, Request, frame};

use crate::error::{ClientError, RefusedRequest, UnreadableResponse, VersionMismatch};

/// The APIs of a broker: first and last version of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiVersions {
    ranges: BTreeMap<i16, (i16, i16)>,
    features: BTreeMap<String, i16>,
    /// The highest supported level of `metadata.version`, if the broker reports it.
    metadata_version_max: Option<i16>,
}

/// The first levels of `metadata.version` of each release of Apache Kafka, newest first.
const RELEASES: [(i16, &str); 11] = [
    (30, "4.3"),
    (28, "4.2"),
    (26, "4.1"),
    (22, "4.0"),
    (21, "3.9"),
    (20, "3.8"),
    (15, "3.7"),
    (12, "3.6"),
    (9, "3.5"),
    (8, "3.4"),
    (4, "3.3"),
];
/// The last level of the newest of these releases.
const NEWEST_LEVEL: i16 = 30;

impl ApiVersions {
    /// All versions of this build, for a peer of the same build.
    pub fn ours() -> ApiVersions {
        let ranges = ApiKey::ALL.iter().map(|&key| (key as i16, key.versions())).collect();
        ApiVersions { ranges, ..ApiVersions::default() }
    }

    /// The versions in a response.
    pub fn from_response(response: &ApiVersionsResponse) -> ApiVersions {
        let keys = response.api_keys.iter();
        let features = response.finalized_features.iter();
        ApiVersions {
            ranges: keys.map(|api| (api.api_key, (api.min_version, api.max_version))).collect(),
            features: features.map(|feature| (feature.name.clone(), feature.max_version_level)).collect(),
            metadata_version_max: response
                .supported_features
                .iter()
                .find(|feature| feature.name == "metadata.version")
                .map(|feature| feature.max_version),
        }
    }

    /// The versions of an API that the broker serves.
    pub fn range(&self, key: ApiKey) -> Option<(i16, i16)> {
        self.ranges.get(&(key as i16)).copied()
    }

    /// The finalized level of a feature, such as `metadata.version`.
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.get(name).copied()
    }

    /// The finalized features with their levels, in the order of their names.
    pub fn features(&self) -> impl Iterator<Item = (&str, i16)> {
        self.features.iter().map(|(name, level)| (name.as_str(), *level))
    }

    /// The release of Apache Kafka that the broker is at least compatible with: that of the highest
    /// `metadata.version` that the broker supports. `None` if the broker reports no level, or one of
    /// before release 3.3.
    pub fn release(&self) -> Option<&'static str> {
        let level = self.metadata_version_max?;
        if level > NEWEST_LEVEL {
            return Some("after 4.3");
        }
        RELEASES.iter().find(|(first, _)| level >= *first).map(|(_, release)| *release)
    }

    /// The newest common version, at most `limit`.
    pub fn newest(&self, key: ApiKey, limit: i16) -> Option<i16> {
        let (ours_min, ours_max) = key.versions();
        let (min, max) = self.range(key)?;
        let version = ours_max.min(max).min(limit);
        (version >= ours_min.max(min)).then_some(version)
    }

    /// Like [`ApiVersions::newest`] without a limit; the error names `peer`.
    pub fn pick<R: Request>(&self, peer: &Arc<str>) -> Result<i16, VersionMismatch> {
        self.newest(R::KEY, i16::MAX).ok_or_else(|| self.mismatch(peer, R::KEY, R::KEY.versions()))
    }

    /// Like [`ApiVersions::pick`]; fails if the version is older than `from`.
    pub fn pick_from<R: Request>(&self, peer: &Arc<str>, from: i16) -> Result<i16, VersionMismatch> {
        let newest = self.newest(R::KEY, i16::MAX).filter(|version| *version >= from);
        newest.ok_or_else(|| self.mismatch(peer, R::KEY, (from, R::KEY.versions().1)))
    }

    /// The error if no version of an API can be used.
    pub fn mismatch(&self, peer: &Arc<str>, api: ApiKey, ours: (i16, i16)) -> VersionMismatch {
        VersionMismatch {
            peer: Arc::clone(peer),
            api,
            ours,
            theirs: self.range(api),
            is_controller: self.is_controller(),
        }
    }

    /// The ApiVersions request in the form of `version`.
    pub fn request(version: i16) -> ApiVersionsRequest {
        if version < 3 {
            return ApiVersionsRequest::default();
        }
        ApiVersionsRequest {
            client_software_name: "thalweg".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// True for the APIs of a KRaft controller: heartbeats of brokers, but no Metadata, the first request of
    /// every client.
    pub fn is_controller(&self) -> bool {
        self.range(ApiKey::BrokerHeartbeat).is_some() && self.range(ApiKey::Metadata).is_none()
    }
}

/// The meaning of an answer to ApiVersions.
pub(crate) enum Answer {
    /// The broker's versions.
    Versions(ApiVersions),
    /// The request has to be repeated in this version.
    AskAgain(i16),
}

/// Decodes the answer to ApiVersions in `version` from a frame without its length.
pub(crate) fn read_answer(frame: Bytes, version: i16, peer: &Arc<str>) -> Result<Answer, ClientError> {
    let unreadable =
        |source| UnreadableResponse { peer: Arc::clone(peer), api: ApiKey::ApiVersions, version, source };
    // The header of this response is only the correlation id; in every version the error code follows.
    let unsupported = ErrorCode::UnsupportedVersion.code().to_be_bytes();
    let fallback = version > 0 && frame.get(4..6) == Some(&unsupported[..]);
    let read_version = if fallback { 0 } else { version };
    let (_, response) =
        frame::decode_response::<ApiVersionsRequest>(frame, read_version).map_err(unreadable)?;
    if fallback {
        let key = ApiKey::ApiVersions;
        let again = ApiVersions::from_response(&response).newest(key, version - 1).unwrap_or(0);
        return Ok(Answer::AskAgain(again));
    }
    RefusedRequest::check(response.error_code, None, || format!("{peer} did not return its versions"))?;
    Ok(Answer::Versions(ApiVersions::from_response(&response)))
}

/// The version of a client's first ApiVersions request.
pub(crate) const FIRST_VERSION: i16 = ApiVersionsRequest::MAX_VERSION;

#[cfg(test)]
mod tests {
    use thalweg_wire::request::api_versions_response::SupportedFeatureKey;

    use super::*;

    #[test]
    fn a_release_is_that_of_the_highest_metadata_version() {
        let release = |level: Option<i16>| {
            let feature = |max_version| SupportedFeatureKey {
                name: "metadata.version".to_owned(),
                min_version: 1,
                max_version,
            };
            let supported_features = level.map(feature).into_iter().collect();
            let response = ApiVersionsResponse { supported_features, ..ApiVersionsResponse::default() };
            ApiVersions::from_response(&response).release()
        };
        for (level, expected) in [
            (None, None),
            (Some(3), None),
            (Some(7), Some("3.3")),
            (Some(14), Some("3.6")),
            (Some(20), Some("3.8")),
            (Some(25), Some("4.0")),
            (Some(29), Some("4.2")),
            (Some(30), Some("4.3")),
            (Some(31), Some("after 4.3")),
        ] {
            assert_eq!(release(level), expected, "{level:?}");
        }
    }
}
