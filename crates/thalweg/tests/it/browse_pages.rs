//! Pages of a topic: searches that continue at the positions of other searches.

use thalweg_browse::{Filter, Limits, Order, Query, TextTest};
use thalweg_client::{Producer, ProducerRecord};
use tokio::time::Instant;

use crate::binary::Broker;
use crate::browse::{cluster, config, create, in_order, runtime, search};

/// Pages of a topic from one end to the other: each search continues at the positions of the one before.
async fn walk(broker: &Broker, query: &Query) -> Vec<Vec<(i32, i64)>> {
    let mut query = query.clone();
    let mut pages = Vec::new();
    loop {
        let (found, ended) = search(broker, query.clone()).await;
        pages.push(in_order(&found));
        assert!(pages.len() < 2000, "no page comes nearer to the end");
        assert!(ended.progress.unreadable.is_empty(), "{:?}", ended.progress.unreadable);
        let positions = &ended.progress.partitions;
        let resume = positions.iter().map(|one| (one.partition, one.resume)).collect();
        let is_end = match query.order {
            Order::NewestFirst => positions.iter().all(|one| one.resume <= one.earliest),
            _ => positions.iter().all(|one| one.resume >= one.latest),
        };
        match query.order {
            Order::NewestFirst => query.ends = resume,
            _ => query.starts = resume,
        }
        if is_end {
            return pages;
        }
    }
}

#[test]
fn pages_continue_where_the_last_one_ended_without_missing_or_repeated_messages() {
    let broker = Broker::start();
    create(&broker, "mixed", "--partitions 4");
    runtime().block_on(async {
        let mut producer = Producer::new(cluster(&broker).await, config(&[]), |_| {});
        let topic = producer.topic("mixed").await.expect("it is there");
        // Timestamps run neither by offset nor by partition, and one partition has no match.
        let (mut state, mut matching) = (4711u64, Vec::new());
        let mut lengths = [0i64; 4];
        for number in 0..300u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let partition = [0, 0, 1, 2, 2, 2, 3][(state >> 33) as usize % 7];
            let is_match = partition != 3 && (state >> 40).is_multiple_of(11);
            if is_match {
                matching.push((partition, lengths[partition as usize]));
            }
            lengths[partition as usize] += 1;
            let record = ProducerRecord {
                topic,
                partition: Some(partition),
                timestamp: 1_700_000_000_000 + i64::try_from((state >> 45) % 5000).expect("small"),
                key: None,
                value: Some(if is_match { b"a needle in it" } else { b"hay" }),
                headers: &[],
                sent_at: Instant::now(),
                number,
            };
            producer.send(&record).await.expect("there is room");
        }
        producer.close().await;
        matching.sort_unstable();
        let all: Vec<(i32, i64)> = (0..4i32)
            .flat_map(|partition| (0..lengths[partition as usize]).map(move |offset| (partition, offset)))
            .collect();
        let needle = Filter { value: Some(TextTest::contains("needle")), ..Filter::default() };
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for (filter, limits, expected) in [
                (Filter::default(), Limits { matches: Some(17), ..Limits::default() }, &all),
                (needle.clone(), Limits { matches: Some(5), ..Limits::default() }, &matching),
                (needle.clone(), Limits { matches: Some(500), ..Limits::default() }, &matching),
                // The bytes cut every page after a few messages.
                (Filter::default(), Limits { bytes: Some(128), ..Limits::default() }, &all),
                (needle.clone(), Limits { bytes: Some(32), ..Limits::default() }, &matching),
                (Filter::default(), Limits { read_bytes: Some(1), ..Limits::default() }, &all),
            ] {
                let what = format!("{order:?} {limits:?}");
                let pages = walk(&broker, &Query { order, filter, limits, ..Query::new("mixed") }).await;
                let most = limits.matches.unwrap_or(usize::MAX);
                assert!(pages.iter().all(|page| page.len() <= most), "{what}");
                let mut shown: Vec<(i32, i64)> = pages.concat();
                shown.sort_unstable();
                assert_eq!(&shown, expected, "{what}");
                // Within a partition, the pages keep the order of the offsets.
                for partition in 0..4 {
                    let of = pages.concat().into_iter().filter(|one| one.0 == partition);
                    let offsets: Vec<i64> = of.map(|one| one.1).collect();
                    let is_sorted = match order {
                        Order::NewestFirst => offsets.is_sorted_by(|first, next| first > next),
                        _ => offsets.is_sorted_by(|first, next| first < next),
                    };
                    assert!(is_sorted, "{what}: partition {partition}: {offsets:?}");
                }
            }
        }
    });
}
