//! Client quotas: set by AlterClientQuotas, seen in answers, and kept by not reading the connection.

use crate::raw::Raw;
use crate::records::{Topic, batch, fetch, fetch_partition, produce, put};
use crate::running::RunningBroker;
use std::time::{Duration, Instant};
use thalweg_wire::request::alter_client_quotas_request::{EntityData, EntryData, OpData};
use thalweg_wire::request::*;

/// Sets a quota of clients with this id, of all others without one; `None` removes it.
pub async fn set(broker: &RunningBroker, client_id: Option<&str>, key: &str, value: Option<f64>) {
    alter(broker, &[("client-id", client_id)], key, value).await;
}

/// Sets a quota of an entity: types with names, or without for defaults. `None` removes it.
pub async fn alter(broker: &RunningBroker, entity: &[(&str, Option<&str>)], key: &str, value: Option<f64>) {
    let part = |(kind, name): &(&str, Option<&str>)| EntityData {
        entity_type: (*kind).to_owned(),
        entity_name: name.map(str::to_owned),
    };
    let op = OpData { key: key.to_owned(), value: value.unwrap_or_default(), remove: value.is_none() };
    let entries = vec![EntryData { entity: entity.iter().map(part).collect(), ops: vec![op] }];
    let answer = broker.ask(&AlterClientQuotasRequest { entries, validate_only: false }).await;
    assert_eq!(answer.entries[0].error_code, 0);
}

/// Clients here call themselves `raw`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the time of a real client")]
async fn producers_above_their_quota_get_a_throttle_time_and_are_not_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("quota.window.num", "2")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    set(&broker, None, "producer_byte_rate", Some(1.0)).await;
    set(&broker, Some("raw"), "producer_byte_rate", Some(10_000.0)).await;

    let request = produce(13, &topic, 0, 1, batch(&[&[b'x'; 15_000]]));
    let mut client = Raw::connect(&broker).await;
    let began = Instant::now();
    // All at once: the second is read when the pause for the first is over.
    let ids = [client.send(&request, 13).await, client.send(&request, 13).await];
    let first = client.answer::<ProduceRequest>(ids[0], 13).await.expect("an answer");
    assert!(began.elapsed() < Duration::from_millis(400), "the answer is not held back");
    assert!((400..=600).contains(&first.throttle_time_ms), "{} ms", first.throttle_time_ms);
    let second = client.answer::<ProduceRequest>(ids[1], 13).await.expect("an answer");
    let pause = Duration::from_millis(u64::from(first.throttle_time_ms.unsigned_abs()));
    assert!(began.elapsed() >= pause, "{:?} of {pause:?}", began.elapsed());
    assert!(second.throttle_time_ms > 500, "{} ms", second.throttle_time_ms);

    // Other connections of the client are read; a quota that is gone asks for no pause.
    set(&broker, Some("raw"), "producer_byte_rate", None).await;
    set(&broker, None, "producer_byte_rate", None).await;
    let mut other = Raw::connect(&broker).await;
    let answer = other.ask(&request, 13).await.expect("an answer");
    assert_eq!(answer.throttle_time_ms, 0);

    // A pause does not delay the end.
    set(&broker, Some("raw"), "producer_byte_rate", Some(1.0)).await;
    let answer = other.ask(&request, 13).await.expect("an answer");
    assert!(answer.throttle_time_ms > 60_000, "{} ms", answer.throttle_time_ms);
    let stopping = Instant::now();
    broker.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(2), "{:?}", stopping.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_above_their_quota_get_no_records_until_they_paused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("quota.window.num", "2")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    assert_eq!(put(&broker, &topic, 1, batch(&[&[b'x'; 15_000]])).await.error_code, 0);
    set(&broker, Some("raw"), "consumer_byte_rate", Some(10_000.0)).await;

    let mut client = Raw::connect(&broker).await;
    let request = fetch(18, &topic, vec![fetch_partition(0, 0)]);
    let bytes = |answer: &FetchResponse| {
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
        partitions
            .filter_map(|partition| partition.records.as_ref())
            .map(|records| records.len())
            .sum::<usize>()
    };
    let first = client.ask(&request, 18).await.expect("an answer");
    assert!(bytes(&first) > 15_000 && first.throttle_time_ms == 0, "the first batch is always sent");
    let second = client.ask(&request, 18).await.expect("an answer");
    assert!(bytes(&second) == 0 && second.throttle_time_ms > 0, "{second:?}");
    let mut throttled = second;
    for _ in 0..20 {
        throttled = client.ask(&request, 18).await.expect("an answer");
        if throttled.throttle_time_ms == 0 {
            break;
        }
    }
    assert!(bytes(&throttled) > 15_000, "the consumer goes on");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_of_requests_is_limited_for_all_apis() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    set(&broker, Some("raw"), "request_percentage", Some(0.000_001)).await;
    let mut client = Raw::connect(&broker).await;
    let list = client.ask(&ListOffsetsRequest { replica_id: -1, ..Default::default() }, 8).await;
    assert_eq!(list.expect("an answer").throttle_time_ms, 1000, "no more than a sample");
    let metadata = client.ask(&MetadataRequest::default(), 12).await;
    assert_eq!(metadata.expect("an answer").throttle_time_ms, 1000);
    broker.stop().await;
}
