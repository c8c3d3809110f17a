//! The paths from an agent's machine to the brokers of a cluster: if each broker accepts a connection and
//! answers, the time of a connect, and that of a round trip.
//!
//! A round trip is that of a Metadata request without topics, which a broker answers without disk or other
//! brokers. The rate to a broker is not measured, because a broker takes bytes as records only.
//!
//! Of a cluster of Apache Pulsar, the addresses in the service URL are tried, by a connection and Pulsar's
//! handshake.

use std::collections::BTreeMap;
use std::time::Duration;

use socket2::SockRef;
use thalweg_client::Cluster;
use thalweg_pulsar::{Client, ClientOptions};
use thalweg_wire::request::MetadataRequest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::result::BrokerPath;
use crate::target;
use crate::worker::clock::micros;

/// Number of connects and of requests; the fastest counts.
const TRIES: usize = 5;
/// Maximum time of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The scheme of a service URL of Apache Pulsar, and the port of an address without one.
const PULSAR: (&str, &str) = ("pulsar://", "6650");

/// Tries every broker of a cluster, up to the first one that is unusable.
pub(super) async fn check(bootstrap: &[String], properties: &BTreeMap<String, String>) -> Vec<BrokerPath> {
    tried(bootstrap, properties, true).await
}

/// Tries every broker of a cluster.
pub(crate) async fn check_all(
    bootstrap: &[String],
    properties: &BTreeMap<String, String>,
) -> Vec<BrokerPath> {
    tried(bootstrap, properties, false).await
}

async fn tried(
    bootstrap: &[String],
    properties: &BTreeMap<String, String>,
    ends_at_failure: bool,
) -> Vec<BrokerPath> {
    if let Some(addresses) = bootstrap.first().and_then(|url| url.strip_prefix(PULSAR.0)) {
        return pulsar(addresses).await;
    }
    let connected = timeout(4 * STEP_TIMEOUT, target::connect(bootstrap, properties)).await;
    let cluster = match connected {
        Ok(Ok(cluster)) => cluster,
        Ok(Err(error)) => return vec![unusable(bootstrap.join(","), error.to_string())],
        Err(_) => return vec![unusable(bootstrap.join(","), no_answer(4 * STEP_TIMEOUT))],
    };
    let metadata = cluster.metadata();
    let mut paths = Vec::new();
    for (id, broker) in &metadata.brokers {
        let path = path(&cluster, *id, broker.address()).await;
        let is_last = ends_at_failure && path.failure.is_some();
        paths.push(path);
        if is_last {
            break;
        }
    }
    paths
}

/// Tries the addresses of a service URL, `host:port,...`.
async fn pulsar(addresses: &str) -> Vec<BrokerPath> {
    let mut paths = Vec::new();
    for address in addresses.trim_end_matches('/').split(',').map(str::trim) {
        // The colons of an IPv6 address are in brackets.
        let host_end = address.rfind(']').unwrap_or_default();
        let address = match address[host_end..].contains(':') {
            true => address.to_owned(),
            false => format!("{address}:{}", PULSAR.1),
        };
        let mut path = connect(&address).await;
        if path.failure.is_none() {
            let options = ClientOptions {
                connect_timeout: STEP_TIMEOUT,
                operation_timeout: STEP_TIMEOUT,
                ..ClientOptions::default()
            };
            let url = format!("{}{address}", PULSAR.0);
            let shaken = timeout(2 * STEP_TIMEOUT, Client::connect(&url, options)).await;
            path.failure = match shaken {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(no_answer(2 * STEP_TIMEOUT)),
            };
        }
        paths.push(path);
    }
    paths
}

/// The fastest connect to an address.
async fn connect(address: &str) -> BrokerPath {
    let mut path = BrokerPath { broker: address.to_owned(), ..BrokerPath::default() };
    for _ in 0..TRIES {
        let began = Instant::now();
        match timeout(STEP_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                path.connect_us = faster(path.connect_us, began);
                path.segment_bytes = SockRef::from(&stream).tcp_mss().ok();
            }
            Ok(Err(error)) => return unusable(address.to_owned(), error.to_string()),
            Err(_) => return unusable(address.to_owned(), no_answer(STEP_TIMEOUT)),
        }
    }
    path
}

async fn path(cluster: &Cluster, id: i32, address: String) -> BrokerPath {
    let mut path = connect(&address).await;
    if path.failure.is_some() {
        return path;
    }
    let connection = match timeout(2 * STEP_TIMEOUT, cluster.broker(id)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return unusable(address, error.to_string()),
        Err(_) => return unusable(address, no_answer(2 * STEP_TIMEOUT)),
    };
    for _ in 0..TRIES {
        let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
        let began = Instant::now();
        match timeout(STEP_TIMEOUT, connection.send(&request)).await {
            Ok(Ok(_)) => path.round_trip_us = faster(path.round_trip_us, began),
            Ok(Err(error)) => return unusable(address, error.to_string()),
            Err(_) => return unusable(address, no_answer(STEP_TIMEOUT)),
        }
    }
    path
}

fn faster(before: Option<u64>, began: Instant) -> Option<u64> {
    let took_us = micros(began.elapsed());
    Some(before.map_or(took_us, |before| before.min(took_us)))
}

fn unusable(broker: String, why: String) -> BrokerPath {
    BrokerPath { broker, failure: Some(why), ..BrokerPath::default() }
}

fn no_answer(waited: Duration) -> String {
    format!("no answer within {waited:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Pulsar's `CONNECTED`: the sizes of frame and command, type 3, and a server version `x`.
    const CONNECTED: [u8; 17] = [0, 0, 0, 13, 0, 0, 0, 9, 0x08, 3, 0x1a, 5, 0x0a, 1, b'x', 0x10, 21];

    #[tokio::test]
    async fn a_broker_of_pulsar_is_tried_by_pulsars_handshake() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                // A connect without a handshake sends nothing.
                if matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {
                    stream.write_all(&CONNECTED).await.expect("it is read");
                    open.push(stream);
                }
            }
        });
        let found = check(&[format!("pulsar://{address}/")], &BTreeMap::new()).await;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].broker.as_str(), &found[0].failure), (address.as_str(), &None));
        assert!(found[0].connect_us.is_some(), "{found:?}");
        let found = check(&["pulsar://127.0.0.1:1".to_owned()], &BTreeMap::new()).await;
        let failure = found[0].failure.as_deref().expect("nothing listens there");
        assert!(found[0].broker == "127.0.0.1:1" && failure.contains("refused"), "{found:?}");
    }
}
