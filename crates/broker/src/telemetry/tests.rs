//! Subscriptions, intervals, errors and limits, as Kafka has them.

use super::subscriptions::Subscriptions;
use super::*;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use thalweg_net::Peer;
use thalweg_security::Principal;
use thalweg_wire::Uuid;

const ID: Uuid = Uuid(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);

fn connection() -> Arc<Peer> {
    let address = "10.1.2.3:4567".parse().expect("an address");
    Arc::new(Peer {
        address,
        listener: "PLAINTEXT".to_owned(),
        tls: None,
        mute: Default::default(),
        software: Default::default(),
        client_id: Default::default(),
        identified: Default::default(),
        attached: Default::default(),
    })
}

fn client(client_id: &str) -> TelemetryClient<'_> {
    static CONNECTION: LazyLock<Arc<Peer>> = LazyLock::new(connection);
    static PRINCIPAL: LazyLock<Arc<Principal>> = LazyLock::new(|| Arc::new(Principal::user("ann")));
    TelemetryClient {
        connection: &CONNECTION,
        principal: &PRINCIPAL,
        instance_id: ID,
        client_id,
        software_name: Some("apache-kafka-java"),
        software_version: Some("4.3.1"),
        address: "10.1.2.3:4567".parse().expect("an address"),
    }
}

/// Telemetry with subscriptions: name, interval, metrics, match.
fn telemetry(subscriptions: &[(&str, &str, &str, &str)]) -> Telemetry {
    let configs: Vec<(&str, BTreeMap<String, String>)> = subscriptions
        .iter()
        .map(|(name, interval, metrics, matches)| {
            let pairs = [("interval.ms", interval), ("metrics", metrics), ("match", matches)];
            (*name, pairs.map(|(key, value)| (key.to_owned(), (*value).to_owned())).into())
        })
        .collect();
    let telemetry = Telemetry::default();
    subscribe(&telemetry, &configs);
    telemetry
}

fn subscribe(telemetry: &Telemetry, configs: &[(&str, BTreeMap<String, String>)]) {
    let configs = configs.iter().map(|(name, config)| (*name, config));
    telemetry.state.lock().subscriptions.replace(Subscriptions::new(configs));
}

/// Fields of protobuf.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = content.len();
    while len > 0x7f {
        out.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend(content);
    out
}

fn metric(name: &str, value: f64, delta: bool, topic: &str) -> Vec<u8> {
    let attribute = [bytes(1, b"topic"), bytes(2, &bytes(1, topic.as_bytes()))].concat();
    let mut point = bytes(7, &attribute);
    point.push(4 << 3 | 1);
    point.extend(value.to_le_bytes());
    let mut kind = bytes(1, &point);
    if delta {
        kind.extend([2 << 3, 1]);
    }
    [bytes(1, name.as_bytes()), bytes(if delta { 7 } else { 5 }, &kind)].concat()
}

fn data(metrics: &[Vec<u8>]) -> Vec<u8> {
    let scope: Vec<u8> = metrics.iter().flat_map(|metric| bytes(2, metric)).collect();
    bytes(1, &bytes(2, &scope))
}

fn push(subscription_id: i32, metrics: &[u8]) -> TelemetryPush<'_> {
    TelemetryPush { subscription_id, is_terminating: false, compression: 0, metrics, bytes_max: 1 << 20 }
}

#[test]
fn subscriptions_that_match_are_joined() {
    let telemetry = telemetry(&[
        ("all", "60000", "org.apache.kafka.producer.", ""),
        ("a", "1000", "org.apache.kafka.consumer.,x", "client_id=a.*,client_source_address=10\\..*"),
        ("b", "500", "*", "client_id=b,client_software_name=apache-kafka-java"),
        ("c", "200", "never", "client_id=("),
    ]);
    let of = |client_id: &str, id: u128, now_ms| {
        let client = TelemetryClient { instance_id: Uuid(id), ..client(client_id) };
        telemetry.subscription(&client, now_ms).expect("the first question")
    };
    let (a, b, c) = (of("abc", 1000, 0), of("b", 1001, 0), of("c", 1002, 0));
    assert_eq!(a.metrics, ["org.apache.kafka.consumer.", "org.apache.kafka.producer.", "x"]);
    assert_eq!((a.interval_ms, b.interval_ms, c.interval_ms), (1000, 500, 60_000));
    assert_eq!(b.metrics, ["*"]);
    assert_eq!(c.metrics, ["org.apache.kafka.producer."]);
    assert_ne!(a.subscription_id, c.subscription_id);
}

#[test]
fn without_subscriptions_nothing_is_requested() {
    let subscribed = Telemetry::default().subscription(&client("a"), 0).expect("the first question");
    assert_eq!((subscribed.metrics.len(), subscribed.interval_ms), (0, 300_000));
}

#[test]
fn requests_before_the_interval_are_refused() {
    let telemetry = telemetry(&[("all", "1000", "*", "")]);
    let client = client("a");
    let code = |result: Result<(), TelemetryRefusal>| {
        result.map_or_else(|refusal| refusal.code, |()| ErrorCode::None)
    };
    let subscribed = telemetry.subscription(&client, 5000).expect("the first question");
    let again = telemetry.subscription(&client, 5500).expect_err("too early");
    assert_eq!(again.code, ErrorCode::ThrottlingQuotaExceeded);
    let metrics = data(&[metric("m", 1.0, false, "t")]);
    let push = push(subscribed.subscription_id, &metrics);
    assert_eq!(code(telemetry.push(&push, &client, 5600)), ErrorCode::None, "at once after the question");
    assert_eq!(code(telemetry.push(&push, &client, 6000)), ErrorCode::ThrottlingQuotaExceeded);
    assert_eq!(code(telemetry.push(&push, &client, 6600)), ErrorCode::None);
    let last = TelemetryPush { is_terminating: true, ..push };
    assert_eq!(code(telemetry.push(&last, &client, 6700)), ErrorCode::None, "the last may be early");
    assert_eq!(code(telemetry.push(&push, &client, 9000)), ErrorCode::InvalidRequest);
    let figures = telemetry.figures(9000);
    assert_eq!((figures.pushes, figures.throttled, figures.instances), (3, 2, 1));
}

#[test]
fn a_client_is_new_after_the_connection_that_it_was_new_on() {
    let telemetry = telemetry(&[("all", "1000", "*", "")]);
    let (first, second) = (connection(), connection());
    let on = |connection: &Arc<Peer>, now_ms| {
        let client = TelemetryClient { connection, ..client("a") };
        telemetry.subscription(&client, now_ms).map_err(|refusal| refusal.code)
    };
    assert!(on(&first, 5000).is_ok());
    assert_eq!(on(&second, 5100), Err(ErrorCode::ThrottlingQuotaExceeded));
    drop(first);
    assert!(on(&second, 5200).is_ok());
    assert_eq!(on(&connection(), 5300), Err(ErrorCode::ThrottlingQuotaExceeded));
}

#[test]
fn a_changed_subscription_is_learnt_with_the_next_push() {
    let telemetry = telemetry(&[("all", "1000", "*", "")]);
    let client = client("a");
    let before = telemetry.subscription(&client, 0).expect("the first question");
    let metrics = data(&[]);
    assert!(telemetry.push(&push(before.subscription_id, &metrics), &client, 1000).is_ok());
    subscribe(&telemetry, &[("all", BTreeMap::from([("metrics".to_owned(), "x".to_owned())]))]);
    let refusal =
        telemetry.push(&push(before.subscription_id, &metrics), &client, 2000).expect_err("changed");
    assert_eq!(refusal.code, ErrorCode::UnknownSubscriptionId);
    let after = telemetry.subscription(&client, 2001).expect("it may ask at once");
    assert_eq!(after.metrics, ["x"]);
    assert!(telemetry.push(&push(after.subscription_id, &metrics), &client, 302_001).is_ok());
}

#[test]
fn values_are_kept_until_the_client_is_silent_and_sums_are_added_up() {
    let telemetry = telemetry(&[("all", "1000", "*", "")]);
    let client = client("a");
    let subscribed = telemetry.subscription(&client, 0).expect("the first question");
    let metrics = data(&[metric("gauge", 7.0, false, "t"), metric("sum", 2.0, true, "t")]);
    for step in 1..=5 {
        telemetry
            .push(&push(subscribed.subscription_id, &metrics), &client, 1000 * step)
            .expect("it is taken");
    }
    let values: Vec<_> = telemetry.figures(6000).values;
    let found: Vec<_> =
        values.iter().map(|value| (&*value.metric, &*value.attributes, value.value)).collect();
    assert_eq!(found, [("gauge", "topic=t", 7.0), ("sum", "topic=t", 10.0)]);
    assert_eq!((values[0].instance_id, &*values[0].client_id), (ID, "a"));
    let later = telemetry.figures(5000 + 60_000);
    assert_eq!((later.instances, later.values), (0, Vec::new()));
}

#[test]
fn what_cannot_be_read_is_refused() {
    let telemetry = telemetry(&[("all", "100", "*", "")]);
    let client = client("a");
    let subscribed = telemetry.subscription(&client, 0).expect("the first question");
    let mut now_ms = 0;
    let mut refused = |push: &TelemetryPush<'_>| {
        now_ms += 1000;
        telemetry.push(push, &client, now_ms).expect_err("it cannot be read").code
    };
    let push = |metrics| push(subscribed.subscription_id, metrics);
    assert_eq!(refused(&push(b"\x0a\x7f")), ErrorCode::InvalidRecord);
    assert_eq!(refused(&TelemetryPush { compression: 4, ..push(b"no zstd") }), ErrorCode::InvalidRecord);
    assert_eq!(
        refused(&TelemetryPush { compression: 9, ..push(b"") }),
        ErrorCode::UnsupportedCompressionType
    );
    assert_eq!(
        refused(&TelemetryPush { compression: -1, ..push(b"") }),
        ErrorCode::UnsupportedCompressionType
    );
    assert_eq!(refused(&TelemetryPush { bytes_max: 3, ..push(b"long") }), ErrorCode::TelemetryTooLarge);
}

#[test]
fn what_clients_send_is_limited() {
    let telemetry = telemetry(&[("all", "100", "*", "")]);
    for index in 0..12u128 {
        let client = TelemetryClient { instance_id: Uuid(1000 + index), ..client("a") };
        let subscribed = telemetry.subscription(&client, 0).expect("the first question");
        let mut metrics: Vec<_> =
            (0..1100).map(|index| metric(&format!("m{index}"), 1.0, false, "t")).collect();
        metrics.push(metric(&"x".repeat(300), 1.0, false, "t"));
        telemetry.push(&push(subscribed.subscription_id, &data(&metrics)), &client, 1).expect("it is taken");
    }
    let figures = telemetry.figures(2);
    assert_eq!((figures.values.len(), figures.dropped_points), (10_000, 12 * 101 + 2_000));
}

#[test]
fn a_principal_with_all_clients_and_values_makes_room_for_others() {
    let telemetry = telemetry(&[("all", "100", "*", "")]);
    let (eve, ann) = (Arc::new(Principal::user("eve")), Arc::new(Principal::user("ann")));
    let client = |id: u128, principal| TelemetryClient { instance_id: Uuid(id), principal, ..client("a") };
    let pushed = |id, principal, values: i32, now_ms| {
        let client = client(id, principal);
        let subscribed = telemetry.subscription(&client, now_ms).expect("the first question");
        let metrics: Vec<_> =
            (0..values).map(|index| metric(&format!("m{index}"), 1.0, false, "t")).collect();
        let metrics = data(&metrics);
        let push = push(subscribed.subscription_id, &metrics);
        telemetry.push(&push, &client, now_ms + 1).expect("it is taken");
    };
    let of = |id: u128| {
        let values = telemetry.figures(2000).values;
        values.iter().filter(|value| value.instance_id == Uuid(id)).count()
    };
    (0..11).for_each(|at| pushed(1000 + at, &eve, 1000, 0));
    assert_eq!(telemetry.figures(1).values.len(), 10_000);
    pushed(1, &ann, 600, 10);
    assert_eq!((of(1), of(1000), telemetry.figures(11).values.len()), (600, 400, 10_000));

    for at in 0..20_000 {
        telemetry.subscription(&client(100_000 + at, &eve), 1000).expect("the first question");
    }
    assert_eq!((of(1), telemetry.figures(1001).instances), (600, 16_384), "ann's is known still");
    telemetry.subscription(&client(2, &ann), 1001).expect("the first question");
    assert_eq!((of(1), telemetry.figures(1002).instances), (600, 16_384), "one of eve's made room");
}

#[test]
fn no_bytes_are_a_panic() {
    let whole = data(&[metric("gauge", 7.0, false, "t"), metric("sum", 2.0, true, "t")]);
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let _ = otlp::points(&bytes, 10);
            let _ = otlp::points(&bytes[..at], 10);
        }
    }
}
