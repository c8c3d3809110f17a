//! The features of the cluster that this broker can serve (KIP-584), told truthfully: to the controller at
//! registration, and to clients in ApiVersions.

use thalweg_metadata::MetadataVersion;
use thalweg_metadata::feature::{KRAFT_VERSION, METADATA_VERSION};

/// A feature, with the levels that are served.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// The first level.
    pub min: i16,
    /// The last level.
    pub max: i16,
}

/// Every feature that is served. The groups of KIP-848, transactions, eligible leader replicas, share groups and
/// streams groups are not yet.
pub fn supported() -> [Feature; 2] {
    [
        Feature {
            name: METADATA_VERSION,
            min: MetadataVersion::MINIMUM.level(),
            max: MetadataVersion::LATEST.level(),
        },
        Feature { name: KRAFT_VERSION, min: 0, max: 1 },
    ]
}

/// The same, as a registration tells it.
pub fn ranges() -> std::collections::BTreeMap<String, thalweg_metadata::VersionRange> {
    supported()
        .into_iter()
        .map(|f| (f.name.to_owned(), thalweg_metadata::VersionRange { min: f.min, max: f.max }))
        .collect()
}
