//! Finalized features: the levels in use by the whole cluster.

use crate::MetadataVersion;
use std::collections::BTreeMap;

/// The finalized features. Clients see the offset of the image as their epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features {
    metadata_version: Option<MetadataVersion>,
    levels: BTreeMap<String, i16>,
}

impl Features {
    /// The metadata version; none in the image of an empty log.
    pub fn metadata_version(&self) -> Option<MetadataVersion> {
        self.metadata_version
    }

    /// The level of a feature; 0 if not finalized.
    pub fn level(&self, name: &str) -> i16 {
        if name == crate::feature::METADATA_VERSION {
            return self.metadata_version.map_or(0, MetadataVersion::level);
        }
        self.levels.get(name).copied().unwrap_or(0)
    }

    /// Enabled features except `metadata.version`, sorted by name.
    pub fn others(&self) -> impl Iterator<Item = (&str, i16)> {
        self.levels.iter().map(|(name, level)| (name.as_str(), *level))
    }

    /// Enabled features, `metadata.version` first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i16)> {
        let first = self.metadata_version.map(|version| (crate::feature::METADATA_VERSION, version.level()));
        first.into_iter().chain(self.others())
    }

    pub(crate) fn set_metadata_version(&mut self, version: MetadataVersion) {
        self.metadata_version = Some(version);
    }

    pub(crate) fn set_level(&mut self, name: &str, level: i16) {
        if level == 0 {
            self.levels.remove(name);
        } else {
            self.levels.insert(name.to_owned(), level);
        }
    }
}
