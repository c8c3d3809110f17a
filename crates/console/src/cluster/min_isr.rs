//! `min.insync.replicas` of topics, read only where replicas are missing: elsewhere it decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_client::{Admin, ConfigResource, DescribeConfigs};

const NAME: &str = "min.insync.replicas";

/// The minimum of some topics.
#[derive(Default)]
pub struct MinIsr {
    asked: BTreeSet<String>,
    /// Topics whose configuration the login may see.
    by_topic: BTreeMap<String, usize>,
}

impl MinIsr {
    /// Reads the minimum of these topics. Topics without an answer have none.
    pub async fn read(admin: &Admin, topics: BTreeSet<String>) -> MinIsr {
        let resources: Vec<ConfigResource> = topics.iter().cloned().map(ConfigResource::Topic).collect();
        let wanted = DescribeConfigs { names: Some(vec![NAME.to_owned()]), ..DescribeConfigs::default() };
        let described = admin.describe_configs_with(&resources, &wanted).await.unwrap_or_default();
        let minimum = described.into_iter().filter_map(|(resource, entries)| {
            let ConfigResource::Topic(name) = resource else { return None };
            Some((name, entries.ok()?.remove(NAME)?.value?.parse().ok()?))
        });
        MinIsr { by_topic: minimum.collect(), asked: topics }
    }

    #[cfg(test)]
    pub fn of(topic: &str, minimum: usize) -> MinIsr {
        MinIsr {
            asked: BTreeSet::from([topic.to_owned()]),
            by_topic: BTreeMap::from([(topic.to_owned(), minimum)]),
        }
    }

    /// The minimum of a topic, if the login may see it.
    pub fn get(&self, topic: &str) -> Option<usize> {
        self.by_topic.get(topic).copied()
    }

    /// True if all these topics were asked for.
    pub fn covers(&self, topics: &BTreeSet<String>) -> bool {
        topics.is_subset(&self.asked)
    }
}
