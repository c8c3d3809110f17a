//! ACLs: creation, deletion, and their effect at the controller.

use bytes::Bytes;
use thalweg_security::Principal;
use thalweg_security::acl::{self, Operation};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::delete_acls_request::DeleteAclsFilter;
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::{
    CreateAclsRequest, CreateTopicsRequest, CreateTopicsResponse, DeleteAclsRequest, DeleteTopicsRequest,
};

use super::*;
use crate::Requester;
use crate::request_context::RequestContext;

const ANY: i8 = 1;
const TOPIC: i8 = 2;
const CLUSTER: i8 = 4;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALLOW: i8 = 3;

fn bench() -> Bench {
    let rules = acl::Rules { super_users: vec![Principal::user("root")], ..acl::Rules::default() };
    let options = ControllerOptions { authorizer: Some(rules), ..options() };
    let mut bench = Bench::new();
    let (image, offset) = (bench.state.image().clone(), bench.state.next_offset());
    bench.state = State::new(&options, Arc::new(Rules), 42);
    bench.state.activate(image, offset, HashMap::default(), bench.now);
    bench
}

fn context(name: &str) -> RequestContext {
    RequestContext::new(user(name), thalweg_wire::ApiKey::ElectLeaders)
}

fn user(name: &str) -> Requester {
    Requester::peer(Principal::user(name), [10, 0, 0, 1].into())
}

fn creation(kind: i8, name: &str, pattern: i8, principal: &str, operation: Operation) -> AclCreation {
    AclCreation {
        resource_type: kind,
        resource_name: name.to_owned(),
        resource_pattern_type: pattern,
        principal: principal.to_owned(),
        host: "*".to_owned(),
        operation: operation.code(),
        permission_type: ALLOW,
    }
}

fn create(bench: &mut Bench, creations: Vec<AclCreation>) -> Vec<(i16, Option<String>)> {
    let outcome = bench.state.create_acls(&CreateAclsRequest { creations });
    let response = bench.done(outcome).expect("an authorizer");
    response.results.into_iter().map(|result| (result.error_code, result.error_message)).collect()
}

fn filter(name: Option<&str>) -> DeleteAclsFilter {
    DeleteAclsFilter {
        resource_type_filter: ANY,
        resource_name_filter: name.map(str::to_owned),
        pattern_type_filter: ANY,
        principal_filter: None,
        host_filter: None,
        operation: ANY,
        permission_type: ANY,
    }
}

#[test]
fn acls_are_created_once_and_deleted_by_filters() {
    let mut bench = bench();
    let read = || creation(TOPIC, "t", LITERAL, "User:a", Operation::Read);
    let done = || (0, Some(String::new()));
    assert_eq!(create(&mut bench, vec![read(), read()]), [done(), done()]);
    assert_eq!(create(&mut bench, vec![read()]), [done()]);
    create(&mut bench, vec![creation(TOPIC, "t", PREFIXED, "User:b", Operation::Write)]);
    assert_eq!(bench.state.image().acls().len(), 2);
    let request = DeleteAclsRequest { filters: vec![filter(Some("u")), filter(Some("t")), filter(None)] };
    let outcome = bench.state.delete_acls(&request);
    let results = bench.done(outcome).expect("an authorizer").filter_results;
    let counts: Vec<_> = results.iter().map(|result| result.matching_acls.len()).collect();
    assert_eq!(counts, [0, 2, 2]);
    assert!(bench.state.image().acls().is_empty());
}

#[test]
fn invalid_acls_and_filters_are_refused_alone() {
    let mut bench = bench();
    let results = create(
        &mut bench,
        vec![
            creation(TOPIC, "", LITERAL, "User:a", Operation::Read),
            creation(CLUSTER, "other", LITERAL, "User:a", Operation::Read),
            creation(TOPIC, "t", LITERAL, "a", Operation::Read),
            creation(TOPIC, "t", LITERAL, "User:a", Operation::Read),
        ],
    );
    let invalid = ErrorCode::InvalidRequest.code();
    assert_eq!(results.iter().map(|result| result.0).collect::<Vec<_>>(), [invalid, invalid, invalid, 0]);
    assert_eq!(
        results[1].1.as_deref(),
        Some("The only valid name for the CLUSTER resource is kafka-cluster")
    );
    let unknown = DeleteAclsFilter { resource_type_filter: 99, ..filter(None) };
    let outcome = bench.state.delete_acls(&DeleteAclsRequest { filters: vec![unknown, filter(None)] });
    let results = bench.done(outcome).expect("an authorizer").filter_results;
    assert_eq!((results[0].error_code, results[1].matching_acls.len()), (invalid, 1));
}

#[test]
fn no_request_deletes_more_than_one_batch_of_records() {
    let mut bench = bench();
    for half in ["a", "b"] {
        let names = (0..6_000).map(|i| format!("{half}{i}"));
        let acls = names.map(|name| creation(TOPIC, &name, LITERAL, "User:a", Operation::Read));
        create(&mut bench, acls.collect());
    }
    let outcome = bench.state.delete_acls(&DeleteAclsRequest { filters: vec![filter(None)] });
    let results = bench.done(outcome).expect("an authorizer").filter_results;
    assert_eq!(results[0].error_code, ErrorCode::PolicyViolation.code());
    assert_eq!(bench.state.image().acls().len(), 12_000);
}

#[test]
fn without_an_authorizer_there_are_no_acls_and_everything_is_allowed() {
    let mut bench = Bench::new();
    let request = CreateAclsRequest { creations: Vec::new() };
    let error = bench.state.create_acls(&request).expect_err("no authorizer");
    assert_eq!(error.code, ErrorCode::SecurityDisabled);
    assert!(bench.state.may_on_cluster(&context("a"), Operation::ClusterAction));
    bench.apply(Vec::new());
}

/// Sends a request as this requester, and returns the answer.
fn send<R: Request>(bench: &mut Bench, requester: &Requester, request: &R) -> R::Response {
    let frame = frame::encode_request(request, R::MAX_VERSION, 1, None).expect("it fits");
    let frame: Bytes = frame.slice(frame::LENGTH_LEN..);
    let parsed = dispatch::parse(frame, requester, false).expect("a request can be read");
    let dispatch::ParsedFrame::Request(TaskRequest::Decide { decide, .. }) = parsed else {
        panic!("{:?} is not decided", R::KEY);
    };
    let decision = decide(&mut bench.state, bench.now);
    bench.adopt(decision.batch);
    let answer = decision.answer.expect("it can be written");
    frame::decode_response::<R>(answer, R::MAX_VERSION).expect("it can be read").1
}

fn codes(response: &CreateTopicsResponse) -> BTreeMap<&str, i16> {
    response.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect()
}

#[test]
fn a_request_about_the_cluster_needs_its_operation() {
    let mut bench = bench();
    let request =
        CreateAclsRequest { creations: vec![creation(TOPIC, "t", LITERAL, "User:mallory", Operation::All)] };
    let refused = ErrorCode::ClusterAuthorizationFailed.code();
    let result = &send(&mut bench, &user("mallory"), &request).results[0];
    assert_eq!(result.error_code, refused);
    assert_eq!(result.error_message.as_deref(), Some("Cluster authorization failed."));
    let registration = bench.registration(1, &[1]);
    assert_eq!(send(&mut bench, &user("mallory"), &registration).error_code, refused);
    assert!(bench.state.image().acls().is_empty() && bench.state.image().broker(BrokerId(1)).is_none());
    assert_eq!(send(&mut bench, &user("root"), &request).results[0].error_code, 0);
    let alter = creation(CLUSTER, "kafka-cluster", LITERAL, "User:admin", Operation::Alter);
    create(&mut bench, vec![alter]);
    assert_eq!(send(&mut bench, &user("admin"), &request).results[0].error_code, 0);
    assert_eq!(send(&mut bench, &user("admin"), &registration).error_code, refused);
}

#[test]
fn topics_are_created_and_deleted_by_those_who_may() {
    let mut bench = bench();
    create(
        &mut bench,
        vec![
            creation(TOPIC, "mine", PREFIXED, "User:a", Operation::Create),
            creation(TOPIC, "mine-2", LITERAL, "User:a", Operation::Delete),
            creation(TOPIC, "seen", LITERAL, "User:a", Operation::Describe),
        ],
    );
    let topic = |name: &str| CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: ["mine-1", "mine-2", "seen"].map(topic).to_vec(),
        timeout_ms: 1000,
        ..Default::default()
    };
    let refused = ErrorCode::TopicAuthorizationFailed.code();
    let response = send(&mut bench, &user("a"), &request);
    assert_eq!(codes(&response)["seen"], refused);
    // The other topics are not refused for lack of a right, but because all brokers are fenced.
    assert!(codes(&response).iter().all(|(name, code)| (*name == "seen") == (*code == refused)));
    let named = |name: &str| DeleteTopicState { name: Some(name.to_owned()), ..Default::default() };
    let request = DeleteTopicsRequest {
        topics: ["mine-1", "mine-2", "seen", "hidden"].map(named).to_vec(),
        timeout_ms: 1000,
        ..Default::default()
    };
    let response = send(&mut bench, &user("a"), &request);
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let codes: BTreeMap<_, _> =
        response.responses.iter().map(|r| (r.name.as_deref().expect("a name"), r.error_code)).collect();
    let expected = [("hidden", refused), ("mine-1", refused), ("mine-2", unknown), ("seen", unknown)];
    assert_eq!(codes, BTreeMap::from(expected));
}

#[test]
fn a_topic_that_an_invalid_entry_repeats_is_not_deleted_without_the_right() {
    let mut bench = bench();
    bench.join(1);
    bench.create("secret", &[&[1]], &[]);
    let entry = |topic_id| DeleteTopicState { name: Some("secret".to_owned()), topic_id };
    for topics in [
        vec![entry(Uuid::ZERO), entry(Uuid(7))],
        vec![entry(Uuid(7)), entry(Uuid::ZERO)],
        vec![entry(Uuid::ZERO), entry(Uuid::ZERO)],
    ] {
        let request = DeleteTopicsRequest { topics, timeout_ms: 1000, ..Default::default() };
        let quota = &mut MutationQuota::unlimited();
        let outcome = bench.state.delete_topics_for(&context("a"), &request, 6, quota);
        let response = bench.done(outcome).expect("the request is taken");
        assert!(response.responses.iter().all(|result| result.error_code != 0), "{response:?}");
        assert!(bench.state.image().topic("secret").is_some(), "{response:?}");
    }
}
