//! Rules for topic names besides [`topic_name`]: no collisions in metrics.

use thalweg_metadata::topic_name;

/// The topic of the metadata log, which cannot be created.
pub(crate) const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

/// The reason to refuse a name, in Kafka's words.
pub(super) fn refusal(name: &str) -> Option<String> {
    topic_name::check(name).err().map(|error| error.to_string())
}

/// True if the name could collide in metrics.
pub(super) fn has_collision_characters(name: &str) -> bool {
    name.contains(['.', '_'])
}

/// The name in metrics.
pub(super) fn unify_collision_characters(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_kafka_does() {
        for name in ["a", "a.b_c-D9", "__consumer_offsets", &"x".repeat(249)] {
            assert_eq!(refusal(name), None, "{name}");
        }
        for name in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(refusal(name).is_some(), "{name}");
        }
    }
}
