//! The paths from an agent's machine to the brokers of a cluster: if each broker accepts a connection and
//! answers, the time of a connect, and that of a round trip.
//!
//! A round trip is that of a Metadata request without topics, which a broker answers without disk or other
//! brokers. The rate to a broker is not measured, because a broker takes bytes as records only.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::Cluster;
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
/// Maximum number of brokers that are tried.
const BROKERS_MAX: usize = 64;

/// Tries every broker of a cluster.
pub(super) async fn check(bootstrap: &[String], properties: &BTreeMap<String, String>) -> Vec<BrokerPath> {
    let connected = timeout(4 * STEP_TIMEOUT, target::connect(bootstrap, properties)).await;
    let cluster = match connected {
        Ok(Ok(cluster)) => cluster,
        Ok(Err(error)) => return vec![unusable(bootstrap.join(","), error.to_string())],
        Err(_) => return vec![unusable(bootstrap.join(","), no_answer(4 * STEP_TIMEOUT))],
    };
    let metadata = cluster.metadata();
    let mut paths = Vec::new();
    for (id, broker) in metadata.brokers.iter().take(BROKERS_MAX) {
        paths.push(path(&cluster, *id, broker.address()).await);
    }
    paths
}

async fn path(cluster: &Cluster, id: i32, address: String) -> BrokerPath {
    let mut path = BrokerPath { broker: address.clone(), ..BrokerPath::default() };
    for _ in 0..TRIES {
        let began = Instant::now();
        match timeout(STEP_TIMEOUT, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => path.connect_us = faster(path.connect_us, began),
            Ok(Err(error)) => return unusable(address, error.to_string()),
            Err(_) => return unusable(address, no_answer(STEP_TIMEOUT)),
        }
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
