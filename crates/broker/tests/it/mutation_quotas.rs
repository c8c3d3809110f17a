//! The quota of changes, `controller_mutation_rate`: refusals, throttle times and pauses, through a broker
//! and at the controller's own listener, for users and client ids.

use crate::quotas::{alter, set};
use crate::raw::Raw;
use crate::running::RunningBroker;
use std::time::{Duration, Instant};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_partitions_request::CreatePartitionsTopic;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::*;

const KEY: &str = "controller_mutation_rate";
const EXCEEDED: i16 = ErrorCode::ThrottlingQuotaExceeded as i16;

fn create(topics: &[(&str, i32)]) -> CreateTopicsRequest {
    let topic = |(name, partitions): &(&str, i32)| CreatableTopic {
        name: (*name).to_owned(),
        num_partitions: *partitions,
        replication_factor: 1,
        ..Default::default()
    };
    CreateTopicsRequest {
        topics: topics.iter().map(topic).collect(),
        timeout_ms: 10_000,
        ..Default::default()
    }
}

fn grow(name: &str, count: i32) -> CreatePartitionsRequest {
    let topic = CreatePartitionsTopic { name: name.to_owned(), count, assignments: None };
    CreatePartitionsRequest { topics: vec![topic], timeout_ms: 10_000, validate_only: false }
}

fn delete(name: &str) -> DeleteTopicsRequest {
    DeleteTopicsRequest { topic_names: vec![name.to_owned()], timeout_ms: 10_000, ..Default::default() }
}

/// A broker whose clients may make two seconds' worth of changes at once.
async fn start(dir: &tempfile::TempDir) -> RunningBroker {
    RunningBroker::start(dir.path(), &[("controller.quota.window.num", "2")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the time of a real client")]
async fn changes_above_the_quota_are_refused_from_the_versions_that_know_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir).await;
    set(&broker, Some("raw"), KEY, Some(1.0)).await;
    let mut client = Raw::connect(&broker).await;

    // Two tokens are there: the first topic leaves a debt of one, which refuses the second.
    let began = Instant::now();
    let answer = client.ask(&create(&[("a", 3), ("b", 1)]), 7).await.expect("an answer");
    let outcome = |name: &str| answer.topics.iter().find(|topic| topic.name == name).expect("answered");
    assert_eq!((outcome("a").error_code, outcome("b").error_code), (0, EXCEEDED));
    assert_eq!(outcome("b").error_message, None, "Kafka leaves the words out");
    assert!((800..=1000).contains(&answer.throttle_time_ms), "{} ms", answer.throttle_time_ms);

    // The connection is not read until the pause is over. By then the debt is made up for.
    let answer = client.ask(&create(&[("b", 2)]), 6).await.expect("an answer");
    assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
    assert_eq!((answer.topics[0].error_code, answer.throttle_time_ms), (0, 0), "strict: told with the next");

    // A debt again, for CreatePartitions and DeleteTopics on other connections.
    let mut other = Raw::connect(&broker).await;
    let answer = other.ask(&grow("a", 4), 3).await.expect("an answer");
    assert_eq!(answer.results[0].error_code, EXCEEDED);
    assert!(answer.throttle_time_ms > 0, "{} ms", answer.throttle_time_ms);
    let mut other = Raw::connect(&broker).await;
    let answer = other.ask(&delete("b"), 5).await.expect("an answer");
    assert_eq!(answer.responses[0].error_code, EXCEEDED);
    assert!(answer.throttle_time_ms > 0, "{} ms", answer.throttle_time_ms);
    let text = exposed(&broker);
    for line in ["quota_tokens{", "quota_mutation_rate{", "quota_throttle_time{"] {
        let sample = format!("kafka_server_{line}resource=\"ControllerMutation\",clientId=\"raw\"}} ");
        assert!(text.contains(&sample), "{sample} in {text}");
    }
    assert!(text.contains("kafka_server_quota_tokens{resource=\"ControllerMutation\",clientId=\"raw\"} -"));

    // Without a limit nothing is refused, at once.
    set(&broker, Some("raw"), KEY, None).await;
    let mut other = Raw::connect(&broker).await;
    let answer = other.ask(&delete("b"), 5).await.expect("an answer");
    assert_eq!((answer.responses[0].error_code, answer.throttle_time_ms), (0, 0));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_versions_are_slowed_down_only() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir).await;
    set(&broker, Some("raw"), KEY, Some(100.0)).await;
    let mut client = Raw::connect(&broker).await;
    let answer = client.ask(&create(&[("a", 250), ("b", 10)]), 5).await.expect("an answer");
    assert!(answer.topics.iter().all(|topic| topic.error_code == 0));
    assert!((300..=600).contains(&answer.throttle_time_ms), "{} ms", answer.throttle_time_ms);
    let mut other = Raw::connect(&broker).await;
    let answer = other.ask(&grow("b", 110), 2).await.expect("an answer");
    assert_eq!(answer.results[0].error_code, 0);
    let before = answer.throttle_time_ms;
    assert!(before > 600, "{before} ms");
    let mut other = Raw::connect(&broker).await;
    let answer = other.ask(&delete("a"), 4).await.expect("an answer");
    assert_eq!(answer.responses[0].error_code, 0);
    assert!(answer.throttle_time_ms > before + 1000, "each partition counts: {} ms", answer.throttle_time_ms);
    // What is only validated counts, too, as in Kafka.
    let validate = CreateTopicsRequest { validate_only: true, ..create(&[("c", 100)]) };
    let last = answer.throttle_time_ms;
    let answer = Raw::connect(&broker).await.ask(&validate, 5).await.expect("an answer");
    assert!(answer.throttle_time_ms > last, "{} ms", answer.throttle_time_ms);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_specific_quota_of_user_and_client_holds() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir).await;
    let (user, client): (_, _) = (("user", Some("ANONYMOUS")), ("client-id", Some("raw")));
    alter(&broker, &[("client-id", None)], KEY, Some(1000.0)).await;
    alter(&broker, &[("user", None)], KEY, Some(100.0)).await;
    alter(&broker, &[user, client], KEY, Some(1.0)).await;
    let throttle = async |name: &str| {
        let answer = Raw::connect(&broker).await.ask(&create(&[(name, 5)]), 5).await.expect("an answer");
        assert_eq!(answer.topics[0].error_code, 0);
        answer.throttle_time_ms
    };
    assert!(throttle("a").await > 2000, "two of five were there");
    alter(&broker, &[user, client], KEY, None).await;
    assert_eq!(throttle("b").await, 0, "that of every user");
    broker.stop().await;
}

/// The whole page of metrics.
fn exposed(broker: &RunningBroker) -> String {
    let mut page = thalweg_broker::metrics::Exposition::default();
    broker.server().metrics.expose(&mut page);
    page.into_text()
}
