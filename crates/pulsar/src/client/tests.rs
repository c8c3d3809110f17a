use std::time::Duration;

use super::*;
use crate::connection::UNANSWERED;
use crate::error::{CloseReason, HandshakeFault};
use crate::frame::FrameFault;
use crate::protocol::{ErrorResponse, Ping};
use crate::scripted_peer::{SERVICE_URL, ScriptedBrokers, brokers, quick_options};

fn topic() -> TopicName {
    TopicName::parse("t").expect("a name")
}

async fn connected() -> (Client, crate::scripted_peer::ScriptedPeer, ScriptedBrokers) {
    let (connector, mut brokers) = brokers();
    let connecting = tokio::spawn(Client::connect_by(connector, SERVICE_URL, quick_options()));
    let peer = brokers.accept().await;
    (connecting.await.expect("no panic").expect("connected"), peer, brokers)
}

/// The fault of a handshake in which the peer sends `bytes`.
async fn handshake_fault(bytes: &[u8]) -> HandshakeFault {
    let (connector, mut brokers) = brokers();
    let options = ClientOptions { connect_timeout: Duration::from_millis(200), ..quick_options() };
    let connecting = tokio::spawn(Client::connect_by(connector, SERVICE_URL, options));
    let mut peer = brokers.accept_silently().await;
    let Command::Connect(connect) = peer.receive().await else { panic!("CONNECT is first") };
    assert!(connect.client_version.starts_with("thalweg-"), "{connect:?}");
    peer.send_bytes(bytes).await;
    if bytes.is_empty() {
        drop(peer);
    }
    let error = connecting.await.expect("no panic").expect_err("no broker");
    let PulsarError::Handshake(failed) = error else { panic!("{error}") };
    assert_eq!(&*failed.peer, "broker:6650");
    failed.fault
}

#[tokio::test]
async fn peers_that_are_no_brokers_are_named() {
    assert!(matches!(handshake_fault(b"").await, HandshakeFault::Closed));
    assert!(matches!(handshake_fault(b"HTTP/1.1 400 Bad Request").await, HandshakeFault::Foreign(_)));
    assert!(matches!(handshake_fault(&[0, 0]).await, HandshakeFault::NoAnswer(_)));
    let refusal = ErrorResponse { request_id: 0, error: 3, message: "no token".to_owned() };
    let refused = handshake_fault(&frame_of(Command::Error(refusal))).await;
    assert_eq!(refused.to_string(), "AuthenticationError (no token)");
    assert!(matches!(
        handshake_fault(&frame_of(Command::Ping(Ping {}))).await,
        HandshakeFault::Unexpected(18)
    ));
    // An AUTH_CHALLENGE.
    let challenge = [0, 0, 0, 9, 0, 0, 0, 5, 8, 36, 0xa2, 2, 0];
    assert!(matches!(handshake_fault(&challenge).await, HandshakeFault::Authentication));
}

fn frame_of(command: Command) -> bytes::Bytes {
    crate::frame::encode(command)
}

#[tokio::test]
async fn ping_is_answered() {
    let (_client, mut peer, _brokers) = connected().await;
    peer.send(Command::Ping(Ping {})).await;
    assert!(matches!(peer.receive().await, Command::Pong(_)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_gets_a_ping_and_is_then_given_up() {
    let (client, mut peer, _brokers) = connected().await;
    // The first interval includes the handshake.
    assert!(matches!(peer.receive_within(Duration::from_secs(65)).await, Command::Ping(_)));
    peer.send(Command::Pong(crate::protocol::Pong {})).await;
    assert!(matches!(peer.receive_within(Duration::from_secs(65)).await, Command::Ping(_)));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let state = client.0.connections.lock().values().next().map(Arc::clone).expect("a connection");
    let connection = state.lock().await.clone().expect("a connection");
    assert!(matches!(connection.closed().reason, CloseReason::Silent(_)), "{}", connection.closed());
}

#[tokio::test]
async fn partitions_are_counted() {
    let (client, mut peer, _brokers) = connected().await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.partitions("t").await }
    });
    let Command::Partitions(request) = peer.receive().await else { panic!("partitions are asked for") };
    assert_eq!(request.topic, "persistent://public/default/t");
    let answer = PartitionsResponse {
        partitions: Some(2),
        request_id: request.request_id,
        response: Some(0),
        ..PartitionsResponse::default()
    };
    peer.send(Command::PartitionsResponse(answer)).await;
    let names: Vec<String> =
        asking.await.expect("no panic").expect("partitions").iter().map(ToString::to_string).collect();
    let expected =
        ["t-partition-0", "t-partition-1"].map(|name| format!("persistent://public/default/{name}"));
    assert_eq!(names, expected);
}

#[tokio::test]
async fn refusals_have_their_name_and_requests_their_answers() {
    let (client, mut peer, _brokers) = connected().await;
    let ask = |topic: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.partition_count(topic).await })
    };
    let (first, second) = (ask("a"), ask("b"));
    let mut ids = BTreeMap::new();
    for _ in 0..2 {
        let Command::Partitions(request) = peer.receive().await else { panic!("partitions are asked for") };
        ids.insert(request.topic, request.request_id);
    }
    // In the other order, with an answer to nothing before.
    let refusal = |request_id| PartitionsResponse {
        request_id,
        response: Some(1),
        error: Some(11),
        message: Some("no such topic".to_owned()),
        ..PartitionsResponse::default()
    };
    peer.send(Command::PartitionsResponse(refusal(UNANSWERED))).await;
    peer.send(Command::PartitionsResponse(refusal(ids["persistent://public/default/b"]))).await;
    let answer = PartitionsResponse {
        partitions: Some(3),
        request_id: ids["persistent://public/default/a"],
        ..PartitionsResponse::default()
    };
    peer.send(Command::PartitionsResponse(answer)).await;
    assert_eq!(first.await.expect("no panic").expect("an answer"), 3);
    let error = second.await.expect("no panic").expect_err("a refusal");
    assert_eq!(
        error.to_string(),
        "Partitions of persistent://public/default/b: TopicNotFound (no such topic)"
    );
    assert_eq!(error.server_error(), Some(ServerError::TopicNotFound));
}

#[tokio::test(start_paused = true)]
async fn requests_time_out_one_by_one() {
    let (client, mut peer, _brokers) = connected().await;
    let error = client.partition_count("t").await.expect_err("no answer");
    assert_eq!(
        error.to_string(),
        "broker:6650 did not answer within 2000 ms: Partitions of persistent://public/default/t"
    );
    // The connection is as good as before, and the late answer has no receiver.
    let Command::Partitions(late) = peer.receive().await else { panic!("partitions are asked for") };
    let answer = |request_id| {
        Command::PartitionsResponse(PartitionsResponse {
            partitions: Some(1),
            request_id,
            ..PartitionsResponse::default()
        })
    };
    peer.send(answer(late.request_id)).await;
    let asking = tokio::spawn(async move { client.partition_count("t").await });
    let Command::Partitions(request) = peer.receive().await else { panic!("partitions are asked for") };
    peer.send(answer(request.request_id)).await;
    assert_eq!(asking.await.expect("no panic").expect("an answer"), 1);
}

#[tokio::test]
async fn a_lookup_follows_redirects() {
    let (client, mut first, mut brokers) = connected().await;
    let looking = tokio::spawn(async move { client.owner_of(&topic()).await });
    first.answer_lookup(LookupResult::Redirect, "second:1").await;
    let mut second = brokers.accept().await;
    assert_eq!(second.address, "second:1");
    let Command::Lookup(lookup) = second.receive().await else { panic!("a lookup is next") };
    assert_eq!(lookup.authoritative, Some(true));
    second
        .send(Command::LookupResponse(LookupResponse {
            broker_service_url: Some("pulsar://third:2".to_owned()),
            response: Some(LookupResult::Connect.into()),
            request_id: lookup.request_id,
            ..LookupResponse::default()
        }))
        .await;
    let third = brokers.accept().await;
    assert_eq!(third.address, "third:2");
    let owner = looking.await.expect("no panic").expect("an owner");
    assert_eq!(&**owner.peer(), "third:2");
}

#[tokio::test]
async fn a_lookup_through_a_proxy_stays_with_it() {
    let (client, mut peer, mut brokers) = connected().await;
    let looking = tokio::spawn(async move { client.owner_of(&topic()).await });
    let Command::Lookup(lookup) = peer.receive().await else { panic!("a lookup is next") };
    peer.send(Command::LookupResponse(LookupResponse {
        broker_service_url: Some("pulsar://hidden:1".to_owned()),
        response: Some(LookupResult::Connect.into()),
        request_id: lookup.request_id,
        proxy_through_service_url: Some(true),
        ..LookupResponse::default()
    }))
    .await;
    let mut proxied = brokers.accept_silently().await;
    assert_eq!(proxied.address, "broker:6650");
    let Command::Connect(connect) = proxied.receive().await else { panic!("CONNECT is first") };
    assert_eq!(connect.proxy_to_broker_url.as_deref(), Some("hidden:1"));
    drop(proxied);
    looking.await.expect("no panic").map(drop).expect_err("the proxy has closed");
}

#[tokio::test]
async fn brokers_that_refer_to_each_other_are_given_up() {
    let (client, mut peer, _brokers) = connected().await;
    let looking = tokio::spawn(async move { client.owner_of(&topic()).await });
    for _ in 0..=20 {
        peer.answer_lookup(LookupResult::Redirect, "broker:6650").await;
    }
    let error = looking.await.expect("no panic").map(drop).expect_err("no owner");
    assert!(
        matches!(error, PulsarError::TooManyRedirects(TooManyRedirects { redirects: 20, .. })),
        "{error}"
    );
}

#[tokio::test]
async fn giant_frames_end_the_connection() {
    let (client, mut peer, _brokers) = connected().await;
    let asking = tokio::spawn(async move { client.partition_count("t").await });
    peer.receive().await;
    peer.send_bytes(&u32::to_be_bytes(100 << 20)).await;
    let error = asking.await.expect("no panic").expect_err("the end");
    let PulsarError::Closed(closed) = &error else { panic!("{error}") };
    let limit = (5 << 20) + (10 << 10);
    assert!(
        matches!(&closed.reason, CloseReason::Frame(FrameFault::Length { limit: l, .. }) if *l == limit),
        "{error}"
    );
}

#[tokio::test]
async fn the_next_broker_of_the_service_url_is_tried() {
    let (connector, mut brokers) = brokers();
    let url = "pulsar://first:1,second:2";
    let connecting = tokio::spawn(Client::connect_by(connector, url, quick_options()));
    let first = brokers.accept_silently().await;
    assert_eq!(first.address, "first:1");
    drop(first);
    let second = brokers.accept_with(1234).await;
    assert_eq!(second.address, "second:2");
    let client = connecting.await.expect("no panic").expect("connected");
    assert_eq!(client.message_bytes_max().await.expect("still connected"), 1234);
}
