//! The http sink over TLS, to servers with trusted and untrusted certificates, and kafka stages to a cluster
//! with an untrusted certificate.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{RunOptions, Taps, start};
use thalweg_stream::{Cluster, Guarantee, OnError, Reach};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::Lines;

/// A server that answers 200, and its certificate in PEM.
async fn server() -> (std::net::SocketAddr, String, Receiver<String>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("they go together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (posted, requests) = sync_channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, posted) = (acceptor.clone(), posted.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate disconnects.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let (mut request, mut buffer) = (String::new(), vec![0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    request.push_str(&String::from_utf8_lossy(&buffer[..count]));
                    if !is_whole(&request) {
                        continue;
                    }
                    let _ = posted.send(std::mem::take(&mut request));
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, cert.pem(), requests)
}

/// Whether a request is complete.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

async fn run(text: &str) -> Result<(), String> {
    let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions {
        reach: Reach::everything().into(),
        on_error: OnError::Fail,
        cluster: Cluster { bootstrap: "localhost:9092".to_owned(), properties: None },
        guarantee: Guarantee::AtLeastOnce,
        instance: "0".to_owned(),
        console: Arc::new(Lines::default()),
        taps: Taps::default(),
    };
    let mut running = start(&plan, &options).map_err(|error| error.to_string())?;
    running.ended().await.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_reach_a_server_that_is_trusted_and_no_other() {
    let (address, pem, requests) = server().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, pem).expect("it can be written");
    let url = format!("https://localhost:{}/orders", address.port());
    let text = format!(
        "load-generator --messageCount=2 --messageSize=0 | transform --expression='\"n\" + string(sequence)' \
         | http --url={url}"
    );
    run(&format!("{text} --caFile={}", file.display())).await.expect("they are taken");
    let posted: Vec<String> = requests.try_iter().collect();
    assert!(
        posted.len() == 2 && posted[0].starts_with("POST /orders ") && posted[1].ends_with("n1"),
        "{posted:?}"
    );

    let error = run(&format!("{text} --retryFor=100ms")).await.expect_err("untrusted");
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(requests.try_iter().count(), 0);
    std::fs::write(&file, "no certificate").expect("it can be written");
    let error = run(&format!("{text} --caFile={}", file.display())).await.expect_err("there is none");
    assert!(error.contains("Cannot read trusted certificates from"), "{error}");
}

/// Permanent errors are reported at once, instead of after the retry time, which is five minutes for a sink.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_cluster_certificate_is_reported_at_once() {
    let (address, _, _requests) = server().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (other, file) = (dir.path().join("ca.pem"), dir.path().join("client.properties"));
    let certified = generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(&other, certified.cert.pem()).expect("it can be written");
    let properties = format!("security.protocol=SSL\nssl.truststore.location={}", other.display());
    std::fs::write(&file, properties).expect("it can be written");
    let where_to = format!("--bootstrap=localhost:{} --properties={}", address.port(), file.display());
    for text in [
        format!("kafka --topics=t {where_to} | null"),
        format!("kafka --topics=t --group=g {where_to} | null"),
        format!("time --count=1 | kafka --topic=t {where_to}"),
        // No message arrives that would trigger the error.
        format!("time --fixedDelay=1h | kafka --topic=t {where_to}"),
    ] {
        let ended = tokio::time::timeout(Duration::from_secs(60), run(&text)).await;
        let error = ended.expect("within a minute, on any machine").expect_err("untrusted");
        assert!(
            error.contains("cannot be accepted: it is signed by CN=rcgen self signed cert, which is trusted, but is no authority"),
            "{text}: {error}"
        );
    }
}
