//! The features of the cluster (KIP-584): the levels that this broker serves, and the levels that it reports
//! to controllers, which admit only brokers that support every finalized level.
//!
//! Served features are always reported. An unserved feature is reported only if it is already enabled in the
//! cluster, because the broker would not be admitted otherwise. This broker then rejects requests that depend
//! on the feature with a clear error, and logs them. A disabled feature stays disabled: a controller does not
//! enable a feature that a registered broker does not support, so no data is lost by surprise.

use std::collections::BTreeMap;
use thalweg_metadata::feature::{
    ELIGIBLE_LEADER_REPLICAS_VERSION, GROUP_VERSION, KRAFT_VERSION, METADATA_VERSION, SHARE_VERSION,
    STREAMS_VERSION, TRANSACTION_VERSION,
};
use thalweg_metadata::{MetadataVersion, VersionRange};

/// The highest served level of `group.version`: 1 with the consumer protocol (KIP-848).
pub const GROUP_VERSION_SERVED: i16 = 1;
/// The highest served level of `share.version`: 1 with share groups (KIP-932).
pub const SHARE_VERSION_SERVED: i16 = 1;
/// The highest served level of `streams.version`: 1 with streams groups (KIP-1071).
pub const STREAMS_VERSION_SERVED: i16 = 1;

/// A feature and its served levels.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    pub name: &'static str,
    /// Lowest served level.
    pub min: i16,
    /// Highest served level.
    pub max: i16,
}

/// All served features.
pub fn supported() -> Vec<Feature> {
    let mut supported = vec![
        Feature {
            name: METADATA_VERSION,
            min: MetadataVersion::MINIMUM.level(),
            max: MetadataVersion::LATEST.level(),
        },
        Feature { name: KRAFT_VERSION, min: 0, max: 1 },
        Feature { name: TRANSACTION_VERSION, min: 0, max: 2 },
        // Implemented by the controller (KIP-966); the broker only reports whether its last stop was clean.
        Feature { name: ELIGIBLE_LEADER_REPLICAS_VERSION, min: 0, max: 1 },
    ];
    let protocols = PROTOCOLS.iter().filter(|protocol| protocol.served > 0);
    supported.extend(protocols.map(|protocol| Feature { name: protocol.name, min: 0, max: protocol.served }));
    supported
}

/// The served features in the form of a registration.
pub fn ranges() -> BTreeMap<String, VersionRange> {
    supported().into_iter().map(|f| (f.name.to_owned(), VersionRange { min: f.min, max: f.max })).collect()
}

/// The features of a new cluster of the embedded controller, besides its metadata version and
/// `kraft.version`: the served ones among those of Kafka's format. New clusters start with the latest
/// metadata version, at which Kafka's format enables every feature at its latest level.
pub fn of_new_clusters() -> BTreeMap<String, i16> {
    let others = [(TRANSACTION_VERSION, 2), (ELIGIBLE_LEADER_REPLICAS_VERSION, 1)];
    let protocols = PROTOCOLS.iter().map(|protocol| (protocol.name, protocol.served));
    let features = others.into_iter().chain(protocols).filter(|(_, level)| *level > 0);
    features.map(|(name, level)| (name.to_owned(), level)).collect()
}

/// The feature of a group protocol: its served level, its level in Kafka 4.3, and the effect on users of this
/// broker if the cluster has a higher level.
struct Protocol {
    name: &'static str,
    served: i16,
    known: i16,
    refused: &'static str,
}

const PROTOCOLS: [Protocol; 3] = [
    Protocol {
        name: GROUP_VERSION,
        served: GROUP_VERSION_SERVED,
        known: 1,
        refused: "consumers with group.protocol=consumer are refused; group.protocol=classic is served",
    },
    Protocol {
        name: SHARE_VERSION,
        served: SHARE_VERSION_SERVED,
        known: 1,
        refused: "share consumers are refused",
    },
    Protocol {
        name: STREAMS_VERSION,
        served: STREAMS_VERSION_SERVED,
        known: 1,
        refused: "members of streams groups are refused",
    },
];

/// The features that a broker reports to its cluster's controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The ranges in the registration.
    pub ranges: BTreeMap<String, VersionRange>,
    /// Features enabled in the cluster but not served by this broker: name, level, and the refused requests.
    pub unserved: Vec<(String, i16, &'static str)>,
    /// Features that prevent this broker's admission: name, level, and the supported range.
    pub beyond: Vec<(String, i16, VersionRange)>,
}

impl Claims {
    /// Extends `served` by features that are finalized at these levels.
    pub fn of<'a>(
        served: &BTreeMap<String, VersionRange>,
        finalized: impl IntoIterator<Item = (&'a str, i16)>,
    ) -> Claims {
        let mut claims = Claims { ranges: served.clone(), unserved: Vec::new(), beyond: Vec::new() };
        for (name, level) in finalized {
            let range = served.get(name).copied().unwrap_or(VersionRange::DISABLED);
            if range.contains(level) {
                continue;
            }
            match PROTOCOLS.iter().find(|protocol| protocol.name == name && level <= protocol.known) {
                Some(protocol) => {
                    claims.ranges.insert(name.to_owned(), VersionRange { min: 0, max: level });
                    claims.unserved.push((name.to_owned(), level, protocol.refused));
                }
                None => claims.beyond.push((name.to_owned(), level, range)),
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of a cluster formatted by Kafka 4.3.
    const KAFKA_4_3: [(&str, i16); 7] = [
        (METADATA_VERSION, 30),
        (KRAFT_VERSION, 1),
        (GROUP_VERSION, 1),
        (TRANSACTION_VERSION, 2),
        (ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
        (SHARE_VERSION, 1),
        (STREAMS_VERSION, 1),
    ];

    #[test]
    fn new_cluster_begins_as_kafka_formats_it_as_far_as_it_is_served() {
        // The controller sets the metadata version and the quorum's version.
        let own = [METADATA_VERSION, KRAFT_VERSION];
        let served = KAFKA_4_3.into_iter().filter(|(name, _)| ranges().contains_key(*name));
        let expected = served.filter(|(name, _)| !own.contains(name));
        assert_eq!(of_new_clusters(), expected.map(|(name, level)| (name.to_owned(), level)).collect());
    }

    #[test]
    fn a_cluster_of_kafkas_defaults_admits_the_broker_and_it_names_what_it_refuses() {
        let claims = Claims::of(&ranges(), KAFKA_4_3);
        for (name, level) in KAFKA_4_3 {
            assert!(claims.ranges[name].contains(level), "{name}");
        }
        let unserved: Vec<&str> = claims.unserved.iter().map(|(name, ..)| name.as_str()).collect();
        let expected = PROTOCOLS.iter().filter(|protocol| protocol.served < protocol.known);
        assert_eq!(unserved, expected.map(|protocol| protocol.name).collect::<Vec<_>>());
        assert_eq!(claims.beyond, []);
    }

    #[test]
    fn what_is_off_and_not_served_is_not_claimed() {
        let claims = Claims::of(&ranges(), [(METADATA_VERSION, 21), (GROUP_VERSION, 0)]);
        assert_eq!(claims.ranges, ranges());
        assert_eq!(claims.unserved, []);
    }

    #[test]
    fn a_protocol_is_claimed_and_on_in_new_clusters_at_the_level_that_is_served() {
        for protocol in &PROTOCOLS {
            assert!((0..=protocol.known).contains(&protocol.served), "{}", protocol.name);
            let served = ranges().get(protocol.name).map_or(0, |range| range.max);
            assert_eq!(served, protocol.served, "{}", protocol.name);
            assert_eq!(of_new_clusters().get(protocol.name).copied().unwrap_or(0), protocol.served);
        }
    }

    #[test]
    fn a_level_that_nobody_knows_is_not_claimed() {
        let claims = Claims::of(&ranges(), [(METADATA_VERSION, 31), (SHARE_VERSION, 2), ("new", 1)]);
        assert_eq!(claims.ranges, ranges());
        let served = VersionRange { min: 7, max: 30 };
        let share = ranges().get(SHARE_VERSION).copied().unwrap_or(VersionRange::DISABLED);
        let expected = [
            (METADATA_VERSION.to_owned(), 31, served),
            (SHARE_VERSION.to_owned(), 2, share),
            ("new".to_owned(), 1, VersionRange::DISABLED),
        ];
        assert_eq!(claims.beyond, expected);
    }
}
