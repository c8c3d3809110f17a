//! The clusters that this process talks to: stages with the same settings share one, with its metadata and its connections. What
//! nobody uses any more is forgotten.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thalweg_client::{Cluster, ConnectionOptions, WeakCluster};
use tokio::runtime::{Handle, Id};

/// What has to be the same for stages to share connections. It holds secrets.
#[derive(PartialEq, Eq)]
pub struct Sharing {
    /// The tasks of a connection end with their runtime.
    runtime: Id,
    bootstrap: Vec<String>,
    client_id: String,
    timeouts: [Duration; 2],
    /// As it was written, and what the files had in them when they were read: those may have been renewed since.
    security: Vec<(String, String)>,
}

static CLUSTERS: Mutex<Vec<(Sharing, WeakCluster)>> = Mutex::new(Vec::new());

/// The cluster behind `bootstrap`, which connects with its first request. `written` is what was said of its security. To be
/// called on a runtime.
pub fn shared(bootstrap: &[String], options: &ConnectionOptions, written: &[(String, String)]) -> Cluster {
    let read = options.security.librdkafka().into_iter().map(|(key, value)| (key.to_owned(), value));
    let sharing = Sharing {
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
    let cluster = Cluster::unconnected(bootstrap, options);
    clusters.retain(|(_, cluster)| cluster.upgrade().is_some());
    clusters.push((sharing, cluster.downgrade()));
    cluster
}
