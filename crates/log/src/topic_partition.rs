//! The name of a partition, and of its directory.
//!
//! Owns: the mapping between the two, including the suffixes of directories to be removed. Refuses:
//! validating topic names beyond the needs of a directory name.

use std::fmt;
use std::sync::Arc;

use thalweg_ids::Uuid;

/// The suffix of a directory whose partition was deleted.
pub const DELETE_DIR_SUFFIX: &str = "-delete";

/// The suffix of a directory whose partition belongs to no topic of the cluster.
pub const STRAY_DIR_SUFFIX: &str = "-stray";

/// The suffix of a directory with a copy that will replace a partition's log.
pub const FUTURE_DIR_SUFFIX: &str = "-future";

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

    /// A new name for the directory of this partition once it is deleted.
    pub fn delete_dir_name(&self) -> String {
        self.unique_dir_name(DELETE_DIR_SUFFIX)
    }

    /// A new name for the directory of this partition once it is known to be a stray.
    pub fn stray_dir_name(&self) -> String {
        self.unique_dir_name(STRAY_DIR_SUFFIX)
    }

    /// A new name for the directory of a copy of this partition. If the topic name is too long, it is
    /// shortened, and [`TopicPartition::can_move`] returns `false`.
    pub fn future_dir_name(&self) -> String {
        self.unique_dir_name(FUTURE_DIR_SUFFIX)
    }

    /// True if the name of the topic leaves room for the suffix of a copy's directory.
    pub fn can_move(&self) -> bool {
        self.future_dir_name().starts_with(&self.dir_name())
    }

    /// Reads the name of a copy's directory; `None` for any other name.
    pub fn from_future_dir_name(name: &str) -> Option<TopicPartition> {
        let (partition, unique) = name.strip_suffix(FUTURE_DIR_SUFFIX)?.rsplit_once('.')?;
        let is_unique = unique.len() == 32 && unique.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_unique { TopicPartition::from_dir_name(partition) } else { None }
    }

    /// The new name of the log's directory when the copy in this directory replaces it.
    pub fn retired_dir_name(future_dir_name: &str) -> Option<String> {
        Some(format!("{}{DELETE_DIR_SUFFIX}", future_dir_name.strip_suffix(FUTURE_DIR_SUFFIX)?))
    }

    fn unique_dir_name(&self, suffix: &str) -> String {
        let unique = format!("{:032x}", Uuid::random().0);
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
    fn the_name_of_a_copy_has_its_partition() {
        let partition = TopicPartition::new("a-b.c", 12);
        let name = partition.future_dir_name();
        assert!(partition.can_move());
        assert_eq!(TopicPartition::from_future_dir_name(&name), Some(partition));
        let retired = TopicPartition::retired_dir_name(&name).expect("it is that of a copy");
        assert_eq!(retired.strip_suffix("-delete"), name.strip_suffix("-future"));
        let kafkas = "t-3.0123456789abcdef0123456789abcdef-future";
        assert_eq!(TopicPartition::from_future_dir_name(kafkas), Some(TopicPartition::new("t", 3)));
        for name in ["t-3-future", "t-3.12-future", "t.0123456789abcdef0123456789abcdef-future"] {
            assert_eq!(TopicPartition::from_future_dir_name(name), None, "{name}");
        }
        assert!(!TopicPartition::new(&"t".repeat(249), 1).can_move());
    }

    #[test]
    fn the_name_of_a_deleted_directory_fits_into_a_file_name() {
        let name = TopicPartition::new(&"t".repeat(249), 1).delete_dir_name();
        assert!(name.len() <= NAME_MAX && name.ends_with(DELETE_DIR_SUFFIX), "{name}");
    }
}
