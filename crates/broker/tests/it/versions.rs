//! Every API at every advertised version is answered in the format of that version: for an empty request, for
//! existing things, and for missing ones.

mod admin;
mod clients;
mod cluster;
mod groups;
mod shares;
mod streams;
mod transactions;

use crate::raw::Raw;
use crate::records::{Topic, batch, put};
use crate::running::RunningBroker;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thalweg_broker::api::all_served;
use thalweg_wire::data::RequestHeader;
use thalweg_wire::frame::{request_header_version, response_header_version};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Encoder, Message, Request, registry};

/// A broker with a topic, and the requests tried on it so far.
pub struct Trial {
    broker: RunningBroker,
    raw: Raw,
    /// Two partitions, with three records in the first.
    known: Topic,
    unknown: Topic,
    asked: BTreeMap<ApiKey, BTreeSet<i16>>,
    failures: Vec<String>,
}

impl Trial {
    async fn start(dir: &tempfile::TempDir) -> Trial {
        let properties = [
            ("node.id", "1"),
            ("controller.quorum.voters", "1@127.0.0.1:9093"),
            ("auto.create.topics.enable", "false"),
            ("group.initial.rebalance.delay.ms", "0"),
            ("log.retention.ms", "-1"),
        ];
        let broker = RunningBroker::start(dir.path(), &properties).await;
        let known = Topic::create(&broker, "known", 2, &[]).await;
        for value in [b"a", b"b", b"c"] {
            assert_eq!(put(&broker, &known, -1, batch(&[value])).await.error_code, 0);
        }
        let raw = Raw::connect(&broker).await;
        let (asked, failures) = (BTreeMap::new(), Vec::new());
        Trial { broker, raw, known, unknown: Topic::unknown(), asked, failures }
    }

    /// The versions of an API, as this broker advertises them.
    fn versions<R: Request>() -> std::ops::RangeInclusive<i16> {
        let api = all_served().find(|api| api.key == R::KEY).expect("it is served");
        api.min..=api.max
    }

    /// Asks for a coordinator until there is one.
    async fn find_coordinator(&mut self, key_type: i8, coordinator_keys: Vec<String>) {
        let find = FindCoordinatorRequest { key_type, coordinator_keys, ..Default::default() };
        for _ in 0..500 {
            let found = self.ask("until there is one", 6, &find).await.expect("an answer");
            if found.coordinators[0].error_code == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no coordinator for keys of type {key_type}");
    }

    /// Asks at one version; a connection that is closed instead is a failure of the broker.
    async fn ask<R: Request>(&mut self, what: &str, version: i16, request: &R) -> Option<R::Response> {
        self.asked.entry(R::KEY).or_default().insert(version);
        let answer = self.raw.ask(request, version).await;
        if answer.is_none() {
            self.failures.push(format!("{} version {version}, {what}: the connection was closed", R::NAME));
            self.raw = Raw::connect(&self.broker).await;
        }
        answer
    }

    /// Asks at every version, and judges each answer.
    async fn each<R: Request>(
        &mut self,
        what: &str,
        make: impl Fn(i16) -> R,
        judge: impl Fn(i16, &R::Response) -> bool,
    ) {
        for version in Self::versions::<R>() {
            if let Some(answer) = self.ask(what, version, &make(version)).await {
                self.judge::<R>(what, version, judge(version, &answer), &answer);
            }
        }
    }

    fn judge<R: Request>(&mut self, what: &str, version: i16, good: bool, answer: &R::Response) {
        if !good {
            self.failures.push(format!("{} version {version}, {what}: {answer:?}", R::NAME));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_of_every_api_is_answered() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut trial = Trial::start(&dir).await;
    clients::ask(&mut trial).await;
    groups::ask(&mut trial).await;
    shares::ask(&mut trial).await;
    streams::ask(&mut trial).await;
    transactions::ask(&mut trial).await;
    admin::ask(&mut trial).await;
    cluster::ask(&mut trial).await;
    assert!(trial.failures.is_empty(), "{} failures:\n{}", trial.failures.len(), trial.failures.join("\n"));
    for api in all_served() {
        let asked = trial.asked.get(&api.key).cloned().unwrap_or_default();
        let missing: Vec<i16> = (api.min..=api.max).filter(|version| !asked.contains(version)).collect();
        assert!(missing.is_empty(), "{:?} was never asked at versions {missing:?}", api.key);
    }
    trial.broker.stop().await;
}

/// A request with every field at its default, as a frame.
fn default_request(key: ApiKey, version: i16) -> Bytes {
    let body = match registry::default_bytes(&format!("{key:?}Request"), version).expect("a request") {
        Ok(body) => body,
        // The default of its one field is null, which this version does not know.
        Err(_) if key == ApiKey::Metadata => vec![0, 0, 0, 0],
        Err(error) => panic!("{key:?} version {version}: {error}"),
    };
    let header = RequestHeader {
        request_api_key: key as i16,
        request_api_version: version,
        correlation_id: 7,
        client_id: None,
    };
    let mut e = Encoder::new();
    header.encode(&mut e, request_header_version(key, version)).expect("a header");
    let mut frame = BytesMut::new();
    let header = e.into_bytes();
    frame.put_i32(i32::try_from(header.len() + body.len()).expect("a small frame"));
    frame.extend_from_slice(&header);
    frame.extend_from_slice(&body);
    frame.freeze()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_nothing_in_it_is_answered_at_every_version() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut trial = Trial::start(&dir).await;
    for api in all_served() {
        for version in api.min..=api.max {
            trial.raw.send_bytes(&default_request(api.key, version)).await;
            // Its acks are 0: there is nothing to answer.
            if api.key != ApiKey::Produce {
                check_answer(&mut trial, api.key, version).await;
            }
        }
    }
    // The connection is still good, and nothing unasked for is on it.
    assert!(trial.raw.ask(&ApiVersionsRequest::default(), 0).await.is_some());
    assert!(trial.failures.is_empty(), "{}", trial.failures.join("\n"));
    trial.broker.stop().await;
}

async fn check_answer(trial: &mut Trial, key: ApiKey, version: i16) {
    let Some(frame) = trial.raw.frame().await else {
        trial.failures.push(format!("{key:?} version {version}: the connection was closed"));
        trial.raw = Raw::connect(&trial.broker).await;
        return;
    };
    let header = if response_header_version(key, version) == 1 { 5 } else { 4 };
    let name = format!("{key:?}Response");
    match registry::roundtrip(&name, version, frame.slice(header..)).expect("a response") {
        Ok(again) if again == frame[header..] => {}
        Ok(_) => trial.failures.push(format!("{name} version {version} reads as something else")),
        Err(error) => trial.failures.push(format!("{name} version {version}: {error}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_closes_the_connection_at_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trial = Trial::start(&dir).await;
    let beyond =
        all_served().filter(|api| api.key != ApiKey::ApiVersions).map(|api| (api.key as i16, api.max + 1));
    for (key, version) in beyond.chain([(0, 2), (1, 3), (9999, 0), (-1, 0), (3, -1)]) {
        let mut raw = Raw::connect(&trial.broker).await;
        let mut frame = BytesMut::new();
        frame.put_i32(12);
        frame.put_i16(key);
        frame.put_i16(version);
        frame.put_i32(1);
        frame.put_i16(-1);
        frame.put_i16(0);
        raw.send_bytes(&frame).await;
        assert!(raw.is_closed_within(Duration::from_secs(30)).await, "key {key}, version {version}");
    }
    trial.broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_from_the_future_learns_what_is_served() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut trial = Trial::start(&dir).await;
    let mut frame = BytesMut::new();
    frame.put_i32(8 + 3 + 5);
    frame.put_i16(ApiKey::ApiVersions as i16);
    frame.put_i16(99);
    frame.put_i32(42);
    frame.put_slice(b"whatever");
    trial.raw.send_bytes(&frame).await;
    let answer = trial.raw.answer::<ApiVersionsRequest>(42, 0).await.expect("an answer at version 0");
    assert_eq!(answer.error_code, thalweg_wire::ErrorCode::UnsupportedVersion.code());
    let own =
        answer.api_keys.iter().find(|api| api.api_key == ApiKey::ApiVersions as i16).expect("its own range");
    assert_eq!((own.min_version, own.max_version), (0, 4));
    assert!(trial.raw.ask(&ApiVersionsRequest::default(), 0).await.is_some(), "and may ask again");
    trial.broker.stop().await;
}
