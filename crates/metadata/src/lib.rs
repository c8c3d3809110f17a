//! The cluster image: metadata records replayed into an image, deltas between images. Pure.
//!
//! - [`Image`] is the state of a cluster at one offset of its metadata log: features, brokers, topics with
//!   partitions, configurations, quotas, access control, producer ids. An image is immutable and shared by
//!   `Arc`.
//! - [`Delta`] is an image plus replayed records. A delta copies only touched parts, records the changes, and
//!   becomes the next image.
//! - [`Loader`] converts the batches of a log or a snapshot to deltas, on batch boundaries and never within a
//!   metadata transaction.
//! - [`batches`] reads the batches of a metadata log and its snapshots.
//! - [`Image::to_records`] writes an image as the records of a snapshot.
//!
//! The crate reads no clock, file or socket, and skips nothing: an inapplicable record is a [`ReplayError`],
//! after which the node must stop, because continuing would diverge from the cluster.

mod access;
pub mod batches;
mod broker;
mod cell;
mod changes;
mod configs;
mod cow_map;
mod delta;
mod error;
mod features;
mod image;
mod loader;
mod partition;
mod quotas;
mod replay;
#[cfg(test)]
mod tests;
mod to_records;
pub mod topic_name;
mod topics;
mod version;

pub use access::{AccessControlEntries, AccessControlEntry, DelegationToken, ScramCredential};
pub use broker::{BrokerRegistration, ControllerRegistration, Endpoint, VersionRange};
pub use cell::ImageCell;
pub use changes::{Changes, LocalChanges, LocalPartition};
pub use configs::{ConfigMap, ConfigResource, ConfigResourceKind, Configs, edit_list};
pub use delta::Delta;
pub use error::ReplayError;
pub use features::Features;
pub use image::{Cluster, Image, Provenance, ScramCredentials};
pub use loader::{Loader, PublishedImage};
pub use partition::{
    DIRECTORY_FULL, DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, LeaderRecoveryState,
    NO_LEADER_CHANGE, PartitionRegistration,
};
pub use quotas::{QuotaEntity, Quotas};
pub use thalweg_ids::{BrokerEpoch, BrokerId, PartitionEpoch, PartitionIndex, TopicIdPartition};
pub use topics::{Topic, Topics};
pub use version::{MetadataVersion, VersionedRecord, feature};
