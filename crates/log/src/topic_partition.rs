//! The name of a partition, and of the directory that holds it.
//!
//! Owns: the mapping between the two, including the suffixes of directories on their way out. Refuses: judging
//! topic names beyond what a directory name needs.

use std::fmt;
use std::sync::Arc;

use crate::uuid::Uuid;

/// The suffix of a directory whose partition was deleted.
pub const DELETE_DIR_SUFFIX: &str = "-delete";

/// The suffix of a directory whose partition belongs to no topic of the cluster.
pub const STRAY_DIR_SUFFIX: &str = "-stray";

/// The longest file name of the usual file systems.
const NAME_MAX: usize = 255;

/// A topic's name and the index of one of its partitions. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The name of the topic.
    pub topic: Arc<str>,
    /// The index of the partition.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    pub fn new(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: Arc::from(topic), partition }
    }

    /// The name of the partition's directory: `<topic>-<partition>`.
    pub fn dir_name(&self) -> String {
        self.to_string()
    }

    /// A fresh name for the directory of this partition once it is deleted.
    pub fn delete_dir_name(&self) -> String {
        self.unique_dir_name(DELETE_DIR_SUFFIX)
    }

    /// A fresh name for the directory of this partition once it is known to be a stray.
    pub fn stray_dir_name(&self) -> String {
        self.unique_dir_name(STRAY_DIR_SUFFIX)
    }

    fn unique_dir_name(&self, suffix: &str) -> String {
        let unique: String = Uuid::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let ending = format!("-{}.{unique}{suffix}", self.partition);
        let mut kept = self.topic.len().min(NAME_MAX - ending.len());
        while !self.topic.is_char_boundary(kept) {
            kept -= 1;
        }
        format!("{}{ending}", &self.topic[..kept])
    }

    /// Reads the name of a partition's directory; `None` for any other name.
    pub fn from_dir_name(name: &str) -> Option<TopicPartition> {
        let (topic, partition) = name.rsplit_once('-')?;
        let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
        if topic.is_empty() || !digits {
            return None;
        }
        Some(TopicPartition::new(topic, partition.parse().ok()?))
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_kafkas() {
        let partition = TopicPartition::new("a-b.c", 12);
        assert_eq!(partition.dir_name(), "a-b.c-12");
        assert_eq!(TopicPartition::from_dir_name("a-b.c-12"), Some(partition));
        for name in ["", "a", "-1", "a-", "a-x", "a--", "a-1.deadbeef-delete", "a-99999999999"] {
            assert_eq!(TopicPartition::from_dir_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_name_of_a_deleted_directory_fits_into_a_file_name() {
        let name = TopicPartition::new(&"t".repeat(249), 1).delete_dir_name();
        assert!(name.len() <= NAME_MAX && name.ends_with(DELETE_DIR_SUFFIX), "{name}");
    }
}
