//! Authentication by SASL, as clients and as strangers see it.

use crate::records::{Topic, batch, put};
use crate::running::RunningBroker;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thalweg_dial::{ClientError, Connection, ConnectionOptions, Properties, Security};
use thalweg_security::sasl::scram::Hash;
use thalweg_security::sasl::{oauth, plain, scram};
use thalweg_wire::frame::{decode_response, encode_request};
use thalweg_wire::request::alter_user_scram_credentials_request::ScramCredentialUpsertion;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);
const PLAIN_MODULE: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                            password=\"admin-secret\" user_admin=\"admin-secret\" user_ann=\"ann-secret\";";
const MAP: (&str, &str) = ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT");
const LISTENERS: (&str, &str) = ("listeners", "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0");
const MECHANISMS: (&str, &str) = ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512");
const USERS: (&str, &str) = ("listener.name.clients.plain.sasl.jaas.config", PLAIN_MODULE);

pub(crate) async fn start(dir: &Path, more: &[(&str, &str)]) -> RunningBroker {
    let mut properties = vec![LISTENERS, MAP, MECHANISMS, USERS];
    properties.extend(more);
    RunningBroker::start(dir, &properties).await
}

/// Where clients have to authenticate.
fn secured(broker: &RunningBroker) -> String {
    let (name, addresses) = &broker.server().addresses[1];
    assert_eq!(name, "CLIENTS");
    addresses[0].to_string()
}

pub(crate) async fn log_in(
    broker: &RunningBroker,
    mechanism: &str,
    user: &str,
    password: &str,
) -> Result<Connection, ClientError> {
    let user = [("sasl.mechanism", mechanism), ("sasl.username", user), ("sasl.password", password)];
    log_in_with(broker, &user).await
}

pub(crate) async fn log_in_with(
    broker: &RunningBroker,
    sasl: &[(&str, &str)],
) -> Result<Connection, ClientError> {
    let mut properties = Properties::new();
    properties.set("security.protocol", "SASL_PLAINTEXT");
    for (key, value) in sasl {
        properties.set(key, value);
    }
    let security = Security::take(&mut properties).expect("valid settings");
    let options = ConnectionOptions { security, ..ConnectionOptions::default() };
    Connection::connect(&secured(broker), &options).await
}

async fn add_user(broker: &RunningBroker, user: &str, hash: Hash, password: &str) {
    let salt = b"some salt".to_vec();
    let mut salted = vec![0; if hash == Hash::Sha256 { 32 } else { 64 }];
    let algorithm = match hash {
        Hash::Sha256 => ring::pbkdf2::PBKDF2_HMAC_SHA256,
        Hash::Sha512 => ring::pbkdf2::PBKDF2_HMAC_SHA512,
    };
    let iterations = NonZeroU32::new(8192).expect("not zero");
    ring::pbkdf2::derive(algorithm, iterations, &salt, password.as_bytes(), &mut salted);
    let upsertion = ScramCredentialUpsertion {
        name: user.to_owned(),
        mechanism: hash.code(),
        iterations: 8192,
        salt: salt.into(),
        salted_password: salted.into(),
    };
    let request = AlterUserScramCredentialsRequest { deletions: Vec::new(), upsertions: vec![upsertion] };
    assert_eq!(broker.ask(&request).await.results[0].error_code, 0);
}

/// A peer that sends what it likes.
pub(crate) struct Stranger {
    stream: TcpStream,
}

impl Stranger {
    pub(crate) async fn connect(broker: &RunningBroker) -> Stranger {
        Stranger { stream: TcpStream::connect(secured(broker)).await.expect("it listens") }
    }

    async fn send<R: Request>(&mut self, request: &R, version: i16) {
        let frame = encode_request(request, version, 7, Some("stranger")).expect("a request");
        self.stream.write_all(&frame).await.expect("the broker reads");
    }

    async fn send_raw(&mut self, message: &[u8]) {
        let length = i32::try_from(message.len()).expect("short").to_be_bytes();
        self.stream.write_all(&[&length, message].concat()).await.expect("the broker reads");
    }

    /// The next frame; None when the connection is closed.
    async fn frame(&mut self) -> Option<Bytes> {
        let read = async {
            let length = self.stream.read_i32().await.ok()?;
            let mut frame = BytesMut::zeroed(usize::try_from(length).expect("a length"));
            self.stream.read_exact(&mut frame).await.ok()?;
            Some(frame.freeze())
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an answer, or the end")
    }

    async fn ask<R: Request>(&mut self, request: &R, version: i16) -> Option<R::Response> {
        self.send(request, version).await;
        let frame = self.frame().await?;
        Some(decode_response::<R>(frame, version).expect("the answer").1)
    }

    pub(crate) async fn handshake(&mut self, mechanism: &str, version: i16) -> Option<SaslHandshakeResponse> {
        self.ask(&SaslHandshakeRequest { mechanism: mechanism.to_owned() }, version).await
    }

    pub(crate) async fn token(&mut self, message: &[u8]) -> Option<SaslAuthenticateResponse> {
        self.ask(&SaslAuthenticateRequest { auth_bytes: Bytes::copy_from_slice(message) }, 2).await
    }

    async fn log_in(&mut self, user: &str, password: &str) -> SaslAuthenticateResponse {
        assert_eq!(self.handshake("PLAIN", 1).await.expect("an answer").error_code, 0);
        self.token(&plain::message(user, password)).await.expect("an answer")
    }

    pub(crate) async fn is_served(&mut self) -> bool {
        self.ask(&MetadataRequest::default(), 12).await.is_some()
    }

    async fn is_closed(&mut self) -> bool {
        self.frame().await.is_none()
    }
}

fn versions() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "stranger".to_owned(),
        client_software_version: "1".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_log_in_by_every_mechanism_and_nobody_else_does() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    // Two mechanisms, with different passwords.
    add_user(&broker, "bob", Hash::Sha256, "small").await;
    add_user(&broker, "bob", Hash::Sha512, "large").await;
    for (mechanism, user, password) in
        [("PLAIN", "ann", "ann-secret"), ("SCRAM-SHA-256", "bob", "small"), ("SCRAM-SHA-512", "bob", "large")]
    {
        let connection = log_in(&broker, mechanism, user, password).await.expect(mechanism);
        let metadata = connection.send(&MetadataRequest::default()).await.expect("it is served");
        assert_eq!(metadata.brokers.len(), 1);
        // Behind the exchange there is nothing to authenticate.
        let again = SaslHandshakeRequest { mechanism: mechanism.to_owned() };
        let again = connection.send(&again).await.expect("an answer");
        assert_eq!(again.error_code, ErrorCode::IllegalSaslState.code());
        connection.close();
    }
    let invalid =
        "Authentication failed during authentication due to invalid credentials with SASL mechanism ";
    for (mechanism, user, password, words) in [
        ("PLAIN", "ann", "wrong", "Authentication failed: Invalid username or password"),
        ("PLAIN", "bob", "small", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "bob", "large", invalid),
        ("SCRAM-SHA-512", "nobody", "x", invalid),
    ] {
        let error = log_in(&broker, mechanism, user, password).await.expect_err("a refusal").to_string();
        assert!(error.contains(words), "{error}");
    }
    // A user who is removed cannot log in any more.
    let deletion = alter_user_scram_credentials_request::ScramCredentialDeletion {
        name: "bob".to_owned(),
        mechanism: 1,
    };
    let request = AlterUserScramCredentialsRequest { deletions: vec![deletion], upsertions: Vec::new() };
    assert_eq!(broker.ask(&request).await.results[0].error_code, 0);
    assert!(log_in(&broker, "SCRAM-SHA-256", "bob", "small").await.is_err());
    // Elsewhere nobody is asked.
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    assert_eq!(broker.ask(&handshake).await.error_code, ErrorCode::IllegalSaslState.code());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_versions_and_the_handshake_come_before_authentication() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[("connection.failed.authentication.delay.ms", "0")]).await;
    let mut first = Stranger::connect(&broker).await;
    assert!(!first.is_served().await);
    let mut second = Stranger::connect(&broker).await;
    let known = second.ask(&versions(), 3).await.expect("an answer");
    for key in [17, 36] {
        assert!(known.api_keys.iter().any(|api| api.api_key == key), "{key} is in ApiVersions");
    }
    assert!(second.ask(&versions(), 3).await.is_none(), "once is enough");
    // A version that is not served may be followed by one that is.
    let mut third = Stranger::connect(&broker).await;
    third.send_raw(&[0, 18, 0, 99, 0, 0, 0, 7, 0, 0, 0, 0]).await;
    let refused = third.frame().await.expect("an answer");
    assert_eq!(refused[4..6], ErrorCode::UnsupportedVersion.code().to_be_bytes());
    assert_eq!(third.ask(&versions(), 3).await.expect("an answer").error_code, 0);
    assert_eq!(third.log_in("ann", "ann-secret").await.error_code, 0);
    assert!(third.is_served().await);
    // Between handshake and message.
    let mut fourth = Stranger::connect(&broker).await;
    fourth.handshake("PLAIN", 1).await.expect("an answer");
    assert!(!fourth.is_served().await);
    // Requests that are sent along are not served before the answer.
    let mut fifth = Stranger::connect(&broker).await;
    fifth.send(&SaslHandshakeRequest { mechanism: "PLAIN".to_owned() }, 1).await;
    let wrong = Bytes::from(plain::message("ann", "wrong"));
    fifth.send(&SaslAuthenticateRequest { auth_bytes: wrong }, 2).await;
    fifth.send(&MetadataRequest::default(), 12).await;
    fifth.frame().await.expect("the handshake");
    let refused = fifth.frame().await.expect("the refusal");
    let (_, refused) = decode_response::<SaslAuthenticateRequest>(refused, 2).expect("an answer");
    assert_eq!(refused.error_code, ErrorCode::SaslAuthenticationFailed.code());
    assert!(fifth.is_closed().await);
    // Another protocol.
    let mut sixth = Stranger::connect(&broker).await;
    sixth.stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("the broker reads");
    assert!(sixth.is_closed().await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    for mechanism in ["GSSAPI", "OAUTHBEARER", "plain", ""] {
        let mut stranger = Stranger::connect(&broker).await;
        let answer = stranger.handshake(mechanism, 1).await.expect("an answer");
        assert_eq!(answer.error_code, ErrorCode::UnsupportedSaslMechanism.code());
        assert_eq!(answer.mechanisms, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
        assert!(stranger.is_closed().await);
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_clients_send_their_messages_raw() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    add_user(&broker, "bob", Hash::Sha256, "small").await;
    let mut client = Stranger::connect(&broker).await;
    assert_eq!(client.handshake("SCRAM-SHA-256", 0).await.expect("an answer").error_code, 0);
    let (mut exchange, first) = scram::ScramClient::begin(Hash::Sha256, "bob", "small", "nonce", false);
    client.send_raw(&first).await;
    let challenge = client.frame().await.expect("a challenge");
    let proof = exchange.next(&challenge).expect("a proof").expect("a message");
    client.send_raw(&proof).await;
    let last = client.frame().await.expect("the last message");
    assert_eq!(exchange.next(&last), Ok(None));
    assert!(client.is_served().await);
    let mut stranger = Stranger::connect(&broker).await;
    stranger.handshake("PLAIN", 0).await.expect("an answer");
    stranger.send_raw(&plain::message("ann", "wrong")).await;
    assert!(stranger.is_closed().await, "without an answer");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_bounded_in_size_and_messages() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let more = [("listener.name.clients.sasl.server.max.receive.size", "1000")];
    let broker = start(dir.path(), &more).await;
    add_user(&broker, "bob", Hash::Sha512, "large").await;
    let mut stranger = Stranger::connect(&broker).await;
    stranger.stream.write_all(&1001_i32.to_be_bytes()).await.expect("the broker reads");
    assert!(stranger.is_closed().await, "at the length alone");
    let mut user = Stranger::connect(&broker).await;
    assert_eq!(user.log_in("ann", "ann-secret").await.error_code, 0);
    let topics = (0..200).map(|number| metadata_request::MetadataRequestTopic {
        name: Some(format!("a-topic-{number}")),
        ..Default::default()
    });
    let large = MetadataRequest { topics: Some(topics.collect()), ..Default::default() };
    assert!(user.ask(&large, 12).await.is_some(), "afterwards there is room");
    // A captured exchange is of no use, and a third message is none of SCRAM's.
    let mut client = Stranger::connect(&broker).await;
    client.handshake("SCRAM-SHA-512", 1).await.expect("an answer");
    let (mut exchange, first) = scram::ScramClient::begin(Hash::Sha512, "bob", "large", "nonce", false);
    let challenge = client.token(&first).await.expect("a challenge").auth_bytes;
    let proof = exchange.next(&challenge).expect("a proof").expect("a message");
    let last = client.token(&proof).await.expect("the last message");
    assert_eq!((last.error_code, exchange.next(&last.auth_bytes)), (0, Ok(None)));
    let more = client.token(&proof).await.expect("an answer");
    assert_eq!(more.error_code, ErrorCode::IllegalSaslState.code());
    let mut thief = Stranger::connect(&broker).await;
    thief.handshake("SCRAM-SHA-512", 1).await.expect("an answer");
    let other = thief.token(&first).await.expect("a challenge").auth_bytes;
    assert_ne!(other, challenge);
    let refused = thief.token(&proof).await.expect("an answer");
    assert_eq!(refused.error_code, ErrorCode::SaslAuthenticationFailed.code());
    assert!(thief.is_closed().await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_logins_are_answered_late() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[("connection.failed.authentication.delay.ms", "700")]).await;
    let mut stranger = Stranger::connect(&broker).await;
    let begun = tokio::time::Instant::now();
    let answer = stranger.log_in("ann", "wrong").await;
    assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed.code());
    assert!(begun.elapsed() >= Duration::from_millis(700));
    assert!(stranger.is_closed().await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_unless_the_same_user_authenticates_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[("connections.max.reauth.ms", "1300")]).await;
    let answer = Stranger::connect(&broker).await.log_in("ann", "ann-secret").await;
    assert_eq!(answer.session_lifetime_ms, 1300);
    let connect = async || {
        let mut client = Stranger::connect(&broker).await;
        assert_eq!(client.log_in("ann", "ann-secret").await.error_code, 0);
        assert!(client.is_served().await);
        client
    };
    let (mut silent, mut faithful, mut other) = (connect().await, connect().await, connect().await);
    let mut elsewhere = connect().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(faithful.log_in("ann", "ann-secret").await.error_code, 0);
    assert_eq!(faithful.handshake("PLAIN", 1).await.expect("an answer").error_code, 34, "too soon");
    let changed = other.log_in("admin", "admin-secret").await;
    let words = "Cannot change principals during re-authentication from User.ann: User.admin";
    assert_eq!(changed.error_message.as_deref(), Some(words));
    assert!(other.is_closed().await);
    assert_eq!(elsewhere.handshake("SCRAM-SHA-256", 1).await.expect("an answer").error_code, 0);
    let refused = elsewhere.token(b"n,,n=ann,r=x").await.expect("an answer");
    assert!(refused.error_message.expect("words").contains("re-authentication of mechanism 'PLAIN'"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!silent.is_served().await, "its session has ended");
    assert!(faithful.is_served().await);
    // Our own client knows when.
    let client = log_in(&broker, "PLAIN", "ann", "ann-secret").await.expect("a connection");
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.send(&MetadataRequest::default()).await.expect("it is served all the time");
    }
    broker.stop().await;
}

/// An identity provider that publishes its keys in a file.
struct Provider {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Provider {
    fn new(id: &'static str) -> Provider {
        let (random, signing) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(signing, &random).expect("a key");
        Provider { pair: EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).expect("a key"), id }
    }

    fn publish(&self, path: &Path) {
        let point = &self.pair.public_key().as_ref()[1..];
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (x, y) = (text(&point[..32]), text(&point[32..]));
        let id = self.id;
        let key = format!(
            r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"{id}","use":"sig","x":"{x}","y":"{y}"}}]}}"#
        );
        std::fs::write(path, key).expect("a file");
    }

    #[expect(clippy::disallowed_methods, reason = "a provider has the world's time")]
    fn token(&self, user: &str, seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let now = i64::try_from(now).expect("a small number");
        let header = format!(r#"{{"alg":"ES256","kid":"{}"}}"#, self.id);
        let claims =
            format!(r#"{{"sub":"{user}","iat":{now},"exp":{},"aud":"kafka","iss":"idp"}}"#, now + seconds);
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

async fn show(broker: &RunningBroker, token: &str) -> (Stranger, SaslAuthenticateResponse) {
    let mut client = Stranger::connect(broker).await;
    assert_eq!(client.handshake("OAUTHBEARER", 1).await.expect("an answer").error_code, 0);
    let message = oauth::FirstMessage::encode(token, &Default::default());
    let answer = client.token(&message).await.expect("an answer");
    (client, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_the_provider_are_taken_while_they_last() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let keys = dir.path().join("keys.json");
    let provider = Provider::new("one");
    provider.publish(&keys);
    let url = format!("file:{}", keys.display());
    let more = [
        ("sasl.enabled.mechanisms", "OAUTHBEARER"),
        ("sasl.oauthbearer.jwks.endpoint.url", url.as_str()),
        ("sasl.oauthbearer.expected.audience", "kafka"),
        ("sasl.oauthbearer.expected.issuer", "idp"),
        ("sasl.oauthbearer.clock.skew.seconds", "0"),
    ];
    let data = dir.path().join("data");
    let broker = start(&data, &more).await;
    // The first may have to wait for the keys; the session ends with the token.
    let (mut client, answer) = show(&broker, &provider.token("svc", 3)).await;
    assert_eq!((answer.error_code, &answer.auth_bytes[..]), (0, &b""[..]));
    assert!((1..=3000).contains(&answer.session_lifetime_ms), "{}", answer.session_lifetime_ms);
    assert!(client.is_served().await);
    let thief = Provider::new("one");
    let unsigned = format!("{}.{}.", STANDARD.encode("{\"alg\":\"none\"}").replace('=', ""), "e30");
    for token in [thief.token("svc", 60), provider.token("svc", -1), unsigned] {
        let (mut client, answer) = show(&broker, &token).await;
        assert_eq!((answer.error_code, &answer.auth_bytes[..]), (0, &b"{\"status\":\"invalid_token\"}"[..]));
        let end = client.token(b"\x01").await.expect("an answer");
        assert_eq!(end.error_code, ErrorCode::SaslAuthenticationFailed.code());
        assert_eq!(end.error_message.as_deref(), Some("{\"status\":\"invalid_token\"}"));
        assert!(client.is_closed().await);
    }
    // Another key is read at once; behind the answer the connection takes any request.
    let rotated = Provider::new("two");
    rotated.publish(&keys);
    let (mut renewed, answer) = show(&broker, &rotated.token("svc", 60)).await;
    assert_eq!((answer.error_code, &answer.auth_bytes[..]), (0, &b""[..]));
    assert!(renewed.is_served().await);
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert!(!client.is_served().await, "its token has expired");
    assert!(renewed.is_served().await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_and_controllers_authenticate_to_each_other() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let common = [
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        ),
        ("inter.broker.listener.name", "INTERNAL"),
        ("controller.listener.names", "CONTROLLER"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("sasl.mechanism.controller.protocol", "PLAIN"),
        ("listener.name.internal.plain.sasl.jaas.config", PLAIN_MODULE),
        ("listener.name.controller.plain.sasl.jaas.config", PLAIN_MODULE),
        ("default.replication.factor", "2"),
        ("min.insync.replicas", "2"),
    ];
    let mut first = common.to_vec();
    first.extend([
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("listeners", "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
    ]);
    let first = RunningBroker::start(dirs[0].path(), &first).await;
    let controller = first.server().addresses.iter().find(|(name, _)| name == "CONTROLLER");
    let controller = controller.expect("a listener").1[0].to_string();
    let mut second = common.to_vec();
    second.extend([
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("listeners", "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"),
        ("controller.quorum.bootstrap.servers", controller.as_str()),
    ]);
    let second = RunningBroker::start(dirs[1].path(), &second).await;
    // A record with acks=all is on both: the follower has fetched it over the secured listener.
    let topic = create_topics_request::CreatableTopic {
        name: "t".to_owned(),
        num_partitions: 1,
        replication_factor: 2,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    let created = second.ask(&request).await.topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    let topic = Topic { name: "t".to_owned(), id: created.topic_id };
    let is_on_both = async || {
        for broker in [&first, &second] {
            if put(broker, &topic, -1, batch(&[b"x"])).await.error_code == 0 {
                return true;
            }
        }
        false
    };
    let replicated = async {
        while !is_on_both().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, replicated).await.expect("the follower authenticates");
    // Without a password there is no way in.
    let refused = Connection::connect(&controller, &ConnectionOptions::default()).await;
    let refused = match refused {
        Ok(connection) => connection.send(&DescribeClusterRequest::default()).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    second.stop().await;
    first.stop().await;
}
