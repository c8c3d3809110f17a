//! The connection: versions, order, bounds, and its end.

use std::time::Duration;

use bytes::Bytes;
use thalweg_client::{
    ApiVersions, ClientError, CloseReason, Connection, ConnectionOptions, FrameReader, RequestOptions,
};
use thalweg_wire::request::{HeartbeatRequest, HeartbeatResponse, MetadataRequest};
use thalweg_wire::{ApiKey, frame};
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use crate::fake::{Act, Fake};

struct Peer {
    frames: FrameReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

/// A connection, and its other end.
fn pair(options: &ConnectionOptions) -> (Connection, Peer) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let connection = Connection::start_with(ours, "peer:1", ApiVersions::ours(), options);
    let (reader, writer) = tokio::io::split(theirs);
    (connection, Peer { frames: FrameReader::new(reader, 1 << 20), writer })
}

impl Peer {
    async fn request(&mut self) -> i32 {
        let request: Bytes = self.frames.next().await.expect("a request");
        frame::peek_request(&request).expect("a request").correlation_id
    }

    async fn answer(&mut self, correlation_id: i32, throttle_time_ms: i32) {
        let response = HeartbeatResponse { throttle_time_ms, error_code: 0 };
        let (answer, _) =
            frame::encode_response(&response, ApiKey::Heartbeat, 4, correlation_id).expect("encoded");
        self.writer.write_all(&answer).await.expect("written");
    }
}

#[tokio::test]
async fn an_older_broker_gets_a_second_request_in_its_version() {
    for known in 0..=4 {
        let fake = Fake::new(1, |_| Act::Store);
        fake.state().max_versions.insert(ApiKey::ApiVersions as i16, known);
        fake.state().max_versions.insert(ApiKey::Metadata as i16, 5);
        let stream =
            fake.connector().connect("fake:1", &ConnectionOptions::default()).await.expect("connected");
        let connection =
            Connection::start(stream, "fake:1", &ConnectionOptions::default()).await.expect("versions");
        assert_eq!(connection.version_of::<MetadataRequest>(), Ok(5));
        let error = connection.version_of::<HeartbeatRequest>().expect_err("it is not served");
        assert_eq!(error.to_string(), "fake:1 serves no Heartbeat, where 0 to 4 can be sent");
        let error = connection.send(&HeartbeatRequest::default()).await.expect_err("it is not served");
        assert!(matches!(error, ClientError::VersionMismatch(_)), "{error}");
    }
}

#[tokio::test]
async fn many_requests_are_under_way_and_each_gets_its_answer() {
    let (connection, mut peer) = pair(&ConnectionOptions::default());
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.send(&HeartbeatRequest::default()).await })
        })
        .collect();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(peer.request().await);
    }
    for &id in &ids {
        peer.answer(id, id).await;
    }
    let mut answered = Vec::new();
    for task in asking {
        answered.push(task.await.expect("no panic").expect("an answer").throttle_time_ms);
    }
    answered.sort_unstable();
    ids.sort_unstable();
    assert_eq!(answered, ids);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_allowed() {
    let options = ConnectionOptions { in_flight_max: 2, ..ConnectionOptions::default() };
    let (connection, mut peer) = pair(&options);
    for _ in 0..3 {
        let connection = connection.clone();
        tokio::spawn(async move { connection.send(&HeartbeatRequest::default()).await });
    }
    let first = peer.request().await;
    peer.request().await;
    let third = tokio::time::timeout(Duration::from_secs(5), peer.frames.next()).await;
    assert!(third.is_err(), "the third waits");
    peer.answer(first, 0).await;
    peer.request().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_in_time_ends_the_connection() {
    let (connection, mut peer) = pair(&ConnectionOptions::default());
    let other = connection.clone();
    let other = tokio::spawn(async move { other.send(&HeartbeatRequest::default()).await });
    let options = RequestOptions { version: None, timeout: Some(Duration::from_millis(100)) };
    tokio::task::yield_now().await;
    let error = connection.send_with(&HeartbeatRequest::default(), options).await.expect_err("no answer");
    assert_eq!(error.to_string(), "peer:1 did not answer Heartbeat within 100 ms");
    let error = other.await.expect("no panic").expect_err("the connection ended");
    assert_eq!(error.to_string(), "The connection to peer:1 ended: Heartbeat was not answered within 100 ms");
    assert!(error.is_retriable());
    peer.request().await;
    peer.request().await;
    assert!(peer.frames.next().await.is_err(), "the peer sees the end");
    assert!(connection.is_closed());
}

#[tokio::test]
async fn an_answer_to_another_request_ends_the_connection() {
    let (connection, mut peer) = pair(&ConnectionOptions::default());
    let asking = connection.clone();
    let asking = tokio::spawn(async move { asking.send(&HeartbeatRequest::default()).await });
    let id = peer.request().await;
    peer.answer(id + 1, 0).await;
    let error = asking.await.expect("no panic").expect_err("a refusal");
    let ClientError::Closed(closed) = &error else { panic!("{error}") };
    assert!(matches!(closed.reason, CloseReason::Correlation { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_beyond_the_limit_or_beyond_understanding_is_refused() {
    let options = ConnectionOptions { frame_bytes_max: 100, ..ConnectionOptions::default() };
    let (connection, mut peer) = pair(&options);
    peer.writer.write_all(&101i32.to_be_bytes()).await.expect("written");
    let error = connection.send(&HeartbeatRequest::default()).await.expect_err("a refusal");
    assert!(error.to_string().contains("the limit is 100"), "{error}");

    let (connection, mut peer) = pair(&options);
    let asking = tokio::spawn(async move { connection.send(&HeartbeatRequest::default()).await });
    let id = peer.request().await;
    peer.writer
        .write_all(&[&5i32.to_be_bytes()[..], &id.to_be_bytes(), &[0]].concat())
        .await
        .expect("written");
    let error = asking.await.expect("no panic").expect_err("a refusal");
    assert!(matches!(error, ClientError::Unreadable(_)), "{error}");
}

#[tokio::test]
async fn a_peer_that_closes_is_named() {
    let (connection, peer) = pair(&ConnectionOptions::default());
    drop(peer);
    let error = connection.send(&HeartbeatRequest::default()).await.expect_err("it is gone");
    assert!(error.to_string().starts_with("The connection to peer:1 ended: "), "{error}");
    let error = connection.send(&HeartbeatRequest::default()).await.expect_err("it is gone still");
    assert!(error.is_retriable());
}

#[tokio::test]
async fn a_refused_connection_and_an_unknown_address_are_distinct() {
    let options = ConnectionOptions::default();
    let error = Connection::connect("127.0.0.1:1", &options).await.expect_err("nobody listens");
    assert!(matches!(error, ClientError::ConnectFailed(_)), "{error}");
    let error = Connection::connect("127.0.0.1", &options).await.expect_err("no port");
    assert!(matches!(error, ClientError::InvalidAddress(_)), "{error}");
}
