//! The clusters used by this process. Stages with the same settings share a cluster with its metadata and
//! connections. An unused cluster is dropped.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use thalweg_client::{Cluster, ConnectionOptions, Waits, WeakCluster};
use tokio::runtime::{Handle, Id};

/// The key for sharing connections. Contains secrets.
#[derive(PartialEq, Eq)]
pub struct ConnectionKey {
    /// The runtime, because a connection's tasks end with it.
    runtime: Id,
    bootstrap: Vec<String>,
    client_id: String,
    timeouts: [Duration; 2],
    /// The security settings as written, and the contents of the files they name, which may have been renewed
    /// since.
    security: Vec<(String, String)>,
}

/// Receives the waits of clusters, if the process shows them.
static WAITS: OnceLock<Waits> = OnceLock::new();

/// Makes the clusters of this process report their waits. Only the first call counts, and only for later
/// clusters.
pub fn report_waits_to(waits: Waits) {
    let _ = WAITS.set(waits);
}

static CLUSTERS: Mutex<Vec<(ConnectionKey, WeakCluster)>> = Mutex::new(Vec::new());

/// The cluster behind `bootstrap`, which connects with its first request. `written` are the security
/// settings. Call it on a runtime.
pub fn shared(bootstrap: &[String], options: &ConnectionOptions, written: &[(String, String)]) -> Cluster {
    let read = options.security.librdkafka().into_iter().map(|(key, value)| (key.to_owned(), value));
    let sharing = ConnectionKey {
        runtime: Handle::current().id(),
        bootstrap: bootstrap.to_vec(),
        client_id: options.client_id.clone(),
        timeouts: [options.connect_timeout, options.request_timeout],
        security: written.iter().cloned().chain(read).collect(),
    };
    let mut clusters = CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = clusters.iter().find(|(known, _)| *known == sharing);
    if let Some(cluster) = known.and_then(|(_, cluster)| cluster.upgrade()) {
        return cluster;
    }
    let options = ConnectionOptions { waits: WAITS.get().cloned(), ..options.clone() };
    let cluster = Cluster::unconnected(bootstrap, &options);
    clusters.retain(|(_, cluster)| cluster.upgrade().is_some());
    clusters.push((sharing, cluster.downgrade()));
    cluster
}
