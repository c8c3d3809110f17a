//! Large requests and many at once: the same results as small ones, and no delays for others.

#![expect(clippy::disallowed_methods, reason = "real time is what is measured")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use thalweg_controller::{ControllerOptions, Requester};
use thalweg_log::disk::{Disk, Faults};
use thalweg_metadata::BrokerId;
use thalweg_metadata::batches::MetadataBatch;
use thalweg_security::Principal;
use thalweg_security::acl::Rules;
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, UnregisterBrokerRequest,
};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use crate::support::{Bench, NODE, batches_of};

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
        let answer =
            controller.handle(frame.slice(LENGTH_LEN..), &Requester::ThisProcess).await.expect("an answer");
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

/// Topics with 100 partitions each, on brokers 1 and 2.
async fn create_many(bench: &Bench, topics: usize) {
    for index in 0..topics {
        let created = bench.create(&format!("t{index}"), 100, 2).await;
        assert_eq!(created.topics[0].error_code, 0, "{:?}", created.topics[0].error_message);
    }
}

fn segment(bytes: u32) -> impl FnOnce(&mut ControllerOptions) {
    move |options| options.segment_bytes = bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_beyond_a_batch_of_the_log_is_refused_and_others_go_on() {
    let bench = Bench::with(segment(50_000)).await;
    bench.join(NODE).await;
    let topics = (0..2_000).map(|index| topic(format!("topic-{index}"))).collect();
    let refused = bench.send(CreateTopicsRequest { topics, ..Default::default() }).await;
    assert_eq!(refused.topics.len(), 2_000);
    for topic in &refused.topics {
        assert_eq!(ErrorCode::from_i16(topic.error_code), Some(ErrorCode::PolicyViolation), "{topic:?}");
    }
    assert_eq!(bench.create("topic-7", 1, 1).await.topics[0].error_code, 0);
    let bench = bench.restart().await;
    assert_eq!(bench.image().await.topics().len(), 1);
}

#[tokio::test]
async fn the_end_of_a_broker_with_many_partitions_is_one_transaction_of_several_batches() {
    let bench = Bench::with(segment(20_000)).await;
    bench.join(1).await;
    bench.join(2).await;
    create_many(&bench, 10).await;
    let epoch = bench.epoch().await;
    let before = bench.fetch(epoch, 0, 0, 0).await.high_watermark;
    let gone = bench.send(UnregisterBrokerRequest { broker_id: 2 }).await;
    assert_eq!(gone.error_code, 0);
    let mut written: Vec<MetadataBatch> = Vec::new();
    let mut next = before;
    while next < bench.fetch(epoch, before, epoch, 0).await.high_watermark {
        written.extend(batches_of(&bench.fetch(epoch, next, epoch, 0).await));
        next = written.last().expect("there are more").last.offset + 1;
    }
    assert!(written.len() > 1, "{}", written.len());
    let records: Vec<_> = written.iter().flat_map(|batch| &batch.records).collect();
    assert!(matches!(records.first(), Some(MetadataRecord::BeginTransaction(_))));
    assert!(matches!(records.last(), Some(MetadataRecord::EndTransaction(_))));
    let image = bench.image().await;
    let bench = bench.restart().await;
    assert!(bench.image().await.topics() == image.topics());
    for topic in image.topics().iter() {
        assert!(topic.partitions.values().all(|p| p.leader.0 == 1 && p.isr == [p.leader]), "{topic:?}");
    }
}

#[tokio::test]
async fn a_disk_that_fills_up_within_several_batches_keeps_none_of_them() {
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(Arc::clone(&faults));
    let bench = Bench::with(|options| (options.segment_bytes, options.disk) = (20_000, disk)).await;
    bench.join(1).await;
    bench.join(2).await;
    create_many(&bench, 10).await;
    let before = bench.image().await;
    faults.set_free_bytes(Some(30_000));
    let request = UnregisterBrokerRequest { broker_id: 2 };
    assert!(bench.send_version(request.clone(), 0).await.is_err());
    faults.set_free_bytes(None);
    assert!(bench.image().await.topics() == before.topics());
    let bench = bench.restart().await;
    assert!(bench.image().await.topics() == before.topics());
    assert_eq!(bench.send(request).await.error_code, 0);
    assert!(bench.image().await.broker(BrokerId(2)).is_none());
}

/// Requests of one principal that wait while another's comes.
const CROWD: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_of_one_principal_do_not_wait_for_those_of_another() {
    let rules = Rules { super_users: Vec::new(), allow_everyone_if_no_acl_found: true };
    let bench = Bench::with(|options| options.authorizer = Some(rules)).await;
    bench.join(NODE).await;
    let topic_names = (0..30_000).map(|index| format!("nobody-has-{index}")).collect();
    let request = DeleteTopicsRequest { topic_names, ..Default::default() };
    let frame = frame::encode_request(&request, 5, 7, None).expect("it fits").slice(LENGTH_LEN..);
    let answered = Arc::new(AtomicUsize::new(0));
    let ask = |name: &str| {
        let by = Requester::peer(Principal::user(name), Ipv4Addr::LOCALHOST.into());
        let (controller, frame, answered) =
            (Arc::clone(&bench.controller), frame.clone(), Arc::clone(&answered));
        let mut asked = Box::pin(async move {
            controller.handle(frame, &by).await.expect("an answer");
            answered.fetch_add(1, Ordering::Relaxed)
        });
        // It waits in its queue before the next one is asked.
        let mut context = Context::from_waker(Waker::noop());
        assert!(asked.as_mut().poll(&mut context).is_pending());
        tokio::spawn(asked)
    };
    let crowd: Vec<_> = (0..CROWD).map(|_| ask("eve")).collect();
    let before = ask("ann").await.expect("does not panic");
    assert!(before < CROWD / 2, "{before} requests of another principal were answered before");
    for other in crowd {
        other.await.expect("does not panic");
    }
}
