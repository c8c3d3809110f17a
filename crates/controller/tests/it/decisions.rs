//! Decisions about who may do what, as the witness beside the log hears of them: each once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_controller::{Requester, Witness};
use thalweg_security::Principal;
use thalweg_security::acl::{Decision, Rules};
use thalweg_wire::Request;
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::{AlterUserScramCredentialsRequest, CreateTopicsRequest, EnvelopeRequest};

use crate::support::{Bench, NODE};

/// Decisions in Kafka's words, with the client's id.
#[derive(Debug, Default)]
struct RecordingWitness {
    wants_permissions: bool,
    lines: Mutex<Vec<String>>,
}

impl Witness for RecordingWitness {
    fn wants_permissions(&self) -> bool {
        self.wants_permissions
    }

    fn note(&self, decision: &Decision<'_>, client_id: Option<&str>) {
        self.lines.lock().push(format!("{}: {decision}", client_id.unwrap_or("-")));
    }
}

async fn bench(wants_permissions: bool) -> (Bench, Arc<RecordingWitness>) {
    let heard = Arc::new(RecordingWitness { wants_permissions, ..RecordingWitness::default() });
    let witness: Arc<dyn Witness> = heard.clone();
    let rules = Rules { super_users: vec![Principal::user("root")], ..Rules::default() };
    let bench = Bench::with(|options| {
        options.authorizer = Some(rules);
        options.witness = Some(witness);
    })
    .await;
    bench.join(NODE).await;
    (bench, heard)
}

async fn send<R: Request>(bench: &Bench, user: &str, request: &R) -> R::Response {
    let requester = Requester::peer(Principal::user(user), [10, 0, 0, 1].into());
    let frame = frame::encode_request(request, R::MAX_VERSION, 7, Some("test")).expect("it fits");
    let answer = bench.controller.handle(frame.slice(LENGTH_LEN..), &requester).await.expect("an answer");
    frame::decode_response::<R>(answer, R::MAX_VERSION).expect("it can be read").1
}

fn creation(names: impl IntoIterator<Item = String>) -> CreateTopicsRequest {
    let topic =
        |name| CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
    CreateTopicsRequest { topics: names.into_iter().map(topic).collect(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_and_permissions_are_logged_once_in_kafkas_words() {
    let (bench, heard) = bench(true).await;
    send(&bench, "ann", &creation(["a".to_owned()])).await;
    send(&bench, "root", &creation(["b".to_owned()])).await;
    send(&bench, "ann", &AlterUserScramCredentialsRequest::default()).await;
    send(&bench, "ann", &EnvelopeRequest::default()).await;
    // What the controller's own process asks is no decision.
    bench.send(creation(["c".to_owned()])).await;
    let cluster = "on resource = Cluster:LITERAL:kafka-cluster for request =";
    let expected = [
        "test: Principal = User:ann is Denied operation = CREATE from host = 10.0.0.1 on resource = Topic:LITERAL:a for \
         request = CreateTopics with resourceRefCount = 1 based on rule DefaultDeny"
            .to_owned(),
        format!(
            "test: Principal = User:root is Allowed operation = CREATE from host = 10.0.0.1 {cluster} CreateTopics with \
             resourceRefCount = 1 based on rule SuperUser"
        ),
        "test: Principal = User:root is Allowed operation = DESCRIBE_CONFIGS from host = 10.0.0.1 on resource = \
         Topic:LITERAL:b for request = CreateTopics with resourceRefCount = 1 based on rule SuperUser"
            .to_owned(),
        format!(
            "test: Principal = User:ann is Denied operation = ALTER from host = 10.0.0.1 {cluster} \
             AlterUserScramCredentials with resourceRefCount = 1 based on rule DefaultDeny"
        ),
        format!(
            "-: Principal = User:ann is Denied operation = CLUSTER_ACTION from host = 10.0.0.1 {cluster} Envelope with \
             resourceRefCount = 1 based on rule DefaultDeny"
        ),
    ];
    assert_eq!(*heard.lines.lock(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_request_that_is_decided_several_times_is_logged_once() {
    let (bench, heard) = bench(false).await;
    let names = (0..3_000).map(|index| format!("topic-{index}"));
    let large = async { send(&bench, "ann", &creation(names.clone())).await };
    let others = async {
        for index in 0..20 {
            bench.send(creation([format!("other-{index}")])).await;
        }
    };
    let (answer, ()) = tokio::join!(large, others);
    assert_eq!(answer.topics.len(), 3_000);
    // Many are logged beside the task.
    for _ in 0..500 {
        if heard.lines.lock().len() == 3_000 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut counts = BTreeMap::new();
    for line in heard.lines.lock().iter() {
        *counts.entry(line.clone()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 3_000);
    assert!(counts.values().all(|count| *count == 1), "each once");
}
