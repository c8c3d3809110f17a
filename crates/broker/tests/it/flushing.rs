//! `flush.messages=1`: acknowledged records are on disk, and one sync serves all waiting producers.

use crate::raw::Raw;
use crate::records::{Topic, batch, produce};
use crate::running::RunningBroker;
use thalweg_metadata::PartitionIndex;
use thalweg_record::Offset;
use thalweg_wire::request::*;

const PRODUCERS: usize = 16;
const EACH: usize = 20;
const IN_FLIGHT: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_before_it_is_on_the_medium() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 2, &[("flush.messages", "1")]).await;
    let mut producers = Vec::new();
    for number in 0..PRODUCERS {
        let mut raw = Raw::connect(&broker).await;
        let partition = i32::from(number % 2 == 0);
        let topic = topic.clone();
        let held =
            broker.server().broker.partitions.get("topic", PartitionIndex(partition)).expect("it is there");
        let published = held.published_offsets();
        // Acks of the leader alone ask for it as well.
        let acks = if number % 3 == 0 { 1 } else { -1 };
        producers.push(tokio::spawn(async move {
            let mut ids = std::collections::VecDeque::new();
            let mut offsets = Vec::new();
            for _ in 0..EACH {
                ids.push_back(raw.send(&produce(12, &topic, partition, acks, batch(&[b"x"])), 12).await);
                if ids.len() < IN_FLIGHT {
                    continue;
                }
                let id = ids.pop_front().expect("in flight");
                offsets.push(acknowledged(&mut raw, id, &published).await);
            }
            for id in ids {
                offsets.push(acknowledged(&mut raw, id, &published).await);
            }
            assert!(offsets.is_sorted(), "in the order in which they were sent");
            (partition, offsets)
        }));
    }
    let mut all = [Vec::new(), Vec::new()];
    for producer in producers {
        let (partition, offsets) = producer.await.expect("no panic");
        all[usize::try_from(partition).expect("small")].extend(offsets);
    }
    for mut offsets in all {
        offsets.sort_unstable();
        let count = i64::try_from(PRODUCERS / 2 * EACH).expect("small");
        assert_eq!(offsets, (0..count).collect::<Vec<_>>(), "each has a place of its own");
    }
    broker.stop().await;
}

/// Waits for an acknowledgement, and sees that the disk has it.
async fn acknowledged(raw: &mut Raw, id: i32, published: &thalweg_log::PublishedOffsets) -> i64 {
    let answer = raw.answer::<ProduceRequest>(id, 12).await.expect("an answer");
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, 0);
    let durable = published.recovery_point();
    assert!(
        durable > Offset(partition.base_offset),
        "{} is acknowledged, {durable:?} is durable",
        partition.base_offset
    );
    partition.base_offset
}
