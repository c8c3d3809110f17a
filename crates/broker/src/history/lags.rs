//! The lag of the groups that this broker coordinates, in records. Without the ages of unread records, which
//! take searches in logs.

use crate::broker::Broker;
use crate::metrics::LagSources;
use std::sync::Arc;
use thalweg_history::NAME_BYTES_MAX;
use thalweg_metadata::Image;
use thalweg_replica::partition::LocalTopic;
use tokio::time::Instant;

/// The lag of each group over all its partitions that exist; unknown if the end of one is unknown. Ends of
/// partitions without a replica here are requested in the background, for the next sample.
///
/// A group whose id is too long for a series comes without the id: thousands of such ids would take memory
/// for each sample.
pub(super) fn read(
    broker: &Broker,
    sources: &LagSources,
    image: &Image,
) -> Vec<(Option<String>, Option<u64>)> {
    let now = Instant::now();
    let mut groups: Vec<(Option<String>, Option<u64>)> = Vec::new();
    // The partitions of a group follow one another.
    let mut last = String::new();
    // The offsets of a group are in the order of topics.
    let mut local: Option<(String, Option<Arc<LocalTopic>>)> = None;
    let mut is_any_elsewhere = false;
    broker.groups.each_committed(&mut |group, topic, partition, committed| {
        if local.as_ref().is_none_or(|(name, _)| name != topic) {
            local = Some((topic.to_owned(), broker.partitions.topic_by_name(topic)));
        }
        let found = local.as_ref().and_then(|(_, found)| found.as_ref()?.partition(partition));
        let end = match found {
            Some(replica) => Some(replica.published_offsets().high_watermark().0),
            // Offsets in a deleted partition count nowhere.
            None if image.partition(topic, partition).is_none() => return,
            None => {
                is_any_elsewhere = true;
                sources.end_elsewhere(image, topic, partition, now)
            }
        };
        let lag = end.map(|end| u64::try_from(end.saturating_sub(committed)).unwrap_or(0));
        match groups.last_mut().filter(|_| last == group) {
            Some((_, sum)) => *sum = sum.zip(lag).map(|(sum, lag)| sum.saturating_add(lag)),
            None => {
                group.clone_into(&mut last);
                let id = (group.len() <= NAME_BYTES_MAX).then(|| group.to_owned());
                groups.push((id, lag));
            }
        }
    });
    if is_any_elsewhere {
        sources.want_ends();
    }
    groups
}
