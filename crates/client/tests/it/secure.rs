//! TLS and SASL against a peer in memory: admission, and secrecy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use thalweg_client::{
    ByteStream, ClientError, CloseReason, Connection, ConnectionOptions, Connector, FrameReader, Properties,
};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::{
    ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse, SaslAuthenticateRequest,
    SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, frame};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Authority, PASSWORD, SignedCertificate, Validity, path, write};

const HOST: &str = "broker.test";

/// A broker in memory.
#[derive(Clone, Default)]
struct Peer {
    tls: Option<TlsAcceptor>,
    /// `user\0password` that PLAIN takes; without, there is no SASL.
    plain: Option<&'static str>,
    session_lifetime_ms: i64,
    authentications: Arc<AtomicUsize>,
}

impl Peer {
    fn with_tls(signed: &SignedCertificate) -> Peer {
        Peer { tls: Some(acceptor(signed, None)), ..Peer::default() }
    }

    fn connector(&self) -> Connector {
        let peer = self.clone();
        Connector::new(move |_| {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(peer.clone().accept(theirs));
            async { Ok(Box::new(ours) as Box<dyn ByteStream>) }
        })
    }

    async fn accept(self, stream: DuplexStream) {
        match self.tls.clone() {
            None => self.serve(stream).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve(stream).await;
                }
            }
        }
    }

    /// Answers until the client disconnects, or breaks the rules.
    async fn serve<S: ByteStream>(self, stream: S) {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut frames = FrameReader::new(reader, 1 << 20);
        let mut authenticated = self.plain.is_none();
        while let Ok(request) = frames.next().await {
            let Some(answer) = self.answer(request, &mut authenticated) else { return };
            if writer.write_all(&answer).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: Bytes, authenticated: &mut bool) -> Option<Bytes> {
        let prefix = frame::peek_request(&request).ok()?;
        let (key, version) = (ApiKey::from_i16(prefix.api_key)?, prefix.api_version);
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        let id = prefix.correlation_id;
        match key {
            ApiKey::ApiVersions => encode(&self.versions(), key, version, id),
            ApiKey::SaslHandshake => {
                let asked = SaslHandshakeRequest::decode(&mut d, version).expect("a request").mechanism;
                *authenticated = false;
                let error_code =
                    if asked == "PLAIN" { 0 } else { ErrorCode::UnsupportedSaslMechanism.code() };
                let mechanisms = vec!["PLAIN".to_owned()];
                encode(&SaslHandshakeResponse { error_code, mechanisms }, key, version, id)
            }
            ApiKey::SaslAuthenticate => {
                let request = SaslAuthenticateRequest::decode(&mut d, version).expect("a request");
                let expected = format!("\0{}", self.plain.unwrap_or_default());
                *authenticated = *request.auth_bytes == *expected.as_bytes();
                self.authentications.fetch_add(usize::from(*authenticated), Ordering::Relaxed);
                let mut answer = SaslAuthenticateResponse {
                    session_lifetime_ms: self.session_lifetime_ms,
                    ..SaslAuthenticateResponse::default()
                };
                if !*authenticated {
                    answer.error_code = ErrorCode::SaslAuthenticationFailed.code();
                    let words = "Authentication failed: Invalid username or password";
                    answer.error_message = Some(words.to_owned());
                }
                encode(&answer, key, version, id)
            }
            // As Kafka, it closes where it wants SASL and gets something else.
            _ if !*authenticated => None,
            ApiKey::Heartbeat => encode(&HeartbeatResponse::default(), key, version, id),
            other => panic!("{other:?} is not expected"),
        }
    }

    fn versions(&self) -> ApiVersionsResponse {
        let sasl = [ApiKey::SaslHandshake, ApiKey::SaslAuthenticate];
        let sasl = sasl.iter().filter(|_| self.plain.is_some());
        let keys = [ApiKey::ApiVersions, ApiKey::Heartbeat];
        let api_keys = keys.iter().chain(sasl).map(|key| {
            let (min_version, max_version) = key.versions();
            ApiVersion { api_key: *key as i16, min_version, max_version }
        });
        ApiVersionsResponse { api_keys: api_keys.collect(), ..ApiVersionsResponse::default() }
    }
}

fn encode<M: Message>(message: &M, key: ApiKey, version: i16, id: i32) -> Option<Bytes> {
    Some(frame::encode_response(message, key, version, id).expect("an answer").0.freeze())
}

/// Accepts as `signed`, and asks for a certificate of `clients` where that is given.
fn acceptor(signed: &SignedCertificate, clients: Option<&Authority>) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("protocols");
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der()).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let config = config.with_single_cert(signed.chain(), signed.key()).expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}

fn options(settings: &[(&str, &str)]) -> Result<ConnectionOptions, String> {
    let mut properties = Properties::new();
    for (key, value) in settings {
        properties.set(key, value);
    }
    let options = ConnectionOptions::take(&mut properties, "test").map_err(|error| error.to_string())?;
    assert_eq!(properties.rest().collect::<Vec<_>>(), [""; 0], "all settings are taken");
    Ok(options)
}

async fn connect(peer: &Peer, host: &str, settings: &[(&str, &str)]) -> Result<Connection, ClientError> {
    let options = options(settings).expect("settings that can be");
    Connection::connect_by(&peer.connector(), &format!("{host}:9093"), &options).await
}

async fn heartbeat(connection: &Connection) -> Result<(), ClientError> {
    connection.send(&HeartbeatRequest::default()).await.map(|_| ())
}

#[tokio::test]
async fn a_broker_is_spoken_to_whose_certificate_leads_to_a_trusted_one() {
    let authority = Authority::new("authority");
    let peer = Peer::with_tls(&authority.sign(&[HOST, "10.0.0.7"], Validity::Now));
    let directory = tempfile::tempdir().expect("a directory");
    let (path_of_store, store) = path(&directory, "trust.p12");
    authority.write_truststore(&path_of_store);
    let pem = write(&directory.path().join("ca.pem"), authority.pem.as_bytes());
    let one_line = authority.pem.replace('\n', " ");
    for trusted in [
        &[("ssl.truststore.location", pem.as_str())][..],
        &[
            ("ssl.truststore.location", &pem),
            ("ssl.truststore.type", "PEM"),
            ("ssl.enabled.protocols", "TLSv1.2"),
        ],
        &[("ssl.truststore.location", &store), ("ssl.truststore.password", PASSWORD)],
        &[("ssl.truststore.certificates", &one_line), ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")],
        &[("ssl.ca.location", &pem), ("ssl.cipher.suites", "TLS_AES_256_GCM_SHA384")],
    ] {
        let settings: Vec<_> = [("security.protocol", "SSL")].iter().chain(trusted).copied().collect();
        let connection = connect(&peer, HOST, &settings).await.expect("connected");
        heartbeat(&connection).await.expect("an answer");
    }
    let by_address = [("security.protocol", "SSL"), ("ssl.truststore.location", &pem)];
    heartbeat(&connect(&peer, "10.0.0.7", &by_address).await.expect("connected")).await.expect("an answer");
}

#[tokio::test]
async fn a_certificate_that_signs_itself_is_trusted_when_it_is_named() {
    let signed = SignedCertificate::by_itself(&[HOST]);
    let peer = Peer::with_tls(&signed);
    let settings = [("security.protocol", "SSL"), ("ssl.truststore.certificates", signed.pem.as_str())];
    heartbeat(&connect(&peer, HOST, &settings).await.expect("connected")).await.expect("an answer");
    let error = connect(&peer, "other.test", &settings).await.expect_err("the name is checked");
    assert!(error.to_string().contains("is not for other.test, but for"), "{error}");
}

#[tokio::test]
async fn faults_of_a_brokers_certificate_are_reported_in_words_of_the_settings() {
    let authority = Authority::new("authority");
    let stranger = Authority::new("stranger");
    let trusting = |pem| [("security.protocol", "SSL"), ("ssl.truststore.certificates", pem)];
    for (signed, host, trusted, words) in [
        (
            authority.sign(&[HOST], Validity::Now),
            HOST,
            &stranger.pem,
            "is signed by none that is trusted here; ssl.truststore",
        ),
        (authority.sign(&[HOST], Validity::NoMore), HOST, &authority.pem, "has expired"),
        (authority.sign(&[HOST], Validity::NotYet), HOST, &authority.pem, "is not valid yet"),
        (authority.sign(&[HOST], Validity::Now), "127.0.0.1", &authority.pem, "not for 127.0.0.1"),
    ] {
        let error = connect(&Peer::with_tls(&signed), host, &trusting(trusted)).await.expect_err("a refusal");
        assert!(error.to_string().starts_with(&format!("TLS with {host}:9093 failed: ")), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.is_retriable(), "the next time is no better");
    }
    let peer = Peer::with_tls(&authority.sign(&[HOST], Validity::Now));
    let mut unchecked = trusting(&authority.pem).to_vec();
    unchecked.push(("ssl.endpoint.identification.algorithm", ""));
    connect(&peer, "other.test", &unchecked).await.expect("the name is not looked at");
}

#[tokio::test]
async fn the_two_sides_find_out_that_only_one_speaks_tls() {
    let authority = Authority::new("authority");
    let settings = [("security.protocol", "SSL"), ("ssl.truststore.certificates", authority.pem.as_str())];
    let error = connect(&Peer::default(), HOST, &settings).await.expect_err("it speaks PLAINTEXT");
    assert!(error.to_string().contains("closed the connection in the handshake"), "{error}");
    let peer = Peer::with_tls(&authority.sign(&[HOST], Validity::Now));
    let error = connect(&peer, HOST, &[]).await.expect_err("it speaks TLS");
    assert!(error.to_string().contains("expected security.protocol=SSL or SASL_SSL"), "{error}");
}

#[tokio::test]
async fn a_client_shows_its_certificate_from_wherever_it_has_it() {
    let authority = Authority::new("authority");
    let mut peer = Peer::with_tls(&authority.sign(&[HOST], Validity::Now));
    peer.tls = Some(acceptor(&authority.sign(&[HOST], Validity::Now), Some(&authority)));
    let base = [("security.protocol", "SSL"), ("ssl.truststore.certificates", authority.pem.as_str())];
    for versions in ["TLSv1.2", "TLSv1.3"] {
        let settings = [base[0], base[1], ("ssl.enabled.protocols", versions)];
        let error = connect(&peer, HOST, &settings).await.expect_err("it wants a certificate");
        assert!(error.to_string().contains("requires a client certificate"), "{versions}: {error}");
    }
    let client = authority.sign(&[], Validity::Now);
    let directory = tempfile::tempdir().expect("a directory");
    let both = write(&directory.path().join("both.pem"), (client.key_pem.clone() + &client.pem).as_bytes());
    let chain = write(&directory.path().join("chain.pem"), client.pem.as_bytes());
    let key = write(&directory.path().join("key.pem"), client.encrypted_key_pem().as_bytes());
    let (path_of_store, store) = path(&directory, "key.p12");
    client.write_keystore(&path_of_store);
    for identity in [
        &[("ssl.keystore.location", both.as_str()), ("ssl.keystore.type", "PEM")][..],
        &[
            ("ssl.keystore.location", &store),
            ("ssl.keystore.password", PASSWORD),
            ("ssl.key.password", PASSWORD),
        ],
        &[("ssl.keystore.key", &client.key_pem), ("ssl.keystore.certificate.chain", &client.pem)],
        &[("ssl.key.location", &key), ("ssl.certificate.location", &chain), ("ssl.key.password", PASSWORD)],
    ] {
        let settings: Vec<_> = base.iter().chain(identity).copied().collect();
        let connection = connect(&peer, HOST, &settings).await.expect("connected");
        heartbeat(&connection).await.expect("an answer");
    }
}

#[test]
fn a_setting_that_cannot_be_names_itself_and_no_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    let client = authority.sign(&[], Validity::Now);
    let (path_of_store, store) = path(&directory, "key.p12");
    client.write_keystore(&path_of_store);
    let jks = write(&directory.path().join("x.jks"), &[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
    let jceks = write(&directory.path().join("x.jceks"), &[0xce, 0xce, 0xce, 0xce, 0, 0, 0, 2]);
    let text = write(&directory.path().join("x.txt"), b"hello");
    let other = authority.sign(&[], Validity::Now);
    let encrypted = client.encrypted_key_pem();
    for (settings, words) in [
        (
            &[("ssl.truststore.location", "/nowhere")][..],
            "ssl.truststore.location=/nowhere is invalid: expected a file that can be read",
        ),
        (&[("ssl.truststore.location", &jks)], "expected a readable JKS file"),
        (&[("ssl.truststore.location", &jceks)], "-deststoretype PKCS12 converts it"),
        (&[("ssl.truststore.location", &text)], "expected a file in PEM, PKCS12 or JKS, which this is not"),
        (
            &[("ssl.truststore.location", &store)],
            "ssl.truststore.password=(not set) is invalid: expected the password of",
        ),
        (
            &[("ssl.keystore.location", &store), ("ssl.keystore.password", "hunter2")],
            "ssl.keystore.password=[hidden] is invalid: expected the password of",
        ),
        (&[("ssl.keystore.key", &client.key_pem)], "ssl.keystore.certificate.chain=(not set)"),
        (
            &[("ssl.keystore.key", &client.key_pem), ("ssl.keystore.certificate.chain", &other.pem)],
            "a certificate with its key",
        ),
        (
            &[("ssl.keystore.key", &encrypted), ("ssl.keystore.certificate.chain", &client.pem)],
            "ssl.key.password=(not set)",
        ),
        (
            &[
                ("ssl.keystore.key", &encrypted),
                ("ssl.keystore.certificate.chain", &client.pem),
                ("ssl.key.password", "hunter2"),
            ],
            "ssl.key.password=[hidden]",
        ),
        (
            &[("ssl.enabled.protocols", "TLSv1.1")],
            "ssl.enabled.protocols=TLSv1.1 is invalid: expected TLSv1.2, TLSv1.3",
        ),
        (&[("ssl.endpoint.identification.algorithm", "LDAPS")], "https, or nothing for no check"),
        (
            &[("ssl.truststore.type", "BCFKS")],
            "ssl.truststore.type=BCFKS is invalid: expected PEM, PKCS12 or JKS",
        ),
    ] {
        let mut all = vec![("security.protocol", "SSL")];
        if !settings.iter().any(|(key, _)| key.starts_with("ssl.truststore")) {
            all.push(("ssl.truststore.certificates", &authority.pem));
        }
        all.extend(settings);
        let error = options(&all).expect_err("a refusal");
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("hunter2") && !error.contains("PRIVATE KEY-"), "{error}");
    }
}

fn plain(password: &str) -> [(&str, &str); 4] {
    [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "ann"),
        ("sasl.password", password),
    ]
}

#[tokio::test]
async fn a_listener_with_sasl_lets_in_who_knows_the_password() {
    let peer = Peer { plain: Some("ann\0secret"), ..Peer::default() };
    heartbeat(&connect(&peer, HOST, &plain("secret")).await.expect("let in")).await.expect("an answer");
    let error = connect(&peer, HOST, &plain("hunter2")).await.expect_err("a wrong password");
    assert!(
        error.to_string().starts_with(
            "broker.test:9093 rejects this client by PLAIN: Authentication failed: Invalid username or password"
        ),
        "{error}"
    );
    assert!(!error.is_retriable() && !error.to_string().contains("hunter2"), "{error}");
    let mut scram = plain("secret");
    scram[1].1 = "SCRAM-SHA-256";
    let error = connect(&peer, HOST, &scram).await.expect_err("another mechanism");
    assert!(error.to_string().ends_with("this listener supports PLAIN (sasl.mechanism)"), "{error}");
    let error = connect(&Peer::default(), HOST, &plain("secret")).await.expect_err("no SASL");
    assert!(error.to_string().contains("does not use SASL (expected security.protocol=PLAINTEXT"), "{error}");
    let silent = connect(&peer, HOST, &[]).await.expect("versions are told to everybody");
    let error = heartbeat(&silent).await.expect_err("nothing else is");
    assert!(error.to_string().contains("a SASL listener does so"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_renewed_on_its_connection_before_it_ends() {
    let peer = Peer { plain: Some("ann\0secret"), session_lifetime_ms: 10_000, ..Peer::default() };
    let connection = connect(&peer, HOST, &plain("secret")).await.expect("let in");
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        heartbeat(&connection).await.expect("an answer");
    }
    assert_eq!(peer.authentications.load(Ordering::Relaxed), 4, "at 0, 8.5, 17 and 25.5 of 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_renewed_ends_with_the_reason() {
    let mut peer = Peer { plain: Some("ann\0secret"), session_lifetime_ms: 10_000, ..Peer::default() };
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    // The password changes while the connection lives: another peer takes the stream over.
    peer.plain = Some("ann\0secret");
    let (mut first, mut second) = (peer.clone(), peer.clone());
    first.session_lifetime_ms = 2000;
    second.plain = Some("ann\0another");
    tokio::spawn(async move {
        let (reader, mut writer) = tokio::io::split(theirs);
        let mut frames = FrameReader::new(reader, 1 << 20);
        let (mut handshakes, mut authenticated) = (0, false);
        while let Ok(request) = frames.next().await {
            let key = frame::peek_request(&request).expect("a request").api_key;
            handshakes += usize::from(key == ApiKey::SaslHandshake as i16);
            let peer = if handshakes < 2 { &first } else { &second };
            let Some(answer) = peer.answer(request, &mut authenticated) else { return };
            writer.write_all(&answer).await.expect("written");
        }
    });
    let options = options(&plain("secret")).expect("settings");
    let connection = Connection::start(ours, "peer:1", &options).await.expect("let in");
    heartbeat(&connection).await.expect("an answer");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let error = heartbeat(&connection).await.expect_err("the end");
    let ClientError::Closed(closed) = &error else { panic!("{error}") };
    assert!(matches!(closed.reason, CloseReason::NotRenewed(_)), "{error}");
    assert!(error.to_string().contains("Invalid username or password"), "{error}");
}
