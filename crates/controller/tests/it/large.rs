//! Large requests and many at once: the same results as small ones, and no delays for others.

#![expect(clippy::disallowed_methods, reason = "real time is what is measured")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::{ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest};
use thalweg_wire::{ErrorCode, Uuid};

use crate::support::{Bench, NODE};

fn topic(name: String) -> CreatableTopic {
    CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() }
}

fn versions() -> ApiVersionsRequest {
    ApiVersionsRequest { client_software_name: "test".to_owned(), client_software_version: "1".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_requests_do_not_wait_for_a_large_one() {
    let bench = Bench::new().await;
    bench.join(NODE).await;
    let topic_names = (0..300_000).map(|index| format!("nobody-has-{index}")).collect();
    let request = DeleteTopicsRequest { topic_names, ..Default::default() };
    let frame = frame::encode_request(&request, 5, 7, None).expect("it fits");
    let controller = Arc::clone(&bench.controller);
    // A separate task: its own work must not delay small requests.
    let large = tokio::spawn(async move {
        let begun = Instant::now();
        let answer = controller
            .handle(frame.slice(LENGTH_LEN..), &thalweg_controller::Requester::ThisProcess)
            .await
            .expect("an answer");
        let (_, answer) = frame::decode_response::<DeleteTopicsRequest>(answer, 5).expect("one of it");
        assert_eq!(answer.responses.len(), 300_000);
        begun.elapsed()
    });
    let mut longest = Duration::ZERO;
    while !large.is_finished() {
        let asked = Instant::now();
        bench.send(versions()).await;
        longest = longest.max(asked.elapsed());
    }
    let took = large.await.expect("does not panic");
    assert!(longest < took / 4, "a small request waited {longest:?} while a large one took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_request_sees_what_changes_while_it_is_decided() {
    let bench = Bench::new().await;
    bench.join(NODE).await;
    let names: Vec<String> = (0..3_000).map(|index| format!("topic-{index}")).collect();
    let large = async {
        let topics = names.iter().cloned().map(topic).collect();
        bench.send(CreateTopicsRequest { topics, ..Default::default() }).await
    };
    // The same topics one by one, from the end: each is created by one of the two requests that ask for it.
    let small = async {
        let mut created = BTreeSet::new();
        for name in names.iter().rev().take(100) {
            let answer = bench.create(name, 1, 1).await;
            match ErrorCode::from_i16(answer.topics[0].error_code) {
                Some(ErrorCode::None) => assert!(created.insert(name.clone())),
                other => assert_eq!(other, Some(ErrorCode::TopicAlreadyExists)),
            }
        }
        created
    };
    let (large, small) = tokio::join!(large, small);
    let mut ids: BTreeSet<Uuid> = BTreeSet::new();
    for topic in &large.topics {
        match ErrorCode::from_i16(topic.error_code) {
            Some(ErrorCode::None) => {
                assert!(!small.contains(&topic.name), "{} was created twice", topic.name);
                assert!(ids.insert(topic.topic_id));
            }
            other => {
                assert_eq!(other, Some(ErrorCode::TopicAlreadyExists));
                assert!(small.contains(&topic.name), "{} was created by neither", topic.name);
            }
        }
    }
    assert_eq!(ids.len() + small.len(), names.len());
    let image = bench.image().await;
    assert_eq!(image.topics().len(), names.len());
    for topic in large.topics.iter().filter(|topic| topic.error_code == 0) {
        assert_eq!(image.topic(&topic.name).map(|found| found.id), Some(topic.topic_id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_a_burst_is_answered() {
    let bench = Arc::new(Bench::new().await);
    let asked: Vec<_> = (0..500)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(
                async move { bench.send_version(versions(), 3).await.map(|answer| answer.error_code) },
            )
        })
        .collect();
    for answer in asked {
        assert_eq!(answer.await.expect("does not panic").expect("an answer"), 0);
    }
}
